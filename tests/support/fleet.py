"""A made-up fleet: servers that list and change their tools, and calls of them. Same seed, same bytes."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from assay_stream.model.record import Role

START = datetime(2026, 3, 1, tzinfo=UTC)
Published = tuple[Role, bytes, bytes]


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """How large the fleet is.

    Args:
        servers: how many servers.
        observers: how many proxies watch each server.
        calls: how many calls are made in all.
        changes: how many times a server changes a definition, spread over the run.
        named_share: share of calls that name their snapshot.
        seed: of every choice.
    """

    servers: int = 5
    observers: int = 2
    calls: int = 200
    changes: int = 6
    named_share: float = 0.5
    seed: int = 1

    def history(self) -> Iterator[Published]:
        """Yield what proxies publish, in order of time: role, key, value."""
        choose = random.Random(self.seed)
        clock = START
        versions = [0] * self.servers
        latest: dict[tuple[int, int], str] = {}
        numbers = iter(range(10**9))

        def listing(server: int, observer: int) -> Published:
            number = next(numbers)
            latest[server, observer] = f"snapshot-{number}"
            return a_listing(server, observer, versions[server], number, clock)

        for server in range(self.servers):
            for observer in range(self.observers):
                yield listing(server, observer)
        change_at = {choose.randrange(1, max(2, self.calls)) for _ in range(self.changes)}
        for call in range(self.calls):
            clock += timedelta(milliseconds=choose.randrange(1, 500))
            if call in change_at:
                server = choose.randrange(self.servers)
                versions[server] += 1
                for observer in range(self.observers):
                    yield listing(server, observer)
                clock += timedelta(milliseconds=1)
            server, observer = choose.randrange(self.servers), choose.randrange(self.observers)
            snapshot_id = latest[server, observer] if choose.random() < self.named_share else None
            yield a_call_by(server, observer, call, clock, snapshot_id)


def server_name(number: int) -> str:
    return f"server-{number}"


def a_listing(server: int, observer: int, version: int, number: int, at: datetime) -> Published:
    """One snapshot of a server's three tools, in the given version."""
    tools = [
        {
            "name": f"tool_{index}",
            "description": f"Does thing {index}, version {version if index == 0 else 0}.",
            "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        }
        for index in range(3)
    ]
    data = {
        "server_id": server_name(server),
        "observer_id": f"observer-{observer}",
        "snapshot_id": f"snapshot-{number}",
        "server_scoped": True,
        "completeness": "complete",
        "tools": tools,
    }
    value = _event("mcp.tools.list.observed", f"list-{number}", at, data)
    return Role.SNAPSHOTS, server_name(server).encode(), value


def a_call_by(server: int, observer: int, number: int, at: datetime, snapshot_id: str | None) -> Published:
    """One call of a tool, about a kilobyte with what proxies send along."""
    data: dict[str, Any] = {
        "server_id": server_name(server),
        "observer_id": f"observer-{observer}",
        "tool_name": f"tool_{number % 3}",
        "tool_call_id": f"call-{number}",
        "trace_id": f"{number:032x}",
        "decision": "allow",
        "reason_code": "P_POLICY_ALLOW",
        "args_hash": f"sha256:{number:064x}",
        "result_hash": f"sha256:{number + 1:064x}",
        "policy_digest": f"sha256:{7:064x}",
        "ok": True,
        "timing": {"started_at": _time(at), "ended_at": _time(at), "duration_ms": number % 50},
        "actor": {"kind": "agent", "agent_id": f"agent-{number % 9}"},
        "side_effect": "READ",
        "delegation_depth": 1,
    }
    if snapshot_id is not None:
        data["snapshot_id"] = snapshot_id
    value = _event("mcp.tools.call.observed", f"call-{number}", at, data)
    return Role.CALLS, server_name(server).encode(), value


def _event(kind: str, number: str, at: datetime, data: dict[str, Any]) -> bytes:
    return orjson.dumps(
        {
            "specversion": "1.0",
            "type": kind,
            "source": "urn:assay-stream:observer:fleet",
            "id": number,
            "time": _time(at),
            "datacontenttype": "application/json",
            "data": data,
        }
    )


def _time(at: datetime) -> str:
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")
