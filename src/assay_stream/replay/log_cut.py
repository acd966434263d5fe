"""The log cut: the state of the logs that explains a record of evidence.

A join knows every snapshot and control record that stood in the logs when it read the call, and maybe more; not what
arrived later. Evidence does not say how far the logs went then. So the rule is one of existence:

    A record is *explained* if the logs, each cut off at some offset, give it byte for byte.

A log here is one partition of the snapshots or the control topic, as far as it is about the call's server. Of several
such cuts the one that leaves out the fewest records counts. What it leaves out was *late*; the first record left out
of each log changes the answer, or a cut with one record less left out would have been found.

Where no cut gives it, the deployment may have set one record aside unread, while the logs at hand do not say so. That
is searched for next, from the latest record back.

Whoever can write evidence can write what an earlier state of the logs would have given. That is why such a record is
always reported, with the records it was joined without.

A live registry bounds its memory by folding old observations away (``bindings.timeline``). Here nothing is folded
unless asked for, so that a call of last year finds what was in force then. Memory grows with the observations and
decisions in the logs, never with the calls.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import heappop, heappush
from itertools import chain
from typing import NamedTuple, TypeVar

from assay_stream.bindings.erasures import Erasures, acts_in
from assay_stream.bindings.state import Bindings
from assay_stream.canonical.decode import read_leniently
from assay_stream.canonical.digest import DEFAULT_REDACTION, Redaction
from assay_stream.files.archive import PartitionPlace
from assay_stream.join import Join, process as process_call
from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.model.cloudevents import Call
from assay_stream.model.evidence import Producer
from assay_stream.model.record import Origin, Output, Record, Role, murmur2_partition
from assay_stream.registry.processor import Registry, process as process_fact

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


class Registries:
    """One registry per partition, as in a worker: a misrouted server must look the same.

    Args:
        view: the join's bindings, which get each fact at once.
        partitions: partition count of the snapshot topic, ``None`` if unknown.
    """

    def __init__(self, view: Bindings, *, producer: Producer, limits: Limits, partitions: int | None = None) -> None:
        self._view = view
        self._new = partial(Registry, producer=producer, limits=limits, partitions=partitions)
        self._by_partition: dict[int, Registry] = {}

    def process(self, record: Record) -> list[Output]:
        """Apply one snapshot or control record; return what its registry writes, facts included."""
        registry = self._by_partition.get(record.origin.partition)
        if registry is None:
            registry = self._by_partition[record.origin.partition] = self._new()
        outputs = process_fact(registry, record)
        for output in outputs:
            if output.role is Role.BINDINGS:
                place = Origin(topic=_BINDING_TOPIC, partition=output.partition or 0, offset=0)
                self._view.take(Record(role=Role.BINDINGS, origin=place, key=output.key, value=output.value))
        return outputs


class History:
    """The view of a join that knows both logs up to here.

    Args:
        limits: bounds on what is accepted and kept; ``unbounded()`` by default, which keeps everything.
        snapshot_partitions: partition count of the snapshot topic, ``None`` if unknown.
    """

    def __init__(self, *, limits: Limits | None = None, snapshot_partitions: int | None = None) -> None:
        self.snapshot_partitions = snapshot_partitions
        self.view = Bindings(home_partitions=snapshot_partitions)
        self.erasures = Erasures()
        self.ranges: dict[PartitionPlace, tuple[int, int]] = {}
        """The first and the last offset seen of each partition."""
        self._registries = Registries(self.view, producer=_NOBODY, limits=unbounded() if limits is None else limits)

    def take(self, record: Record) -> list[Output]:
        """Apply one snapshot or control record, in the order of offsets of its partition; return what a registry
        writes for it."""
        self.note(record.origin)
        for act in acts_in([record]):
            self.erasures.take(act)
        return self._registries.process(record)

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


Doubt = TypeVar("Doubt")
Cut = tuple[int, ...]
"""How many records of each log were known."""

STEPS_MAX = 50_000
"""Records applied in one search, about half a minute. What is not found by then is reported as unexplained."""

LATE_SNAPSHOT = "late_snapshot"
"""Also for an announced change: a record of the snapshots topic that arrived late."""
PIN_CHANGED = "pin_changed"
POLICY_CHANGED = "policy_changed"
KEY_CHANGED = "key_changed"
RECORD_SET_ASIDE = "record_set_aside"


class Question(NamedTuple):
    """Evidence (canonical ``value``) that the whole logs do not reproduce, its call as record and event, and its
    writer.
    """

    call: Record
    event: Call
    value: bytes
    producer: Producer


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """How a record came to be.

    Args:
        found: whether a cut gives it.
        left_out: the first record left out of each log, in the order of topic and partition; empty where the whole
            logs give it once old history is folded as a worker folds it.
        causes: the kinds of these records, or ``record_set_aside``.
        limited: whether the search was given up, so that nothing can be said.
    """

    found: bool
    left_out: tuple[Origin, ...] = ()
    causes: tuple[str, ...] = ()
    limited: bool = False


def explain(
    records: Sequence[Record],
    questions: Sequence[Question],
    *,
    redaction: Redaction = DEFAULT_REDACTION,
    steps_max: int = STEPS_MAX,
) -> list[Explanation]:
    """Return the explanation of each question about one server."""

    def gives(view: Bindings, question: Question) -> bool:
        """Return True if a join with this view writes the evidence in question."""
        join = Join(producer=question.producer, bindings=view, redaction=redaction)
        return process_call(join, question.call, question.event)[0].value == question.value

    logs = _logs(records)
    best: dict[int, tuple[int, Cut]] = {}
    steps = 0
    for outer_left, outer in _rounds([len(log) for log in logs[:-1]]):
        open_ = [number for number in range(len(questions)) if _may_improve(best.get(number), outer_left)]
        if not open_ or steps > steps_max:
            break
        for cut, view in _round(logs, outer):
            left = sum(len(log) - end for log, end in zip(logs, cut, strict=True))
            for number in open_:
                if _may_improve(best.get(number), left) and gives(view, questions[number]):
                    best[number] = (left, cut)
        steps += sum(outer) + len(logs[-1]) if logs else 1
    answers = {number: _explanation(logs, cut) for number, (_, cut) in best.items()}
    # The latest record of each log first.
    for record in sorted(records, key=lambda record: (-record.timestamp_ms, -record.origin.offset, record.origin)):
        open_ = [number for number in range(len(questions)) if number not in answers]
        if not open_ or steps > steps_max:
            break
        history = History(limits=DEFAULT_LIMITS)
        for each in chain.from_iterable(logs):
            history.take(each._replace(set_aside=True) if each.origin == record.origin else each)
        steps += len(records)
        for number in open_:
            if gives(history.view, questions[number]):
                answers[number] = Explanation(found=True, left_out=(record.origin,), causes=(RECORD_SET_ASIDE,))
    return [
        answers.get(number, Explanation(found=False, limited=steps > steps_max)) for number in range(len(questions))
    ]


def explained(
    doubts: Iterable[tuple[Doubt, Question]],
    records: Iterable[Record],
    *,
    redaction: Redaction = DEFAULT_REDACTION,
    snapshot_partitions: int | None = None,
) -> Iterator[tuple[Doubt, Explanation]]:
    """Yield what is in doubt with the explanation of its question, server by server.

    Args:
        snapshot_partitions: partition count of the snapshot topic, ``None`` if unknown. What came in
            another one than its server's is left out, as a join does not see it.
    """
    by_server: dict[bytes, list[tuple[Doubt, Question]]] = {}
    for doubt, question in doubts:
        by_server.setdefault(question.event.server_id.encode(), []).append((doubt, question))
    logs: dict[bytes, list[Record]] = {key: [] for key in by_server}
    for record in records:
        key = record.key
        if key is None or key not in logs:
            continue
        if snapshot_partitions is None or record.origin.partition == murmur2_partition(key, snapshot_partitions):
            logs[key].append(record)
    for key, some in by_server.items():
        answers = explain(in_log_order(logs[key]), [question for _, question in some], redaction=redaction)
        for (doubt, _), answer in zip(some, answers, strict=True):
            yield doubt, answer


def _logs(records: Sequence[Record]) -> list[list[Record]]:
    """Return the partitions, the longest last: it is walked once per round, while the others are cut again."""
    by_place: dict[PartitionPlace, list[Record]] = defaultdict(list)
    for record in records:
        by_place[record.origin[:2]].append(record)
    return sorted(by_place.values(), key=lambda log: (len(log), log[0].origin))


def _may_improve(known: tuple[int, Cut] | None, left: int) -> bool:
    return known is None or left < known[0]


def _rounds(lengths: Sequence[int]) -> Iterator[tuple[int, Cut]]:
    """Yield cuts with the number of records each leaves out, fewest first."""
    whole = tuple(lengths)
    waiting = [(0, whole)]
    known = {whole}
    while waiting:
        left, cut = heappop(waiting)
        yield left, cut
        for index, end in enumerate(cut):
            shorter = (*cut[:index], end - 1, *cut[index + 1 :])
            if end > 0 and shorter not in known:
                known.add(shorter)
                heappush(waiting, (left + 1, shorter))


def _round(logs: Sequence[Sequence[Record]], outer: Cut) -> Iterator[tuple[Cut, Bindings]]:
    """Yield the view at each cut of the last log, with the others cut as given."""
    history = History(limits=DEFAULT_LIMITS)
    if not logs:
        yield (), history.view
        return
    for log, end in zip(logs, outer, strict=False):
        for record in log[:end]:
            history.take(record)
    yield (*outer, 0), history.view
    for end, record in enumerate(logs[-1], start=1):
        history.take(record)
        yield (*outer, end), history.view


def _explanation(logs: Sequence[Sequence[Record]], cut: Sequence[int]) -> Explanation:
    first = {log[end].origin: _cause(log[end]) for log, end in zip(logs, cut, strict=True) if end < len(log)}
    return Explanation(found=True, left_out=tuple(sorted(first)), causes=tuple(sorted(set(first.values()))))


def _cause(record: Record) -> str:
    if record.role is Role.SNAPSHOTS:
        return LATE_SNAPSHOT
    types = [(value or b"").decode("ascii", "replace") for name, value in record.headers if name == "ce_type"]
    content = None if types else read_leniently(record.value or b"")
    kind = types[0] if types else str(content.get("type")) if isinstance(content, dict) else ""
    if kind.startswith("assay.control.pin."):
        return PIN_CHANGED
    return POLICY_CHANGED if kind.startswith("assay.control.policy.") else KEY_CHANGED
