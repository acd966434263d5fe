"""Everything that the snapshot and control logs say, kept whole, for checks of old evidence.

A live registry bounds its memory by folding old observations away (``bindings.timeline``). Here nothing is folded
unless asked for, so that a call of last year finds what was in force then. Memory grows with the observations and
decisions in the logs, never with the calls.
"""

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace

from assay_stream.bindings.state import Bindings
from assay_stream.files.archive_manifest import PartitionPlace
from assay_stream.limits.core import DEFAULT_LIMITS, Limits
from assay_stream.model.envelope import Producer
from assay_stream.model.record import Origin, Output, Record, Role
from assay_stream.registry.processor import Registry, process

_NOBODY = Producer(version="0")
_BINDING_TOPIC = "history"
_APPLIED = (Role.SNAPSHOTS, Role.CONTROL)


def unbounded() -> Limits:
    """Return limits under which a registry accepts the same input and compacts nothing."""
    return replace(
        DEFAULT_LIMITS,
        timeline_entries_max=sys.maxsize,
        rejections_max=sys.maxsize,
        unlisted_observers_max=sys.maxsize,
        discoveries_max=sys.maxsize,
        servers_max=sys.maxsize,
    )


class History:
    """The view of a join that knows both logs up to here: one registry per partition, as in a worker.

    Args:
        limits: bounds on what is accepted and kept; ``unbounded()`` by default, which keeps everything.
        snapshot_partitions: partition count of the snapshot topic, ``None`` if unknown.
    """

    def __init__(self, *, limits: Limits | None = None, snapshot_partitions: int | None = None) -> None:
        self.snapshot_partitions = snapshot_partitions
        self.view = Bindings(home_partitions=snapshot_partitions)
        self.ranges: dict[PartitionPlace, tuple[int, int]] = {}
        """The first and the last offset seen of each partition."""
        self._limits = unbounded() if limits is None else limits
        self._registries: dict[int, Registry] = {}

    def take(self, record: Record) -> list[Output]:
        """Apply one snapshot or control record, in the order of offsets of its partition; return what a registry
        writes for it."""
        self.note(record.origin)
        number = record.origin.partition
        registry = self._registries.get(number)
        if registry is None:
            registry = self._registries[number] = Registry(producer=_NOBODY, limits=self._limits)
        outputs = process(registry, record)
        for output in outputs:
            if output.role is Role.BINDINGS:
                place = Origin(topic=_BINDING_TOPIC, partition=output.partition or 0, offset=0)
                self.view.take(Record(role=Role.BINDINGS, origin=place, key=output.key, value=output.value))
        return outputs

    def note(self, origin: Origin) -> None:
        """Record that an offset exists, whatever its content."""
        topic, number, offset = origin
        first, last = self.ranges.get((topic, number), (offset, offset))
        if not first <= offset < last:
            self.ranges[topic, number] = (min(first, offset), max(last, offset))


def history_of(read: Callable[[], Iterable[Record]], *, snapshot_partitions: int | None = None) -> History:
    """Return the history in some records; of calls only their places are noted.

    Args:
        read: gives the records afresh each time; called again where a partition is out of order.
        snapshot_partitions: partition count of the snapshot topic, ``None`` if unknown.
    """
    history = History(snapshot_partitions=snapshot_partitions)
    last: dict[PartitionPlace, int] = {}
    for record in read():
        if record.role not in _APPLIED:
            history.note(record.origin)
            continue
        place, offset = record.origin[:2], record.origin.offset
        before = last.get(place, -1)
        if offset < before:
            break
        if offset > before:
            history.take(record)
        last[place] = offset
    else:
        return history
    history = History(snapshot_partitions=snapshot_partitions)
    applied: list[Record] = []
    for record in read():
        if record.role in _APPLIED:
            applied.append(record)
        else:
            history.note(record.origin)
    for record in in_log_order(applied):
        history.take(record)
    return history


def in_log_order(records: Iterable[Record]) -> list[Record]:
    """Return records of any partitions, without duplicates, each partition in offset order.

    Partitions are merged by the timestamps of their logs, as far as these rise within each of them.
    """
    by_place: dict[PartitionPlace, dict[int, Record]] = {}
    for record in records:
        topic, number, offset = record.origin
        by_place.setdefault((topic, number), {})[offset] = record
    keyed: list[tuple[int, str, int, int]] = []
    for (topic, number), partition in by_place.items():
        latest_ms = 0
        for offset in sorted(partition):
            latest_ms = max(latest_ms, partition[offset].timestamp_ms)
            keyed.append((latest_ms, topic, number, offset))
    return [by_place[topic, number][offset] for _, topic, number, offset in sorted(keyed)]
