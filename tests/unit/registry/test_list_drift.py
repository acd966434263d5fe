"""Drift between two snapshots of one server."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from assay_stream.limits.core import Limits
from assay_stream.model.envelope import Producer
from assay_stream.model.finding import Finding
from assay_stream.model.finding_topic import decode_entry
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin, Record, Role
from assay_stream.registry.processor import Registry, process
from tests.support.inventory import without_inventory

PRODUCER = Producer(version="0.1.0")
T1 = {"name": "t", "description": "one", "inputSchema": {"type": "object"}}
T2 = {"name": "t", "description": "two", "inputSchema": {"type": "object"}}
U = {"name": "u"}


class Fleet:
    def __init__(self) -> None:
        self.registry = Registry(producer=PRODUCER, limits=Limits())
        self.count = 0

    def show(
        self, *tools: dict[str, Any], observer: str = "alice", complete: bool | None = True, second: int | None = None
    ) -> list[Finding]:
        """Show a list; ``complete`` of ``None`` is unknown."""
        data = {
            "server_id": "server",
            "observer_id": observer,
            "snapshot_id": f"snapshot-{self.count}",
            "server_scoped": True,
            "completeness": {True: "complete", False: "partial", None: "unknown"}[complete],
            "tools": tools,
        }
        return self.publish(Role.SNAPSHOTS, "mcp.tools.list.observed", data, second)

    def pin(self, digest: str, scheme: str = "assay.schema_hash") -> None:
        data = {
            "server_id": "server",
            "tool_name": "t",
            "scheme": scheme,
            "value": digest,
            "author": "ann",
            "reason": "review",
        }
        self.publish(Role.CONTROL, "assay.control.pin.set", data, None)

    def publish(self, role: Role, kind: str, data: dict[str, Any], second: int | None) -> list[Finding]:
        time = self.count if second is None else second
        event = {
            "specversion": "1.0",
            "type": kind,
            "source": "urn:test",
            "id": str(self.count),
            "time": f"2026-03-01T00:00:{time:02}Z",
            "data": data,
        }
        place = Origin(topic=role.value, partition=0, offset=self.count)
        self.count += 1
        record = Record(role=role, origin=place, key=b"server", value=orjson.dumps(event))
        outputs = without_inventory(process(self.registry, record))
        assert not [output for output in outputs if output.role is Role.REJECTED]
        entries = [decode_entry(output.value) for output in outputs if output.role is Role.FINDINGS]
        return [entry for entry in entries if isinstance(entry, Finding)]


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def told(findings: list[Finding]) -> list[tuple[Kind, str | None, bool]]:
    return [(finding.kind, finding.tool_name, finding.known) for finding in findings]


def test_partial_lists_add_up(fleet: Fleet) -> None:
    fleet.show(T1)
    fleet.show(U, complete=False)
    assert fleet.show(T1, U) == []
    assert told(fleet.show(T2, complete=False)) == [(Kind.TOOL_CHANGED, "t", False)]


def test_a_late_list_is_compared_with_what_came_before_it_in_time(fleet: Fleet) -> None:
    fleet.show(T1, second=10)
    fleet.show(T2, second=30)
    assert fleet.show(T1, second=20) == []


def test_a_name_that_stands_twice_is_ambiguous(fleet: Fleet) -> None:
    assert told(fleet.show(T1, T2)) == [(Kind.DEFINITION_AMBIGUOUS, "t", False)]
    assert fleet.show(T1, T1, second=50) == []


def test_findings_come_in_the_order_of_names(fleet: Fleet) -> None:
    """One list gives its findings sorted by tool name, so that a replay gives the same bytes."""
    fleet.show(T1, {"name": "a"}, {"name": "z"})
    names = [finding.tool_name for finding in fleet.show({"name": "z", "x": 1}, {"name": "b"}, {"name": "a"}, T2)]
    assert names == ["b", "t", "z"]
