"""The AsyncAPI 3.0 document: every topic, and what stands in it."""

from __future__ import annotations

from typing import Any

from assay_stream import __version__
from assay_stream.model.control import CONTROL_MODELS
from assay_stream.model.envelope import EVIDENCE_TYPE
from assay_stream.model.evidence import CHANGE_TYPE
from assay_stream.model.observation import CALL_TYPE, LIST_CHANGED_TYPE, SNAPSHOT_TYPE
from assay_stream.model.record import Role
from assay_stream.model.schemas.documents import FACT_KEY, OUTPUTS, SUFFIX

_CHANNELS: dict[Role, tuple[str, str, tuple[str, ...], str | None]] = {
    Role.SNAPSHOTS: (
        "mcp.tools.list",
        "Snapshots: what a server offered, and changes that it announced. Key: server_id.",
        (SNAPSHOT_TYPE, LIST_CHANGED_TYPE),
        None,
    ),
    Role.CONTROL: ("assay.control", "What an operator sets. Key: server_id.", tuple(CONTROL_MODELS), None),
    Role.CALLS: ("mcp.tools.call", "Calls: what an agent did. Any key.", (CALL_TYPE,), None),
    Role.BINDINGS: (
        "assay.tool.binding",
        "Facts of the registry. Compacted. Key: assay.tool.binding.key.",
        tuple(name for name in OUTPUTS if name.startswith("assay.tool.binding.") and name != FACT_KEY),
        None,
    ),
    Role.DEFINITIONS: (
        "assay.tool.definition",
        "Definitions for reviewers. Compacted. Key: full digest.",
        ("assay.tool.definition",),
        None,
    ),
    Role.FINDINGS: (
        "assay.tool.finding",
        "Findings, and what else the alert stage must hear of. Key: server_id; the skeleton of the "
        "tool name for name claims; none for ticks.",
        tuple(name for name in OUTPUTS if name.startswith("assay.tool.finding")),
        None,
    ),
    Role.ALERTS: ("assay.tool.drift", "Alerts. Key: server_id.", ("assay.tool.drift",), "assay.tool.drift.headers"),
    Role.ALERT_STATES: (
        "assay.alert.state",
        "What the alert stage remembers. Compacted. Key: uid of the alert, rules/<partition>/<server>, "
        "names/<partition>/<skeleton>, or progress.",
        tuple(name for name in OUTPUTS if name.startswith("assay.alert.state")),
        None,
    ),
    Role.EVIDENCE: (
        "assay.tool.decision",
        "Evidence: one record per call. Key: server_id; partition number: the call's.",
        (EVIDENCE_TYPE,),
        None,
    ),
    Role.CHANGES: (
        "assay.control.change",
        "Changes: evidence of every control record. Key: server_id; partition number: the control record's.",
        (CHANGE_TYPE,),
        None,
    ),
    Role.VERDICTS: (
        "assay.tool.verdict",
        "Verdicts: what the digest policy makes of each tool now. Compacted. Key: JSON array of server and tool.",
        ("assay.tool.verdict",),
        None,
    ),
    Role.REJECTED: (
        "assay.rejected",
        "Refused input: original bytes, key and headers, and error headers.",
        (),
        "assay.rejected.headers",
    ),
    Role.DEAD_LETTERS: (
        "assay.alert.dead",
        "Dead letters: alerts refused for good: original bytes, key and headers, and error headers.",
        (),
        "assay.rejected.headers",
    ),
    Role.CHECKPOINTS: (
        "assay.evidence.checkpoint",
        "Checkpoints: signed statements about the evidence. No key; partition number: the evidence's.",
        ("assay.evidence.checkpoint",),
        None,
    ),
}
_READ = (Role.SNAPSHOTS, Role.CONTROL, Role.CALLS)


def asyncapi() -> dict[str, Any]:
    """Return the AsyncAPI 3.0 document: every topic without its prefix, and what stands in it."""
    channels: dict[str, Any] = {}
    messages: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for role, (address, description, names, headers) in _CHANNELS.items():
        of_channel: dict[str, Any] = {}
        for name in names or (address,):
            messages[name] = _message(name, has_payload=bool(names), headers=headers, is_event=role in _READ)
            of_channel[name] = {"$ref": f"#/components/messages/{name}"}
        channels[role.value] = {"address": address, "description": description, "messages": of_channel}
        operations[f"{'read' if role in _READ else 'write'}_{role.value}"] = {
            "action": "receive" if role in _READ else "send",
            "channel": {"$ref": f"#/channels/{role.value}"},
        }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "assay-stream",
            "version": __version__,
            "description": "What assay-stream reads from Kafka and what it writes. A deployment may put a "
            "prefix before every address. CloudEvents are written in structured mode; both modes are read.",
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages},
    }


def _message(name: str, *, has_payload: bool, headers: str | None, is_event: bool) -> dict[str, Any]:
    message: dict[str, Any] = {"name": name}
    if is_event or name in (EVIDENCE_TYPE, CHANGE_TYPE):
        message["contentType"] = "application/cloudevents+json"
    if headers is not None:
        message["headers"] = _reference(headers)
    if has_payload:
        message["payload"] = _reference(name)
    else:
        message["contentType"] = "application/octet-stream"
    return message


def _reference(name: str) -> dict[str, Any]:
    return {"schemaFormat": "application/schema+json;version=draft-2020-12", "schema": {"$ref": f"./{name}{SUFFIX}"}}
