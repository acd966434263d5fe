"""Evidence and calls paired by origin, in bounded memory, whatever order either comes in.

Both usually come in the order of their logs, so that one waits for the other only briefly. Once more waits than memory
may hold, the rest of both sides goes to a spool, and is paired from there in the order of origins.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import count
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

from assay_stream.files.archive_manifest import PartitionPlace
from assay_stream.files.spool import Spool, SpoolRow
from assay_stream.limits.files import HELD_BYTES_MAX
from assay_stream.model.record import Origin, Record, Role
from assay_stream.verify.evidence import Recorded

WAITING_MAX = 50_000
"""Values of one side that wait in memory: about 100 MB of evidence."""

Value = TypeVar("Value", bound=Recorded | Record)
Other = TypeVar("Other", bound=Recorded | Record)
_EVIDENCE_SIDE, _OTHER_SIDE = "evidence", "others"
_ORIGIN, _VALUE_AT = 3, 5


class Side(NamedTuple, Generic[Value]):
    """How the values of one side are named, and written to a spool and back."""

    origin: Callable[[Value], Origin | None]
    pack: Callable[[Value], SpoolRow]
    unpack: Callable[..., Value]


class Offsets:
    """A set of origins that costs little where offsets are consecutive."""

    def __init__(self) -> None:
        self._runs: dict[tuple[str, int], tuple[list[int], list[int]]] = {}

    def add(self, origin: Origin) -> None:
        starts, ends = self._runs.setdefault(origin[:2], ([], []))
        if ends and ends[-1] == origin.offset:
            # As in a log that is in order.
            ends[-1] += 1
            return
        index = bisect_right(starts, origin.offset) - 1
        if index >= 0 and origin.offset < ends[index]:
            return
        joins_left = index >= 0 and ends[index] == origin.offset
        joins_right = index + 1 < len(starts) and starts[index + 1] == origin.offset + 1
        if joins_left and joins_right:
            ends[index] = ends.pop(index + 1)
            starts.pop(index + 1)
        elif joins_left:
            ends[index] += 1
        elif joins_right:
            starts[index + 1] -= 1
        else:
            starts.insert(index + 1, origin.offset)
            ends.insert(index + 1, origin.offset + 1)

    def __contains__(self, origin: object) -> bool:
        if not isinstance(origin, Origin) or origin[:2] not in self._runs:
            return False
        starts, ends = self._runs[origin[:2]]
        index = bisect_right(starts, origin.offset) - 1
        return index >= 0 and origin.offset < ends[index]


class _Waiting(Generic[Value]):
    """Values in memory by origin, of one origin in the order in which they came."""

    def __init__(self) -> None:
        self.values: dict[Origin, list[Value]] = {}
        self.count = self.size_bytes = 0

    def put(self, origin: Origin, value: Value) -> None:
        self.values.setdefault(origin, []).append(value)
        self.count += 1
        self.size_bytes += len(value.value or b"")

    def pop(self, origin: Origin) -> Value | None:
        waiting = self.values.get(origin)
        if waiting is None:
            return None
        value = waiting.pop(0)
        self.count -= 1
        self.size_bytes -= len(value.value or b"")
        if not waiting:
            del self.values[origin]
        return value


class Pairing(Generic[Other]):
    """Gives each record of evidence what stands for the call it names: the call, or other evidence of it.

    Args:
        places: partitions whose calls can be paired; ``None`` for all.
    """

    def __init__(
        self, others: Side[Other], *, waiting_max: int = WAITING_MAX, places: Collection[PartitionPlace] | None = None
    ) -> None:
        self._places = places
        self._side: Side[Other] = others
        self._waiting_max = waiting_max
        self._evidence: _Waiting[Recorded] = _Waiting()
        self._others: _Waiting[Other] = _Waiting()
        self._paired = Offsets()
        self._spool: Spool[str] | None = None
        self._numbers = count()

    @property
    def wants_evidence(self) -> bool:
        """Whether to read evidence next, since fewer records of it wait."""
        return self._spool is not None or self._evidence.count <= self._others.count

    @property
    def wants_others(self) -> bool:
        return self._spool is not None or self._evidence.count > 0

    def evidence(self, given: Recorded) -> tuple[Recorded, Other] | None:
        """Take in a record of evidence that names a call; return it with its other where that is there already."""
        if given.call is None:
            raise AssertionError("evidence that names no call has no pair")
        other = self._others.pop(given.call)
        if other is not None:
            self._paired.add(given.call)
            return given, other
        self._wait(_EVIDENCE_SIDE, self._evidence, EVIDENCE, given.call, given)
        return None

    def other(self, value: Other, *, keep: bool = True) -> tuple[Recorded, Other] | None:
        """Take in what stands for a call; return it with its evidence where that is there already.

        Args:
            keep: whether it waits where its evidence is not there.
        """
        origin = self._side.origin(value)
        if origin is None:
            return None
        given = self._evidence.pop(origin)
        if given is not None:
            self._paired.add(origin)
            return given, value
        if keep or self._spool is not None:
            self._wait(_OTHER_SIDE, self._others, self._side, origin, value)
        return None

    def takes(self, given: Recorded) -> bool:
        """Tell whether a record of evidence names a call that can be paired."""
        return given.call is not None and (self._places is None or given.call[:2] in self._places)

    def is_paired(self, call: Origin | None) -> bool:
        """Tell whether evidence of a call has had its other."""
        return call in self._paired

    def rest(self) -> Iterator[tuple[Recorded | None, Other | None]]:
        """Yield what waits: pairs that were on disk, evidence without its other, and others that no evidence named."""
        if self._spool is None:
            yield from ((given, None) for waiting in self._evidence.values.values() for given in waiting)
            others = (value for waiting in self._others.values.values() for value in waiting)
            yield from ((None, value) for value in others if self._side.origin(value) not in self._paired)
            return
        self._spool.finish()
        left, right = self._spool.rows(_EVIDENCE_SIDE), self._spool.rows(_OTHER_SIDE)
        evidence, other = next(left, None), next(right, None)
        while evidence is not None or other is not None:
            one = None if evidence is None else evidence[:_ORIGIN]
            two = None if other is None else other[:_ORIGIN]
            given = value = None
            if evidence is not None and (one == two or two is None or (one is not None and one < two)):
                given = EVIDENCE.unpack(*evidence[_ORIGIN + 1 :])
                evidence = next(left, None)
            if other is not None and (one == two or given is None):
                value = self._side.unpack(*other[_ORIGIN + 1 :])
                other = next(right, None)
            if given is not None and value is not None and given.call is not None:
                self._paired.add(given.call)
            if given is not None or (value is not None and self._side.origin(value) not in self._paired):
                yield given, value
        self._spool.close()

    def _wait(self, name: str, waiting: _Waiting[Value], side: Side[Value], origin: Origin, value: Value) -> None:
        if self._spool is not None:
            self._spool.put(name, (*origin, next(self._numbers), *side.pack(value)))
            return
        waiting.put(origin, value)
        if waiting.count > self._waiting_max or waiting.size_bytes > HELD_BYTES_MAX:
            self._spool = Spool(itemgetter(slice(_ORIGIN + 1)), value_at=_VALUE_AT)
            self._spill(_EVIDENCE_SIDE, self._evidence, EVIDENCE)
            self._spill(_OTHER_SIDE, self._others, self._side)

    def _spill(self, name: str, waiting: _Waiting[Value], side: Side[Value]) -> None:
        values, waiting.values = waiting.values, {}
        waiting.count = waiting.size_bytes = 0
        for origin, some in values.items():
            for value in some:
                self._wait(name, waiting, side, origin, value)


def paired(
    evidence: Iterable[Recorded], others: Iterable[Other], pairing: Pairing[Other], *, keep: bool = False
) -> Iterator[tuple[Recorded, Other | None]]:
    """Yield the pairs found while reading from the side of which less waits; ``Pairing.rest`` has what is left.

    Evidence that the pairing does not take comes at once, alone.
    """
    waiting_evidence, waiting_others = iter(evidence), iter(others)
    more_evidence = more_others = True
    while more_evidence or (more_others and (keep or pairing.wants_others)):
        pair: tuple[Recorded, Other | None] | None = None
        if more_evidence and (not more_others or pairing.wants_evidence):
            given = next(waiting_evidence, None)
            more_evidence = given is not None
            if given is not None:
                pair = pairing.evidence(given) if pairing.takes(given) else (given, None)
        else:
            value = next(waiting_others, None)
            more_others = value is not None
            if value is not None:
                pair = pairing.other(value, keep=keep or more_evidence)
        if pair is not None:
            yield pair


def _fields(record: Record | None) -> Any:
    return None if record is None else (record.role.value, tuple(record.origin), *record[2:])


def _record(role: str, origin: tuple[str, int, int], *fields: Any) -> Record:
    return Record(Role(role), Origin(*origin), *fields)


def _evidence(where: str, value: bytes, record: Any) -> Recorded:
    return Recorded(where, value, None if record is None else _record(*record))


CALLS: Side[Record] = Side(
    lambda record: record.origin,
    lambda record: ("", record.value, _fields(record)),
    lambda _, __, record: _record(*record),
)
"""Calls, as they stand in their topic."""

EVIDENCE: Side[Recorded] = Side(
    lambda evidence: evidence.call,
    lambda evidence: (evidence.where, evidence.value, _fields(evidence.record)),
    _evidence,
)
"""Other evidence of the same calls."""
