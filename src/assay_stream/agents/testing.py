"""For tests of agents: what they find in records, and records with only the fields that matter::

def test_three_deletes_at_night_are_found():
    calls = [evidence(at=7_200 + 60 * n, tool="delete_file") for n in range(3)]
    [found] = run(agent, calls)
    assert found.tool_name == "delete_file"
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import orjson

from assay_stream.agents.declaration import Agent, AgentSet, Severity, agent_set
from assay_stream.agents.processing import Runner
from assay_stream.alerts.life_cycle import counted
from assay_stream.drift.severity import Level
from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.model.alert import Activity, AlertStatus, alert_record
from assay_stream.model.finding import Finding, decode_finding
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin, Output, Role
from assay_stream.text.times import rfc3339

START = datetime(2026, 1, 1, tzinfo=UTC)
"""Time zero of ``at``."""
_STATUS = {Activity.CREATE: "new", Activity.UPDATE: "in_progress", Activity.CLOSE: "resolved"}


def run(
    agents: Agent | AgentSet, records: Iterable[Output | Finding], *, limits: Limits = DEFAULT_LIMITS
) -> list[Finding]:
    """Return the findings of agents in records, processed in the order given.

    Args:
        records: of ``evidence``, ``alert``, ``definition``, or a ``Finding`` of a stage.

    Raises:
        ConfigurationError: for an agent that raised or returned an invalid value.
    """
    together = agents if isinstance(agents, AgentSet) else agent_set([agents], digest="sha256:" + "0" * 64)
    outputs = [record.output() if isinstance(record, Finding) else record for record in records]
    written = Runner(together, limits=limits).take(outputs)
    return [decode_finding(output.value) for output in written if output.role is Role.FINDINGS]


def evidence(*, at: float = 0, offset: int | None = None, partition: int = 0, **data: Any) -> Output:
    """Return the evidence of a call.

    Args:
        at: event time in seconds after ``START``.
        offset: of the call; by default one that follows from the time.
        data: fields of the evidence that replace the defaults.
    """
    origin = Origin("mcp.tools.call", partition, _us(at) if offset is None else offset)
    fields = {
        "server_id": "server",
        "observer_id": "observer",
        "tool": "tool",
        "tool_call_id": f"call-{origin.offset}",
        "decision": "allow",
        "reason_code": "test",
        "pin": {"status": "unpinned"},
        "binding": {"scope": "none"},
        **data,
        "origin": origin.as_json(),
    }
    time = rfc3339(START + timedelta(seconds=at), "auto")
    value = {"type": "assay.tool.decision", "specversion": "1.0", "time": time, "subject": fields["tool"]}
    return Output(
        Role.EVIDENCE, str(fields["server_id"]).encode(), orjson.dumps(value | {"data": fields}), partition=partition
    )


def alert(
    *,
    at: float = 0,
    server_id: str = "server",
    tool_name: str | None = None,
    kind: Kind = Kind.TOOL_CHANGED,
    severity: Severity = "high",
    activity: Literal["create", "update", "close"] = "create",
    status: Literal["new", "in_progress", "suppressed", "resolved"] | None = None,
) -> Output:
    """Return an alert as the alert stage writes it; new by default."""
    time_us, act = time_us_at(at), Activity[activity.upper()]
    origin = Origin("mcp.tools.list", 0, _us(at))
    finding = Finding(kind=kind, server_id=server_id, tool_name=tool_name, time_us=time_us, origin=origin)
    return alert_record(
        counted(None, finding, int(Level.parse(severity))),
        activity=act,
        status=AlertStatus[(status or _STATUS[act]).upper()],
        time_us=time_us,
        suppressed_by=None,
        version="test",
    )


def definition(full_digest: str, content: dict[str, Any]) -> Output:
    """Return a definition as the registry writes it; evidence names it as ``binding={"full_digest": ...}``."""
    value = orjson.dumps({"full_digest": full_digest, "definition": content})
    return Output(Role.DEFINITIONS, full_digest.encode(), value)


def time_us_at(at: float) -> int:
    """Return event time, microseconds since the epoch, from seconds after ``START``."""
    return int(START.timestamp()) * 1_000_000 + _us(at)


def _us(at: float) -> int:
    return round(at * 1_000_000)
