"""What the stages write beside evidence and alerts: facts, findings and verdicts, which no command prints.

This is the one module here that calls the engine itself; whoever changes the engine's interface adapts it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from assay_stream import engine
from assay_stream.engine import EngineState
from assay_stream.model.envelope import Producer
from assay_stream.model.record import Origin, Output, Record, Role
from tests.golden.outputs import Outputs

_LISTED = (Role.BINDINGS, Role.FINDINGS, Role.VERDICTS, Role.EVIDENCE, Role.ALERTS, Role.CHANGES)


def staged(archive: Path, partitions: int) -> Outputs:
    """What a registry for each partition, a join and the alerts write, record by record in the archive's order.

    Args:
        archive: record lines.
        partitions: of the snapshot topic.
    """
    producer = Producer(version="golden")
    registries = [EngineState(producer=producer, snapshot_partitions=partitions) for _ in range(partitions)]
    join, alerts = (EngineState(producer=producer, snapshot_partitions=partitions) for _ in range(2))
    lines: dict[Role, list[bytes]] = {role: [] for role in _LISTED}
    count = 0

    def keep(output: Output) -> None:
        if output.role in lines:
            lines[output.role].append(_line(output))

    for record in records_of(archive.read_bytes()):
        state = join if record.role is Role.CALLS else registries[record.origin.partition]
        for output in engine.process(state, record):
            keep(output)
            count += 1
            if output.role is Role.BINDINGS:
                engine.process(join, _read_back(output, count, partition=output.partition or 0))
            elif output.role is Role.FINDINGS:
                for told in engine.process(alerts, _read_back(output, count, partition=0)):
                    keep(told)
    return {f"stages/{role.name.lower()}.ndjson": b"".join(written) for role, written in lines.items()}


def records_of(lines: bytes) -> Iterator[Record]:
    """The records of record lines."""
    for content in map(orjson.loads, lines.splitlines()):
        yield Record(
            role=Role(content["role"]),
            origin=Origin(**content["origin"]),
            key=_bytes(content, "key"),
            value=_bytes(content, "value"),
            headers=tuple((name, value.encode()) for name, value in content["headers"]),
            timestamp_ms=content["timestamp_ms"],
            set_aside=content.get("set_aside", False),
        )


def _bytes(content: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in content:
        return base64.b64decode(content[f"{name}_base64"])
    return None if content[name] is None else content[name].encode()


def _read_back(output: Output, offset: int, *, partition: int) -> Record:
    return Record(
        role=output.role,
        origin=Origin(topic="golden", partition=partition, offset=offset),
        key=output.key,
        value=output.value,
        headers=output.headers,
        timestamp_ms=output.timestamp_ms,
    )


def _line(output: Output) -> bytes:
    """Partition, time, key, headers and value; a value that is JSON as it stands, its bytes following from it."""
    parts = (
        orjson.dumps(output.partition),
        orjson.dumps(output.timestamp_ms),
        orjson.dumps(None if output.key is None else output.key.decode()),
        orjson.dumps([[name, value.decode()] for name, value in output.headers]),
        b"null" if output.value is None else output.value,
    )
    return b"[" + b",".join(parts) + b"]\n"
