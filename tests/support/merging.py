"""The order of a replay, for tests that look at nothing else, and what it is held against."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.cloudevents import event_time_us, read_event, read_whole_call
from assay_stream.model.observation import CallEvent, SnapshotEvent
from assay_stream.model.record import Record, Role
from assay_stream.replay.order import Merge, time_of_refused_ms
from tests.support.replaying import spooled

_ROLES = (Role.CONTROL, Role.SNAPSHOTS, Role.CALLS)

_Names = tuple[tuple[str, ...], ...]
"""What a list is known by, or a call asks for: its id from its own observer, and from any."""


def merge_by_event_time(records: Iterable[Record]) -> list[Record]:
    with spooled(records) as spool:
        return [placed.record for placed in Merge(spool, limits=DEFAULT_LIMITS, call_profile="assay").read({})]


def sort_in_memory(records: Iterable[Record]) -> list[tuple[int, Record]]:
    """Records in the order that ``assay_stream.replay.order`` states, each with the time at which it is applied."""
    partitions: dict[tuple[Role, str, int], dict[int, Record]] = {}
    for record in records:
        partitions.setdefault((record.role, *record.origin[:2]), {})[record.origin.offset] = record
    logs = {place: [_date(log[offset]) for offset in sorted(log)] for place, log in partitions.items()}
    applied_ms: dict[tuple[str, ...], int] = {}
    placed = [one for (role, *_), log in logs.items() if role is not Role.CALLS for one in _applied(log, applied_ms)]
    placed += [one for (role, *_), log in logs.items() if role is Role.CALLS for one in _joined(log, applied_ms)]
    return sorted(placed, key=lambda one: (one[0], _ROLES.index(one[1].role), one[1].origin))


class _Dated(NamedTuple):
    record: Record
    time_ms: int
    names: _Names = ()
    is_refused: bool = False


def _applied(log: list[_Dated], applied_ms: dict[tuple[str, ...], int]) -> Iterator[tuple[int, Record]]:
    """Yield when each record of a registry's partition is applied, and note it for the snapshots among them."""
    earliest_ms = log[-1].time_ms
    for one in reversed(log):
        earliest_ms = min(earliest_ms, one.time_ms)
        for name in one.names:
            applied_ms[name] = min(earliest_ms, applied_ms.get(name, earliest_ms))
        yield earliest_ms, one.record


def _joined(log: list[_Dated], applied_ms: dict[tuple[str, ...], int]) -> Iterator[tuple[int, Record]]:
    latest_ms = 0
    times_ms = []
    for one in log:
        if not one.is_refused:
            named_ms = next((applied_ms[name] for name in one.names if name in applied_ms), 0)
            latest_ms = max(latest_ms, one.time_ms, named_ms)
        times_ms.append(max(latest_ms, one.time_ms))
    for number, one in enumerate(log):
        yield min(times_ms[number:]), one.record


def _date(record: Record) -> _Dated:
    try:
        event = read_whole_call(record) if record.role is Role.CALLS else read_event(record)
    except InputError:
        return _Dated(record, time_of_refused_ms(record, DEFAULT_LIMITS), is_refused=True)
    time_ms = event_time_us(event) // 1_000
    if isinstance(event, CallEvent):
        server_id, observer_id = event.data["server_id"], event.data["observer_id"]
        snapshot_id = event.data.get("snapshot_id")
        return _Dated(record, time_ms, () if snapshot_id is None else _names(server_id, observer_id, snapshot_id))
    if record.timestamp_ms > 0:
        # One that the registry refuses takes effect at the log's time; one that it does not may be applied early.
        time_ms = min(time_ms, record.timestamp_ms)
    if isinstance(event, SnapshotEvent):
        return _Dated(record, time_ms, _names(event.data.server_id, event.data.observer_id, event.data.snapshot_id))
    return _Dated(record, time_ms)


def _names(server_id: str, observer_id: str, snapshot_id: str) -> _Names:
    return (server_id, observer_id, snapshot_id), (server_id, snapshot_id)
