"""Replay: recorded observations through the same engine, merged by event time.

Order, stated:

1. Records of one partition are never reordered: the registry's and the evidence's order are the log's.
2. A snapshot or control record is applied before every call whose event time is not earlier than its own.
3. A call that names a snapshot is joined after it, whatever the clocks said.
4. Ties: control before snapshots before calls, then topic, partition and offset.

What a live worker did not know in time a replay may know: that is what a comparison calls a late snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import orjson

from assay_stream.core import engine
from assay_stream.core.decision import Producer
from assay_stream.core.engine import EngineState
from assay_stream.core.limits import DEFAULT_LIMITS, Limits
from assay_stream.core.observation import CallProfile
from assay_stream.core.record import Origin, Output, Record, Role
from assay_stream.forensics.archive import event_timestamp_ms

_RANK = {Role.CONTROL: 0, Role.SNAPSHOTS: 1, Role.CALLS: 2}
_FINDING_TOPIC = "replay"


@dataclass(frozen=True, slots=True)
class _Dated:
    record: Record
    time_ms: int
    names: tuple[str, str] | None
    """For a snapshot: its server and snapshot id. For a call: the server and the snapshot it names."""


def replay(
    records: Iterable[Record],
    *,
    producer: Producer,
    limits: Limits = DEFAULT_LIMITS,
    snapshot_partitions: int | None = None,
    call_profile: CallProfile = "assay",
) -> Iterator[Output]:
    """Yield everything the stages write for these records: evidence, alerts, definitions, rejected records.

    Args:
        records: records of the snapshots, control and calls topics, each partition in its own order.
        producer: who writes the evidence.
        limits: bounds on what is accepted and kept.
        snapshot_partitions: how many partitions the snapshot topic had, ``None`` where that is not known.
        call_profile: what every call must satisfy, whatever profile it names itself.
    """
    state = EngineState(producer=producer, limits=limits, call_profile=call_profile)
    registries: dict[int, EngineState] = {}
    findings = 0
    for record in merge_by_event_time(records):
        if record.role is Role.CALLS:
            _, outputs = engine.step(state, record)
        else:
            # One registry per partition, as in the worker: a misrouted server must look the same.
            registry = registries.setdefault(
                record.origin.partition,
                EngineState(producer=producer, limits=limits, snapshot_partitions=snapshot_partitions),
            )
            _, outputs = engine.step(registry, record)
        for output in outputs:
            if output.role is Role.BINDINGS:
                engine.step(state, _fed_back(output, 0))
            elif output.role is Role.FINDINGS:
                yield output
                yield from engine.step(state, _fed_back(output, findings))[1]
                findings += 1
            else:
                yield output


def merge_by_event_time(records: Iterable[Record]) -> list[Record]:
    """Return records in the order stated at the top of this module.

    Args:
        records: each partition in its own order.
    """
    partitions: dict[tuple[Role, str, int], list[_Dated]] = {}
    for record in records:
        place = (record.role, record.origin.topic, record.origin.partition)
        partitions.setdefault(place, []).append(_date(record))
    keyed: list[tuple[int, int, str, int, int, Record]] = []
    applied_ms: dict[tuple[str, str], int] = {}
    for (role, _, _), dated in partitions.items():
        if role is Role.CALLS:
            continue
        earliest_ms = dated[-1].time_ms
        keys = []
        for entry in reversed(dated):
            earliest_ms = min(earliest_ms, entry.time_ms)
            keys.append(earliest_ms)
            if entry.names is not None:
                # Of a snapshot that stands in several places, a call that names it waits for the last.
                applied_ms[entry.names] = max(earliest_ms, applied_ms.get(entry.names, 0))
        keyed.extend(_key(entry, key_ms) for entry, key_ms in zip(reversed(dated), keys, strict=True))
    for (role, _, _), dated in partitions.items():
        if role is not Role.CALLS:
            continue
        latest_ms = 0
        for entry in dated:
            named_ms = applied_ms.get(entry.names, 0) if entry.names else 0
            latest_ms = max(latest_ms, entry.time_ms, named_ms)
            keyed.append(_key(entry, latest_ms))
    keyed.sort(key=lambda key: key[:-1])
    return [key[-1] for key in keyed]


def _key(entry: _Dated, time_ms: int) -> tuple[int, int, str, int, int, Record]:
    origin = entry.record.origin
    return (
        time_ms,
        _RANK[entry.record.role],
        origin.topic,
        origin.partition,
        origin.offset,
        entry.record,
    )


def _date(record: Record) -> _Dated:
    try:
        content = orjson.loads(record.value or b"")
    except ValueError:
        content = None
    event = content if isinstance(content, dict) else {}
    data = event.get("data", event)
    time_ms = event_timestamp_ms(event.get("time"))
    if time_ms is None:
        time_ms = _header_time_ms(record)
    if record.role is not Role.CALLS and record.timestamp_ms > 0:
        # One that is refused takes effect at the log's time; one that is not may be applied before its own.
        time_ms = min(time_ms, record.timestamp_ms)
    names = None
    if isinstance(data, dict) and "server_id" in data and "snapshot_id" in data:
        names = (str(data["server_id"]), str(data["snapshot_id"]))
    return _Dated(record=record, time_ms=time_ms, names=names)


def _header_time_ms(record: Record) -> int:
    for name, value in record.headers:
        if name == "ce_time":
            time_ms = event_timestamp_ms(value.decode("ascii", "replace"))
            if time_ms is not None:
                return time_ms
    return record.timestamp_ms


def _fed_back(output: Output, offset: int) -> Record:
    return Record(
        role=output.role,
        origin=Origin(topic=_FINDING_TOPIC, partition=output.partition or 0, offset=offset),
        key=output.key,
        value=output.value,
        headers=output.headers,
        timestamp_ms=output.timestamp_ms,
    )
