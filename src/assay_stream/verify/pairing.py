"""Evidence and what stands for the calls it names, paired by origin in bounded memory, whatever order either comes in.

Both usually come in the order of their logs, so that one waits for the other only briefly. Once more waits than memory
may hold, the rest of both sides goes to a spool, and is paired from there in the order of origins.
"""

import pickle
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import count
from operator import itemgetter
from typing import Any, Generic, TypeVar

from assay_stream.files.archive_manifest import PartitionPlace
from assay_stream.files.spool import Spool
from assay_stream.limits.files import HELD_BYTES_MAX
from assay_stream.model.record import Origin, Record
from assay_stream.verify.evidence import Recorded

WAITING_MAX = 50_000
"""Values of one side that wait in memory: about 100 MB of evidence."""

Other = TypeVar("Other", bound=Recorded | Record)
_EVIDENCE, _OTHERS = 0, 1


class Offsets:
    """A set of origins that is compact for consecutive offsets."""

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


class _Waiting:
    """Values of one side held in memory by origin, in order of arrival."""

    def __init__(self) -> None:
        self.values: dict[Origin, list[Any]] = {}
        self.count = self.size_bytes = 0

    def put(self, origin: Origin, value: Any) -> None:
        self.values.setdefault(origin, []).append(value)
        self.count += 1
        self.size_bytes += len(value.value or b"")

    def pop(self, origin: Origin) -> Any:
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
    """Pairs each record of evidence with its call, or with other evidence of that call.

    Args:
        origin_of: returns the origin of the call for a value of the other side.
        places: partitions whose calls can be paired; ``None`` for all.
    """

    def __init__(
        self,
        origin_of: Callable[[Other], Origin | None],
        *,
        waiting_max: int = WAITING_MAX,
        places: Collection[PartitionPlace] | None = None,
    ) -> None:
        self._origin_of = origin_of
        self._places = places
        self._waiting_max = waiting_max
        self._waiting = (_Waiting(), _Waiting())
        self._paired = Offsets()
        self._spool: Spool[int] | None = None
        self._numbers = count()

    def takes(self, given: Recorded) -> bool:
        return given.call is not None and (self._places is None or given.call[:2] in self._places)

    def is_paired(self, call: Origin | None) -> bool:
        """Return True if evidence of a call has been paired."""
        return call in self._paired

    def pairs(
        self, evidence: Iterable[Recorded], others: Iterable[Other], *, keep: bool = False
    ) -> Iterator[tuple[Recorded | None, Other | None]]:
        """Yield pairs while reading from the side of which less waits, then evidence and others that found none.

        Evidence that the pairing does not take comes at once, alone; a second record of one call in the end.

        Args:
            keep: whether others that no evidence names are wanted, and so read to their end.
        """
        waiting, origin_of = self._waiting, self._origin_of
        more_evidence, more_others = iter(evidence), iter(others)
        has_evidence = has_others = True
        while has_evidence or (has_others and (keep or self._spool is not None or waiting[_EVIDENCE].count)):
            is_behind = self._spool is not None or waiting[_EVIDENCE].count <= waiting[_OTHERS].count
            if has_evidence and (is_behind or not has_others):
                given = next(more_evidence, None)
                if given is None:
                    has_evidence = False
                elif given.call is None or not self.takes(given):
                    yield given, None
                else:
                    value = self._other_of(_EVIDENCE, given.call, given)
                    if value is not None:
                        yield given, value
            else:
                value = next(more_others, None)
                origin = None if value is None else origin_of(value)
                if value is None:
                    has_others = False
                elif origin is not None:
                    given = self._other_of(_OTHERS, origin, value, keep=keep or has_evidence)
                    if given is not None:
                        yield given, value
        yield from self._alone() if self._spool is None else self._rest(self._spool)

    def _other_of(self, side: int, origin: Origin, value: Recorded | Other, *, keep: bool = True) -> Any:
        """Return the counterpart of a value, ``None`` if it has to wait for it."""
        other = self._waiting[1 - side].pop(origin)
        if other is not None:
            self._paired.add(origin)
        elif keep or self._spool is not None:
            self._wait(side, origin, value)
        return other

    def _wait(self, side: int, origin: Origin, value: Any) -> None:
        if self._spool is not None:
            self._spool.put(side, (*origin, next(self._numbers), pickle.dumps(value)))
            return
        waiting = self._waiting[side]
        waiting.put(origin, value)
        if waiting.count > self._waiting_max or waiting.size_bytes > HELD_BYTES_MAX:
            self._spool = Spool(itemgetter(slice(4)))
            for number, held in enumerate(self._waiting):
                values, held.values = held.values, {}
                held.count = held.size_bytes = 0
                for place, some in values.items():
                    for one in some:
                        self._wait(number, place, one)

    def _alone(self) -> Iterator[tuple[Recorded | None, Other | None]]:
        evidence, others = self._waiting
        yield from ((given, None) for some in evidence.values.values() for given in some)
        for origin, some in others.values.items():
            if origin not in self._paired:
                yield from ((None, value) for value in some)

    def _rest(self, spool: Spool[int]) -> Iterator[tuple[Recorded | None, Other | None]]:
        """Pair the spooled rest, in the order of origins."""
        spool.finish()
        left, right = spool.rows(_EVIDENCE), spool.rows(_OTHERS)
        one, two = next(left, None), next(right, None)
        while one is not None or two is not None:
            has_one = one is not None and (two is None or one[:3] <= two[:3])
            has_two = two is not None and (one is None or two[:3] <= one[:3])
            given = value = None
            if one is not None and has_one:
                origin = Origin(*one[:3])
                given, one = _read(one), next(left, None)
            if two is not None and has_two:
                origin = Origin(*two[:3])
                value, two = _read(two), next(right, None)
            if has_one and has_two:
                self._paired.add(origin)
            if has_one or origin not in self._paired:
                yield given, value
        spool.close()


def _read(row: tuple[Any, ...]) -> Any:
    return pickle.loads(row[-1])  # noqa: S301 - written by this process
