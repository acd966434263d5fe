"""The AsyncAPI 3.0 document: every topic, and what stands in it."""

from collections.abc import Iterable
from typing import Any

from assay_stream import __version__
from assay_stream.model.control import CONTROL_MODELS
from assay_stream.model.envelope import EVIDENCE_TYPE
from assay_stream.model.evidence import CHANGE_TYPE
from assay_stream.model.record import CALL_TYPE, LIST_CHANGED_TYPE, LOSS_TYPE, SNAPSHOT_TYPE, TOPIC_NAMES, TOPICS, Role
from assay_stream.model.schemas.documents import OUTPUTS, SUFFIX

_MESSAGES = {
    Role.SNAPSHOTS: (SNAPSHOT_TYPE, LIST_CHANGED_TYPE, LOSS_TYPE),
    Role.CONTROL: tuple(CONTROL_MODELS),
    Role.CALLS: (CALL_TYPE,),
    Role.REROUTED: (CALL_TYPE,),
}
"""What is read, by event type. What is written is named after its topic."""
_HEADERS = {
    Role.ALERTS: "assay.tool.drift.headers",
    Role.REJECTED: "assay.rejected.headers",
    Role.DEAD_LETTERS: "assay.rejected.headers",
}
_BYTES = frozenset({Role.REJECTED, Role.DEAD_LETTERS, Role.AGENT_INPUTS})
"""Topics of original bytes, whatever these are."""
_NO_VALUES = (".headers", ".key", ".payload")


def asyncapi() -> dict[str, Any]:
    """Return the AsyncAPI 3.0 document: every topic without its prefix, and what stands in it."""
    channels: dict[str, Any] = {}
    messages: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for role, topic in TOPICS.items():
        of_channel: dict[str, Any] = {}
        for name in _names(role):
            messages[name] = _message(role, name)
            of_channel[name] = {"$ref": f"#/components/messages/{name}"}
        channels[role.value] = {"address": topic.name, "description": topic.holds, "messages": of_channel}
        operations[f"{'read' if role in _MESSAGES else 'write'}_{role.value}"] = {
            "action": "receive" if role in _MESSAGES else "send",
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


def _names(role: Role) -> Iterable[str]:
    """Return the names of a topic's messages: a topic of JSON records without a schema is a mistake."""
    address = TOPIC_NAMES[role]
    if role in _BYTES:
        return (address,)
    found = _MESSAGES.get(role) or [
        name for name in OUTPUTS if f"{name}.".startswith(f"{address}.") and not name.endswith(_NO_VALUES)
    ]
    if not found:
        raise AssertionError(f"no schema is declared for {address}")
    return found


def _message(role: Role, name: str) -> dict[str, Any]:
    message: dict[str, Any] = {"name": name}
    if role in _MESSAGES or name in (EVIDENCE_TYPE, CHANGE_TYPE):
        message["contentType"] = "application/cloudevents+json"
    if role in _HEADERS:
        message["headers"] = _reference(_HEADERS[role])
    if role in _BYTES:
        message["contentType"] = "application/octet-stream"
    else:
        message["payload"] = _reference(name)
    return message


def _reference(name: str) -> dict[str, Any]:
    return {"schemaFormat": "application/schema+json;version=draft-2020-12", "schema": {"$ref": f"./{name}{SUFFIX}"}}
