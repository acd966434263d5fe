"""The replay as it was, all in memory: what the streaming one is held against. Its order:

Order, stated:

1. Records of one partition are in the order of their offsets: the order of the registry and of the evidence is the
   log's. One that was given twice counts once.
2. A snapshot or control record is applied before every call whose event time is not earlier than its own.
3. A call that names a snapshot is joined after it, whatever the clocks said; where the name was used again, after
   the first one, as a live join does.
4. A call that is refused has no say in when others are joined: its time may be what is wrong with it.
5. Ties: control before snapshots before calls, then topic, partition and offset.

Time passes with the event times of what is replayed: once they have come a minute further, and at the last record,
what is due by then is written, as a worker's own ticks would have it written. Nothing is written for the time
after the last record: whether an alert would have been closed or repeated then, the records do not say.

What a live worker did not know in time a replay may know: that is what a comparison calls a late snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from assay_stream import engine
from assay_stream.bindings.state import Bindings
from assay_stream.canonical.lenient import read_leniently
from assay_stream.canonical.redaction import DEFAULT_REDACTION, Redaction
from assay_stream.engine import EngineState
from assay_stream.errors import InputError
from assay_stream.limits.core import DEFAULT_LIMITS, Limits
from assay_stream.model.cloudevents import event_time_us, is_binary, read_event, read_whole_call
from assay_stream.model.envelope import Producer
from assay_stream.model.finding_topic import Tick
from assay_stream.model.observation import CallEvent, CallProfile, Envelope, SnapshotEvent
from assay_stream.model.record import Headers, Origin, Output, Record, Role
from assay_stream.text.times import time_ms_in

_RANK = {Role.CONTROL: 0, Role.SNAPSHOTS: 1, Role.CALLS: 2}
_FINDING_TOPIC = "replay"
_TICK_US = 60_000_000
"""How far event time must have come before another look at what is due."""

_Place = tuple[Role, str, int]
_Key = tuple[int, int, str, int, int, Record]


@dataclass(frozen=True, slots=True)
class _Dated:
    record: Record
    time_ms: int
    names: tuple[str, str] | None = None
    """For a snapshot: its server and snapshot id. For a call: the server and the snapshot it names."""
    refused: bool = False


def replay(
    records: Iterable[Record],
    *,
    producer: Producer,
    limits: Limits = DEFAULT_LIMITS,
    snapshot_partitions: int | None = None,
    redaction: Redaction = DEFAULT_REDACTION,
    call_profile: CallProfile = "assay",
) -> Iterator[Output]:
    """Yield everything the stages write for these records: evidence, alerts, definitions, rejected records.

    Args:
        records: records of the snapshots, control and calls topics, in any order.
        producer: who writes the evidence.
        limits: bounds on what is accepted and kept.
        snapshot_partitions: how many partitions the snapshot topic had, ``None`` where that is not known.
        redaction: what leaves arguments and results before they are hashed.
        call_profile: what every call must satisfy, whatever profile it names itself.
    """
    state = EngineState(producer=producer, limits=limits, redaction=redaction, call_profile=call_profile)
    state.join.bindings = Bindings(home_partitions=snapshot_partitions)
    registries: dict[int, EngineState] = {}
    findings = 0
    ticked_us = time_us = 0
    for time_us, record in _merged(records, limits=limits, call_profile=call_profile):
        if time_us >= ticked_us + _TICK_US:
            ticked_us = time_us
            while state.alerts.any_due_by(time_us):
                yield from engine.process(state, _a_tick(time_us, findings))
                findings += 1
        if record.role is Role.CALLS:
            outputs = engine.process(state, record)
        else:
            # One registry per partition, as in the worker: a misrouted server must look the same.
            registry = registries.setdefault(
                record.origin.partition,
                EngineState(producer=producer, limits=limits, snapshot_partitions=snapshot_partitions),
            )
            outputs = engine.process(registry, record)
        for output in outputs:
            if output.role is Role.BINDINGS:
                engine.process(state, _fed_back(output, 0))
            elif output.role is Role.FINDINGS:
                yield output
                yield from engine.process(state, _fed_back(output, findings))
                findings += 1
            else:
                yield output
    # Times may go back in the merged order: a partition keeps its own.
    while state.alerts.any_due_by(last_us := max(ticked_us, time_us)):
        yield from engine.process(state, _a_tick(last_us, findings))
        findings += 1


def merge_by_event_time(
    records: Iterable[Record], *, limits: Limits = DEFAULT_LIMITS, call_profile: CallProfile = "assay"
) -> list[Record]:
    """Return records in the order stated at the top of this module.

    Args:
        records: records of any partitions, in any order.
        limits: bounds on what is accepted.
        call_profile: what every call must satisfy.

    Raises:
        InputError: ``conflicting_records``: two different records claim one place in one log.
    """
    return [record for _, record in _merged(records, limits=limits, call_profile=call_profile)]


def _merged(records: Iterable[Record], *, limits: Limits, call_profile: CallProfile) -> list[tuple[int, Record]]:
    """Return records in their order, each with the event time at which it is applied, in microseconds."""
    partitions: dict[_Place, dict[int, Record]] = {}
    for record in records:
        partition = partitions.setdefault((record.role, record.origin.topic, record.origin.partition), {})
        if partition.setdefault(record.origin.offset, record) != record:
            raise InputError(
                "conflicting_records",
                f"two different records claim offset (or line) {record.origin.offset} of partition "
                f"{record.origin.partition} of {record.origin.topic}: give each file a name of its own",
            )
    dated = {
        place: [_date(partition[offset], limits, call_profile) for offset in sorted(partition)]
        for place, partition in partitions.items()
    }
    keyed: list[_Key] = []
    applied_ms: dict[tuple[str, str], int] = {}
    for (role, _, _), entries in dated.items():
        if role is not Role.CALLS:
            keyed.extend(_applied(entries, applied_ms))
    for (role, _, _), entries in dated.items():
        if role is Role.CALLS:
            keyed.extend(_joined(entries, applied_ms))
    keyed.sort(key=lambda key: key[:-1])
    return [(key[0] * 1_000, key[-1]) for key in keyed]


def _applied(entries: list[_Dated], applied_ms: dict[tuple[str, str], int]) -> Iterator[_Key]:
    """Yield when each record of a registry's partition is applied, and note it for the snapshots among them."""
    earliest_ms = entries[-1].time_ms
    for entry in reversed(entries):
        earliest_ms = min(earliest_ms, entry.time_ms)
        if entry.names is not None:
            applied_ms[entry.names] = min(earliest_ms, applied_ms.get(entry.names, earliest_ms))
        yield _key(entry, earliest_ms)


def _joined(entries: list[_Dated], applied_ms: dict[tuple[str, str], int]) -> Iterator[_Key]:
    latest_ms = 0
    at_ms = []
    for entry in entries:
        if not entry.refused:
            named_ms = applied_ms.get(entry.names, 0) if entry.names else 0
            latest_ms = max(latest_ms, entry.time_ms, named_ms)
        at_ms.append(max(latest_ms, entry.time_ms))
    following_ms = at_ms[-1]
    for entry, own_ms in zip(reversed(entries), reversed(at_ms), strict=True):
        following_ms = min(own_ms, following_ms)
        yield _key(entry, following_ms)


def _key(entry: _Dated, time_ms: int) -> _Key:
    origin = entry.record.origin
    return (time_ms, _RANK[entry.record.role], origin.topic, origin.partition, origin.offset, entry.record)


def _date(record: Record, limits: Limits, call_profile: CallProfile) -> _Dated:
    try:
        if record.role is Role.CALLS:
            event: Envelope | CallEvent = read_whole_call(record, limits=limits, call_profile=call_profile)
        else:
            event = read_event(record, limits=limits)
    except InputError:
        return _Dated(record=record, time_ms=_time_of_refused_ms(record, limits), refused=True)
    time_ms = event_time_us(event) // 1_000
    if isinstance(event, CallEvent):
        snapshot_id = event.data.get("snapshot_id")
        names = None if snapshot_id is None else (event.data["server_id"], snapshot_id)
        return _Dated(record=record, time_ms=time_ms, names=names)
    if record.timestamp_ms > 0:
        # One that the registry refuses takes effect at the log's time; one that it does not may be applied early.
        time_ms = min(time_ms, record.timestamp_ms)
    if isinstance(event, SnapshotEvent):
        return _Dated(record=record, time_ms=time_ms, names=(event.data.server_id, event.data.snapshot_id))
    return _Dated(record=record, time_ms=time_ms)


def _time_of_refused_ms(record: Record, limits: Limits) -> int:
    """Return the log's time, which is when a rejection takes effect; of a call without one, the time it claims."""
    if record.timestamp_ms > 0 or record.role is not Role.CALLS:
        return max(record.timestamp_ms, 0)
    claimed_ms = None
    if is_binary(record.headers) or not record.value:
        claimed_ms = _header_time_ms(record.headers)
    else:
        content = read_leniently(record.value)
        if isinstance(content, dict):
            claimed_ms = time_ms_in(content.get("time"))
        claimed_ms = _header_time_ms(record.headers) if claimed_ms is None else claimed_ms
    return claimed_ms if claimed_ms is not None and 0 <= claimed_ms <= limits.time_max_s * 1_000 else 0


def _header_time_ms(headers: Headers) -> int | None:
    times = (time_ms_in(value.decode("ascii", "replace")) for name, value in headers if name == "ce_time")
    return next((time_ms for time_ms in times if time_ms is not None), None)


def _a_tick(time_us: int, offset: int) -> Record:
    return Record(
        role=Role.FINDINGS,
        origin=Origin(topic=_FINDING_TOPIC, partition=0, offset=offset),
        key=b"",
        value=Tick(time_us=time_us).encode(),
    )


def _fed_back(output: Output, offset: int) -> Record:
    # Alerts know one partition here; facts are told apart by the registry that wrote them.
    partition = 0 if output.role is Role.FINDINGS else output.partition or 0
    return Record(
        role=output.role,
        origin=Origin(topic=_FINDING_TOPIC, partition=partition, offset=offset),
        key=output.key,
        value=output.value,
        headers=output.headers,
        timestamp_ms=output.timestamp_ms,
    )
