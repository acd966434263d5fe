"""Builders of events and records for dialogues with the engine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from assay_stream.files.lines import record_line
from assay_stream.model.evidence import Producer
from assay_stream.model.record import TOPIC_NAMES, Headers, Origin, Output, Record, Role
from tests.support import engine
from tests.support.engine import EngineState
from tests.support.inventory import without_inventory
from tests.support.replaying import replay

SERVER = "server-a"
TEN_O_CLOCK_MS = 1_772_359_200_000
TOOL: dict[str, Any] = {
    "name": "read_file",
    "description": "Read a file",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
TYPES = {Role.SNAPSHOTS: "mcp.tools.list.observed", Role.CALLS: "mcp.tools.call.observed"}


LIST_CHANGED_TYPE = "mcp.tools.list_changed.observed"


def event_at(at: datetime, kind: str, event_id: str, data: Mapping[str, Any], **attributes: Any) -> bytes:
    """A structured CloudEvent of a moment."""
    return json.dumps(
        {
            "specversion": "1.0",
            "type": kind,
            "source": "urn:assay-stream:observer:test",
            "id": event_id,
            "time": at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "data": dict(data),
            **attributes,
        }
    ).encode()


def an_event(role: Role, number: int, second: float, data: Mapping[str, Any], **attributes: Any) -> bytes:
    """A structured CloudEvent, a number of seconds after ten o'clock."""
    return event_at(after_ten(second), TYPES[role], f"event-{number}", data, **attributes)


def after_ten(second: float) -> datetime:
    return datetime.fromtimestamp(TEN_O_CLOCK_MS / 1_000, UTC) + timedelta(seconds=second)


def snapshot_data(*tools: Any, **fields: Any) -> dict[str, Any]:
    return {
        "server_id": SERVER,
        "observer_id": "proxy-1",
        "snapshot_id": "snapshot-1",
        "server_scoped": False,
        "completeness": "complete",
        "tools": list(tools),
        **fields,
    }


def call_data(**fields: Any) -> dict[str, Any]:
    return {
        "server_id": SERVER,
        "observer_id": "proxy-1",
        "tool_name": "read_file",
        "tool_call_id": "call-1",
        "decision": "allow",
        "reason_code": "P_POLICY_ALLOW",
        **fields,
    }


def handshake_call_data(**fields: Any) -> dict[str, Any]:
    """The data of a call that has everything FR-EVT-007 asks for; a change to ``None`` counts as absent."""
    return call_data(
        **{
            "profile": "handshake",
            "tool_call_id": "22222222-2222-4222-8222-222222222222",
            "trace_id": "11111111-1111-4111-8111-111111111111",
            "tool_id": "mcp.fs.read_file",
            "tool_version": "1.0.0",
            "transport": "mcp",
            "side_effect": "READ",
            "idempotency": "IDEMPOTENT_WITH_KEY",
            "idempotency_key": "key-1",
            "actor": {"kind": "agent", "agent_id": None},
            "ok": True,
            "args_ref": "artifact://tool/args/1",
            "args_hash": "0" * 64,
            "result_ref": "artifact://tool/result/1",
            "timing": {"started_at": "2026-01-01T00:00:00Z", "ended_at": "2026-01-01T00:00:01Z", "duration_ms": 1000},
        }
        | fields
    )


def a_snapshot(*tools: Any, number: int = 0, second: float = 0, **fields: Any) -> bytes:
    """The bytes of a snapshot, observed a number of seconds after ten o'clock."""
    return an_event(Role.SNAPSHOTS, number, second, snapshot_data(*tools, **fields))


def an_announcement(*, number: int = 0, second: float = 0, **fields: Any) -> bytes:
    """The bytes of an announced change, observed a number of seconds after ten o'clock."""
    data = {"server_id": SERVER, "observer_id": "proxy-1", **fields}
    return an_event(Role.SNAPSHOTS, number, second, data, type=LIST_CHANGED_TYPE)


def a_call(*, number: int = 0, second: float = 0, **fields: Any) -> bytes:
    """The bytes of a call, made a number of seconds after ten o'clock."""
    return an_event(Role.CALLS, number, second, call_data(**fields))


def record_of(
    role: Role,
    value: bytes | None,
    *,
    key: bytes | None = SERVER.encode(),
    offset: int = 0,
    partition: int = 0,
    timestamp_ms: int = TEN_O_CLOCK_MS,
    headers: Headers = (),
) -> Record:
    """A record of any bytes in the topic of a role. Snapshots and control records need their server as key."""
    origin = Origin(topic=TOPIC_NAMES[role], partition=partition, offset=offset)
    return Record(role=role, origin=origin, key=key, value=value, headers=headers, timestamp_ms=timestamp_ms)


def read_live(state: EngineState, records: Iterable[Record]) -> list[Output]:
    """What the engine writes for records that come one by one; the facts among it are read back at once."""
    outputs = []
    for record in records:
        for output in engine.process(state, record):
            outputs.append(output)
            if output.role is Role.BINDINGS:
                engine.process(state, record_of(Role.BINDINGS, output.value, key=output.key))
    return outputs


class Story:
    """Records in the order in which proxies publish them; ``tell`` gives what the engine writes."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def raw(
        self,
        role: Role,
        value: bytes | None,
        *,
        key: bytes | None = SERVER.encode(),
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> Story:
        """A record of any bytes. Its log time is its number in seconds after ten o'clock."""
        number = len(self.records)
        moment_ms = 1_772_359_200_000 + number * 1_000 if timestamp_ms is None else timestamp_ms
        offset = sum(record.role is role for record in self.records)
        origin = Origin(topic=role.value, partition=0, offset=offset)
        self.records.append(
            Record(role=role, origin=origin, key=key, value=value, headers=headers, timestamp_ms=moment_ms)
        )
        return self

    def lists(self, *tools: Any, **fields: Any) -> Story:
        number = len(self.records)
        data = snapshot_data(*tools, **{"snapshot_id": f"snapshot-{number}", **fields})
        return self.raw(Role.SNAPSHOTS, an_event(Role.SNAPSHOTS, number, number, data))

    def calls(self, tool_name: str = "read_file", **fields: Any) -> Story:
        number = len(self.records)
        data = call_data(tool_name=tool_name, **{"tool_call_id": f"call-{number}", **fields})
        return self.raw(Role.CALLS, an_event(Role.CALLS, number, number, data))

    def write(self, path: Path) -> Path:
        """Write the records as an archive has them, and return the path."""
        path.write_bytes(b"".join(record_line(record) + b"\n" for record in self.records))
        return path

    def tell(self, *, inventory: bool = False) -> Outcome:
        return Outcome(replay(self.records, producer=Producer(version="0.1.0")), inventory=inventory)


class Outcome:
    """What was written, by role; with the inventory of servers and observers only where that is asked for."""

    def __init__(self, outputs: Iterable[Output], *, inventory: bool = False) -> None:
        self.outputs = list(outputs) if inventory else without_inventory(outputs)

    def of(self, role: Role) -> list[Output]:
        return [output for output in self.outputs if output.role is role]

    @property
    def evidence(self) -> list[dict[str, Any]]:
        return [json.loads(output.value or b"")["data"] for output in self.of(Role.EVIDENCE)]

    @property
    def findings(self) -> list[tuple[str, str | None]]:
        written = [output for output in self.of(Role.FINDINGS) if output.label.startswith("finding:")]
        found = [json.loads(output.value or b"") for output in written]
        return [(finding["kind"], finding.get("tool_name")) for finding in found]

    @property
    def refusals(self) -> list[str]:
        return [dict(output.headers)["error.code"].decode() for output in self.of(Role.REJECTED)]

    def all_bytes(self, *roles: Role) -> bytes:
        parts: list[bytes] = []
        for output in self.outputs:
            if output.role in roles:
                parts += [output.key or b"", output.value or b"", *(value for _, value in output.headers)]
        return b"\n".join(parts)
