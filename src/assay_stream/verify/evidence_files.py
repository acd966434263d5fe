"""Evidence in files held against archives of the logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from assay_stream.model.record import Record, Role
from assay_stream.replay.evidence_record import Recorded
from assay_stream.verify.coverage import Coverage, Expect
from assay_stream.verify.evidence_selection import EvidenceSelection
from assay_stream.verify.pairing import CALLS, Pairing, paired
from assay_stream.verify.share import WHOLE, Share
from assay_stream.verify.verification import Judgement, Status, Verifier

Read = Callable[[], Iterable[Record]]


def judgements(
    verifier: Verifier,
    evidence: Iterable[Recorded],
    read: Read,
    *,
    selection: EvidenceSelection = EvidenceSelection(),  # noqa: B008 - frozen
    share: Share = WHOLE,
    pairing: Pairing[Record] | None = None,
    coverage: Coverage | None = None,
) -> Iterator[Judgement]:
    """Yield the judgement on each record that is asked for, and on each call that should have one.

    Args:
        verifier: knows the snapshot and control records of the archives.
        evidence: the records.
        read: gives the records of the archives anew each time.
        selection: which evidence is asked for.
        share: the part of the calls that is asked for; the first part has the evidence that names none.
        pairing: keeps what waits.
        coverage: which calls must have evidence; ``None`` for none.
    """
    waiting = Pairing(CALLS) if pairing is None else pairing
    covers = Coverage(Expect.NONE) if coverage is None else coverage
    nameless: list[Recorded] = []
    naming = _naming(evidence, selection, share, nameless, covers)
    calls = (record for record in read() if record.role is Role.CALLS and share.has(record.origin))
    for given, call in paired(naming, calls, waiting, keep=covers.asks):
        judgement = verifier.check(given, call)
        if judgement is not None:
            yield judgement
        if nameless:
            yield from map(verifier.without_call, nameless)
            nameless.clear()
        if verifier.must_settle:
            yield from verifier.settle(_of_servers(verifier, read))
    yield from map(verifier.without_call, nameless)
    for given, is_repeated in waiting.evidence_left():
        yield verifier.repeated(given) if is_repeated else verifier.without_call(given)
    if covers.asks:
        yield from uncovered(verifier, waiting.others_left(), selection, covers)
    if verifier.servers_in_doubt():
        yield from verifier.settle(_of_servers(verifier, read))


def uncovered(
    verifier: Verifier,
    calls: Iterable[Record],
    selection: EvidenceSelection,
    coverage: Coverage,
    *,
    gone_before: int = 0,
) -> Iterator[Judgement]:
    """Yield the judgement on each call that should have evidence and has none; the others are counted as pending.

    Args:
        verifier: tells which calls get evidence.
        calls: those of which no evidence that is asked for was found.
        selection: which evidence is asked for.
        coverage: which calls must have evidence; all evidence was noted.
        gone_before: evidence of calls before this offset may have been deleted.
    """
    for call in calls:
        if not coverage.lacks(call.origin):
            continue
        expected = verifier.expected(call)
        if expected is not None and selection.wants(expected) and coverage.is_missing(call.origin):
            yield verifier.without_evidence(expected, gone=call.origin.offset < gone_before)


def _naming(
    evidence: Iterable[Recorded],
    selection: EvidenceSelection,
    share: Share,
    nameless: list[Recorded],
    coverage: Coverage,
) -> Iterator[Recorded]:
    wants_all = selection == EvidenceSelection()
    for given in evidence:
        call = given.call
        is_wanted = wants_all or selection.wants(given)
        # Before it is asked whose share it is: how far the join has come shows in all of it. What is not asked for
        # stands for no call that is: it may be the evidence of that call, altered to be passed over.
        coverage.note(call, shared=is_wanted and call is not None and share.has(call))
        if not is_wanted or not (share.is_first if call is None else share.has(call)):
            continue
        if call is None:
            nameless.append(given)
        else:
            yield given


def _of_servers(verifier: Verifier, read: Read) -> Iterable[Record]:
    # The servers are asked for now: settling forgets them.
    keys = {name.encode() for name in verifier.servers_in_doubt()}
    return (record for record in read() if record.role is not Role.CALLS and record.key in keys)


class Summary:
    """What a run of judgements adds up to."""

    def __init__(self) -> None:
        self._statuses: Counter[str] = Counter({status.value: 0 for status in Status})
        self._codes: Counter[str] = Counter()
        self._producers: Counter[str] = Counter()
        self._pending = 0

    def note_pending(self, count: int) -> None:
        """Count calls whose evidence is not due yet.

        Args:
            count: how many.
        """
        self._pending += count

    def note(self, judgement: Judgement) -> None:
        """Count a judgement.

        Args:
            judgement: one more.
        """
        self._statuses[judgement.status._value_] += 1
        if judgement.codes:
            self._codes.update(judgement.codes)

    def note_producers(self, written_by: Mapping[str, int]) -> None:
        """Count who says to have written the records.

        Args:
            written_by: of a verifier that has ended.
        """
        self._producers.update(written_by)

    def add(self, other: Summary) -> None:
        """Count what another share of the same evidence came to.

        Args:
            other: its summary.
        """
        self._statuses.update(other._statuses)
        self._codes.update(other._codes)
        self._producers.update(other._producers)
        self._pending += other._pending

    def as_json(self) -> dict[str, Any]:
        """Return the counts: by status, by code, of pending calls, and by who says to have written the records."""
        return {
            "records": sum(self._statuses.values()) - self._statuses[Status.MISSING.value],
            **self._statuses,
            "pending": self._pending,
            "codes": dict(sorted(self._codes.items())),
            "producers": dict(sorted(self._producers.items())),
        }

    @property
    def exit_code(self) -> int:
        """1 where something is wrong or missing, 3 where what something rests on is no longer there, else 0."""
        if self._statuses[Status.WRONG.value] or self._statuses[Status.MISSING.value]:
            return 1
        return 3 if self._statuses[Status.GONE.value] else 0
