"""Lists of a server as the stream judges them: snapshots through the registry, what is found through the alerts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from assay_stream.model.evidence import Producer
from assay_stream.model.record import Origin, Record, Role
from bench.alert_quality.public import instructions_of
from tests.support import engine
from tests.support.engine import EngineState

_SERVER = "server"
_EVENT = {
    "specversion": "1.0",
    "type": "mcp.tools.list.observed",
    "source": "urn:bench:alert-quality",
    "id": "list",
    "time": "2026-01-01T00:00:00Z",
    "datacontenttype": "application/json",
}


def alerts_of_first_list(tools: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the alerts, in OCSF, that the first list of a server raises.

    Args:
        tools: the list.
    """
    yield from next(alerts_of_lists([tools]))


def alerts_of_lists(lists: Iterable[Sequence[Mapping[str, Any]]]) -> Iterator[list[Mapping[str, Any]]]:
    """Yield the alerts, in OCSF, that each of a server's successive lists raises to one observer, an hour apart."""
    state = EngineState(producer=Producer(version="bench"))
    findings = count()
    for number, tools in enumerate(lists):
        instructions = instructions_of(tools)
        data = {
            **({} if instructions is None else {"instructions": instructions}),
            "server_id": _SERVER,
            "observer_id": "observer",
            "snapshot_id": f"snapshot-{number}",
            "server_scoped": True,
            "completeness": "complete",
            "tools": list(tools),
        }
        dated = _EVENT | {"id": f"list-{number}", "time": f"2026-01-01T{number:02}:00:00Z", "data": data}
        value = json.dumps(dated, ensure_ascii=False).encode(errors="surrogatepass")
        outputs = engine.process(state, _record(Role.SNAPSHOTS, number, _SERVER.encode(), value))
        yield [
            json.loads(alert.value)
            for found in outputs
            if found.role is Role.FINDINGS
            for alert in engine.process(
                state, _record(Role.FINDINGS, next(findings), found.key, found.value, found.timestamp_ms)
            )
            if alert.value is not None
        ]


def _record(role: Role, offset: int, key: bytes | None, value: bytes | None, timestamp_ms: int = 0) -> Record:
    origin = Origin(topic=str(role), partition=0, offset=offset)
    return Record(role=role, origin=origin, key=key, value=value, timestamp_ms=timestamp_ms)
