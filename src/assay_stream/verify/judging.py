"""A run of ``verify``: which calls must have evidence, each record judged, and what that adds up to.

A call without evidence is *missing* it, or *pending* where the join may not be there yet:

1. A call below an offset that the join has committed is due. So is one before another call of its partition that has
   evidence, since the join takes each partition in order; but not where evidence is out of that order, as that of
   re-routed calls is, and the committed offset is known.
2. Whoever says that the files are complete has every call due.
3. A call that the join refuses stands among the rejected records, and is never due.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from operator import attrgetter
from typing import Any

from assay_stream.files.archive_manifest import PartitionPlace
from assay_stream.limits.files import CALLS_TOGETHER_BYTES_MAX, CALLS_TOGETHER_MAX
from assay_stream.model.record import Origin, Record, Role
from assay_stream.verify.evidence import EvidenceSelection, Recorded
from assay_stream.verify.pairing import Offsets, Pairing
from assay_stream.verify.verification import Judgement, RecordStatus, Verifier

Read = Callable[[], Iterable[Record]]
origin_of: Callable[[Record], Origin] = attrgetter("origin")
"""Of a call, as ``Pairing`` asks for it."""


class Expect(StrEnum):
    """Which calls must have evidence."""

    JOINED = "joined"
    ALL = "all"
    NONE = "none"


class Coverage:
    """Tells which calls without evidence should have it.

    Args:
        expect: ``joined``: those of rule 1; ``all``: every one; ``none``: the evidence is an extract.
        joined: the first offset of each partition that the join has not committed, as far as known.
    """

    def __init__(self, expect: Expect = Expect.JOINED, joined: Mapping[PartitionPlace, int] | None = None) -> None:
        self.expect = expect
        self._joined: dict[PartitionPlace, int] = dict(joined or {})
        self._shown: dict[PartitionPlace, int] = {}
        self._out_of_order: set[PartitionPlace] = set()
        self._seen = Offsets()
        self.pending = 0
        """Calls without evidence that are not due."""

    @property
    def asks(self) -> bool:
        return self.expect is not Expect.NONE

    def note(self, call: Origin | None, *, selected: bool = True) -> None:
        """Note that there is evidence of a call.

        Args:
            selected: whether the evidence is selected; other evidence only shows how far the join has come.
        """
        if call is None or not self.asks:
            return
        place = call[:2]
        if call.offset >= self._shown.get(place, 0):
            self._shown[place] = call.offset + 1
        else:
            self._out_of_order.add(place)
        if selected:
            self._seen.add(call)

    def lacks(self, call: Origin) -> bool:
        """Tell whether a call must have evidence, and none was noted so far."""
        return self.asks and call not in self._seen

    def is_missing(self, call: Origin) -> bool:
        """Tell whether a call without evidence should have it; one that need not yet is counted."""
        place = call[:2]
        due = self._joined.get(place, 0)
        if place not in self._joined or place not in self._out_of_order:
            due = max(due, self._shown.get(place, 0))
        if self.expect is Expect.ALL or call.offset < due:
            return True
        self.pending += 1
        return False


def judgements(
    verifier: Verifier,
    evidence: Iterable[Recorded],
    read: Read,
    *,
    selection: EvidenceSelection = EvidenceSelection(),  # noqa: B008 - frozen
    pairing: Pairing[Record] | None = None,
    coverage: Coverage | None = None,
) -> Iterator[Judgement]:
    """Yield the judgement on each selected record, and on each call that should have one.

    Args:
        read: gives the records of the archives afresh each time.
        coverage: which calls must have evidence; ``None`` for none.
    """
    coverage = Coverage(Expect.NONE) if coverage is None else coverage
    selected = _selected(evidence, selection, coverage)
    calls = (record for record in read() if record.role is Role.CALLS)

    def applied(servers: set[str]) -> Iterator[Record]:
        keys = {name.encode() for name in servers}
        return (record for record in read() if record.role is not Role.CALLS and record.key in keys)

    yield from judged(verifier, selected, calls, applied, selection=selection, coverage=coverage, pairing=pairing)
    if verifier.servers_in_doubt():
        yield from verifier.settle(applied(verifier.servers_in_doubt()))


def judged(
    verifier: Verifier,
    evidence: Iterable[Recorded],
    calls: Iterable[Record],
    applied: Callable[[set[str]], Iterable[Record]],
    *,
    selection: EvidenceSelection,
    coverage: Coverage,
    pairing: Pairing[Record] | None = None,
    gone_before: Callable[[], int] = lambda: 0,
) -> Iterator[Judgement]:
    """Yield the judgement on each record of evidence, and on each call that should have one, but those in doubt.

    Args:
        evidence: the selected records; the coverage has noted each.
        pairing: holds what waits, and tells which evidence names one of the calls.
        gone_before: tells before which offset calls may have lost their evidence.
    """
    pairing = Pairing(origin_of) if pairing is None else pairing
    for pairs, given, call in _some_at_a_time(pairing.pairs(evidence, calls, keep=coverage.asks)):
        yield from verifier.check(pairs)
        judgement = None
        if given is not None:
            judgement = verifier.repeated(given) if pairing.is_paired(given.call) else verifier.without_call(given)
        elif call is not None and coverage.lacks(call.origin):
            expected = verifier.expected(call)
            if expected is not None and selection.wants(expected) and coverage.is_missing(call.origin):
                judgement = verifier.without_evidence(expected, gone=call.origin.offset < gone_before())
        if judgement is not None:
            yield judgement
        if verifier.must_settle:
            yield from verifier.settle(applied(verifier.servers_in_doubt()))


def _some_at_a_time(
    found: Iterable[tuple[Recorded | None, Record | None]],
) -> Iterator[tuple[list[tuple[Recorded, Record]], Recorded | None, Record | None]]:
    """Yield pairs in a row together, and with them what comes alone behind them, if that ends the row."""
    pairs: list[tuple[Recorded, Record]] = []
    size_bytes = 0
    for given, call in found:
        if given is None or call is None:
            yield pairs, given, call
        else:
            pairs.append((given, call))
            size_bytes += len(given.value) + len(call.value or b"")
            if len(pairs) < CALLS_TOGETHER_MAX and size_bytes < CALLS_TOGETHER_BYTES_MAX:
                continue
            yield pairs, None, None
        pairs, size_bytes = [], 0
    yield pairs, None, None


def _selected(evidence: Iterable[Recorded], selection: EvidenceSelection, coverage: Coverage) -> Iterator[Recorded]:
    wants_all = selection == EvidenceSelection()
    for given in evidence:
        is_wanted = wants_all or selection.wants(given)
        # What is not selected does not cover a call that is: it may have been altered to escape the selection.
        coverage.note(given.call, selected=is_wanted)
        if is_wanted:
            yield given


class Summary:
    """What a run of judgements adds up to."""

    def __init__(self) -> None:
        self._statuses: Counter[str] = Counter({status.value: 0 for status in RecordStatus})
        self._codes: Counter[str] = Counter()
        self._producers: Counter[str] = Counter()
        self.pending = 0
        """Calls whose evidence is not due yet."""

    def note(self, judgement: Judgement) -> None:
        self._statuses[judgement.status._value_] += 1
        if judgement.codes:
            self._codes.update(judgement.codes)

    def note_producers(self, written_by: Mapping[str, int]) -> None:
        self._producers.update(written_by)

    def as_json(self) -> dict[str, Any]:
        """Return the counts: by status, by code, of pending calls, and by claimed writer."""
        return {
            "records": sum(self._statuses.values()) - self._statuses[RecordStatus.MISSING.value],
            **self._statuses,
            "pending": self.pending,
            "codes": dict(sorted(self._codes.items())),
            "producers": dict(sorted(self._producers.items())),
        }

    @property
    def exit_code(self) -> int:
        """1 where something is wrong or missing, 3 where what something rests on is gone, else 0."""
        if self._statuses[RecordStatus.WRONG.value] or self._statuses[RecordStatus.MISSING.value]:
            return 1
        return 3 if self._statuses[RecordStatus.GONE.value] else 0
