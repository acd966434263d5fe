"""Evidence in files held against archives of the logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from assay_stream.core.record import Record, Role
from assay_stream.forensics.evidence_record import Recorded
from assay_stream.forensics.evidence_selection import EvidenceSelection
from assay_stream.forensics.pairing import CALLS, Pairing, paired
from assay_stream.forensics.share import WHOLE, Share
from assay_stream.forensics.verification import Judgement, Status, Verifier

Read = Callable[[], Iterable[Record]]


def judgements(
    verifier: Verifier,
    evidence: Iterable[Recorded],
    read: Read,
    *,
    selection: EvidenceSelection = EvidenceSelection(),  # noqa: B008 - frozen
    share: Share = WHOLE,
    pairing: Pairing[Record] | None = None,
) -> Iterator[Judgement]:
    """Yield the judgement on each record that is asked for.

    Args:
        verifier: knows the snapshot and control records of the archives.
        evidence: the records.
        read: gives the records of the archives anew each time.
        selection: which evidence is asked for.
        share: the part of the calls that is asked for; the first part has the evidence that names none.
        pairing: keeps what waits.
    """
    waiting = Pairing(CALLS) if pairing is None else pairing
    nameless: list[Recorded] = []
    naming = _naming(evidence, selection, share, nameless)
    calls = (record for record in read() if record.role is Role.CALLS and share.has(record.origin))
    for given, call in paired(naming, calls, waiting):
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
    if verifier.servers_in_doubt():
        yield from verifier.settle(_of_servers(verifier, read))


def _naming(
    evidence: Iterable[Recorded], selection: EvidenceSelection, share: Share, nameless: list[Recorded]
) -> Iterator[Recorded]:
    wants_all = selection == EvidenceSelection()
    for given in evidence:
        call = given.call
        if not (share.is_first if call is None else share.has(call)):
            continue
        if not (wants_all or selection.wants(given)):
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

    def as_json(self) -> dict[str, Any]:
        """Return the counts: by status, by code, and by who says to have written the records."""
        return {
            "records": sum(self._statuses.values()),
            **self._statuses,
            "codes": dict(sorted(self._codes.items())),
            "producers": dict(sorted(self._producers.items())),
        }

    @property
    def exit_code(self) -> int:
        """1 where something is wrong, 3 where what something rests on is no longer there, else 0."""
        if self._statuses[Status.WRONG.value]:
            return 1
        return 3 if self._statuses[Status.GONE.value] else 0
