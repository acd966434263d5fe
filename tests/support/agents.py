"""Builders of what agents read, and agents in memory."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from assay_stream.agents import Agent, AgentSet, Runner, agent_set
from assay_stream.model.finding import Finding, decode_finding
from assay_stream.model.record import Output, Role

START = datetime(2026, 3, 1, 10, tzinfo=UTC)
DIGEST = "sha256:" + "d" * 64


def start_us(second: float = 0) -> int:
    """A number of seconds after the start, in microseconds since the epoch."""
    return int(START.timestamp()) * 1_000_000 + int(second * 1_000_000)


def evidence(offset: int, second: float, *, partition: int = 0, **data: Any) -> Output:
    fields = {
        "server_id": "mail",
        "observer_id": "alice",
        "tool": "send",
        "decision": "allow",
        "actor": {"kind": "agent", "agent_id": "a1"},
        "origin": {"topic": "mcp.tools.call", "partition": partition, "offset": offset},
        "binding": {"scope": "none"},
    } | data
    time = (START + timedelta(seconds=second)).isoformat().replace("+00:00", "Z")
    value = json.dumps({"type": "assay.tool.decision", "time": time, "subject": fields["tool"], "data": fields})
    return Output(Role.EVIDENCE, fields["server_id"].encode(), value.encode(), partition=partition)


def a_set(*agents: Agent) -> AgentSet:
    return agent_set(agents, digest=DIGEST)


def found(agents: AgentSet | Agent, outputs: Iterable[Output], **options: Any) -> list[Finding]:
    runner = Runner(agents if isinstance(agents, AgentSet) else a_set(agents), **options)
    return findings_in(runner.take(outputs))


def findings_in(outputs: Sequence[Output]) -> list[Finding]:
    return [decode_finding(output.value) for output in outputs if output.role is Role.FINDINGS]
