"""A registry that is shown lists of tools, prompts and resource templates."""

from datetime import timedelta
from typing import Any

from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.model.evidence import Producer
from assay_stream.model.finding import Finding, decode_entry
from assay_stream.model.record import Origin, Output, Record, Role
from assay_stream.registry.processor import Registry, process
from tests.support.events import TYPES, event_at, snapshot_data
from tests.support.fleet import START
from tests.support.inventory import without_inventory

TOOL: dict[str, Any] = {"name": "t", "description": "one", "inputSchema": {"type": "object"}}
PROMPT: dict[str, Any] = {
    "name": "review",
    "title": "Review",
    "description": "Review the code",
    "arguments": [{"name": "path", "description": "Where it stands", "required": True}],
}
TEMPLATE: dict[str, Any] = {"uriTemplate": "file:///{path}", "name": "files", "description": "Files"}


class Shown:
    """Lists of one server, one a minute, and what the registry writes about each."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.registry = Registry(producer=Producer(version="1"), limits=limits)
        self.count = 0
        self.outputs: list[Output] = []
        """What was written about the last one."""

    def show(
        self,
        *prompts: Any,
        templates: list[Any] | None = None,
        tools: tuple[dict[str, Any], ...] = (TOOL,),
        observer: str = "alice",
        completeness: str = "complete",
        second: int | None = None,
        silent: bool = False,
        **fields: Any,
    ) -> list[Finding]:
        """Show tools and prompts; where ``silent`` nothing is stated of prompts. Returns the findings."""
        listed = {"server_id": "server", "observer_id": observer, "snapshot_id": f"snapshot-{self.count}"}
        data = snapshot_data(*tools, **(listed | {"completeness": completeness} | fields))
        if not silent:
            data["prompts"] = prompts
        if templates is not None:
            data["resource_templates"] = templates
        time_s = self.count * 60 if second is None else second
        value = event_at(START + timedelta(seconds=time_s), TYPES[Role.SNAPSHOTS], str(self.count), data)
        place = Origin(topic="mcp.tools.list", partition=0, offset=self.count)
        self.count += 1
        record = Record(role=Role.SNAPSHOTS, origin=place, key=b"server", value=value)
        self.outputs = without_inventory(process(self.registry, record))
        assert not [output for output in self.outputs if output.role is Role.REJECTED]
        entries = [decode_entry(output.value) for output in self.outputs if output.role is Role.FINDINGS]
        return [entry for entry in entries if isinstance(entry, Finding)]


def told(findings: list[Finding]) -> list[tuple[str, str | None, bool]]:
    """Kind, name of the prompt or template, and whether it was known."""
    return [(finding.kind.value, finding.item_name, finding.known) for finding in findings]
