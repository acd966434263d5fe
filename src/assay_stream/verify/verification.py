"""Evidence checked against the logs it names. For each record:

1. The call stands where the record says, and is one that gives evidence.
2. The join is done again with everything the logs hold now. Equal bytes: the record holds. They cover the content
   hash, both clusters, the binding rule, the pin, the policy and the fingerprint, which is computed again from the
   definition in the snapshot.
3. Otherwise the record is decoded strictly, its content hash is computed, and each member that differs gives a code.
4. Where only what rests on snapshots and control records differs, the logs are cut back (``replay.log_cut``): a record
   that an earlier state of them gives holds, and is reported as joined without what came late.
5. Where what it rests on is deleted, nothing more can be said.

A call without evidence is *missing* it, or *pending* where the join may not be there yet:

6. A call below an offset that the join has committed is due. So is one before another call of its partition that has
   evidence, since the join takes each partition in order; but not where evidence is out of that order, as that of
   re-routed calls is, and the committed offset is known.
7. Whoever says that the files are complete has every call due.
8. A call that the join refuses stands among the rejected records, and is never due.

What was erased on record is *erased*, as far as its erasure accounts for it (``bindings.erasures``):

9. A record of evidence with a stub in its place; one whose call has a stub in its place; a call in the scope of an
   erasure that has no evidence. A stub that no erasure accounts for is a missing record.

Which version of which software wrote a record is the producer's own word: the logs do not repeat it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import orjson

from assay_stream.bindings.erasures import Account, Erasures, ScopeAct, subject_of
from assay_stream.canonical.digest import DEFAULT_REDACTION, Redaction, canonicalize
from assay_stream.errors import InputError
from assay_stream.files.archive import PartitionPlace
from assay_stream.join import Join, process_calls
from assay_stream.limits import CALLS_TOGETHER_BYTES_MAX, CALLS_TOGETHER_MAX, HELD_BYTES_MAX
from assay_stream.model.cloudevents import read_call
from assay_stream.model.evidence import Producer
from assay_stream.model.observation import CallProfile
from assay_stream.model.record import Origin, Output, Record, Role, erased_by, made_of
from assay_stream.replay.log_cut import History, Question, explained
from assay_stream.verify.evidence import (
    EvidenceSelection,
    Offsets,
    Pairing,
    Producers,
    Recorded,
    codes_of,
    differing_paths,
    headers_equal,
    is_intact,
    origin_in,
    rests_on_logs,
    strict_content,
)

DOUBTS_MAX = 2_000
"""Records that wait for the search of step 4, with ``HELD_BYTES_MAX`` bytes of calls and evidence at most."""


class RecordStatus(StrEnum):
    HOLDS = "holds"
    LATE = "late"
    WRONG = "wrong"
    GONE = "gone"
    MISSING = "missing"
    ERASED = "erased"


_ERASED = RecordStatus.ERASED
_HOLDS = RecordStatus.HOLDS  # reading a member of an enum takes a call of its own


class Judgement(NamedTuple):
    """The result for one record of evidence.

    Args:
        status: ``holds``; ``late``: holds, without records that came late; ``wrong``; ``gone``: what it rests on is
            no longer there; ``missing``: there is no record, and should be; ``erased``: it, or its call, was erased
            on record.
        left_out: the first record of each log that it was joined without.
        erasure: id of the erasure that it names, or that covers it.
    """

    status: RecordStatus
    evidence: Recorded
    codes: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    missing: tuple[Origin, ...] = ()
    left_out: tuple[Origin, ...] = ()
    erasure: str | None = None

    def as_json(self) -> dict[str, Any]:
        evidence = self.evidence
        fields: dict[str, Any] = {
            "status": self.status.value,
            "codes": list(self.codes),
            "paths": list(self.paths),
            "where": evidence.where or None,
            "id": evidence.record_id,
            "call": None if evidence.call is None else evidence.call.as_json(),
            "server_id": evidence.text("server_id"),
            "tool": evidence.text("tool"),
            "tool_call_id": evidence.text("tool_call_id"),
            "missing": [origin.as_json() for origin in self.missing],
            "left_out": [origin.as_json() for origin in self.left_out],
            "erasure": self.erasure,
        }
        return {name: value for name, value in fields.items() if value not in (None, [])}


@dataclass(frozen=True, slots=True)
class _Doubt:
    evidence: Recorded
    question: Question
    codes: tuple[str, ...]
    paths: tuple[str, ...]


@dataclass(slots=True, eq=False)
class Verifier:
    """Judges each record of evidence by recomputing it from the logs.

    Args:
        starts: the first offset left of each partition of the inputs, where its log can tell: a record that names an
            earlier one rests on what retention deleted. ``None``: nothing is known of what is missing.
        producers: versions (``0.1.0`` or ``0.1.0@<git>``) that may have written the evidence; empty for any.
    """

    history: History
    _: KW_ONLY
    starts: Mapping[PartitionPlace, int] | None = None
    redaction: Redaction = DEFAULT_REDACTION
    call_profile: CallProfile = "assay"
    producers: Collection[str] = ()
    account: Account = field(init=False)
    written_by: Counter[str] = field(default_factory=Counter, init=False)
    """How many records each producer says it wrote."""
    _named: Producers = field(default_factory=Producers, init=False)
    _doubts: list[_Doubt] = field(default_factory=list, init=False)
    _doubts_bytes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.account = Account(lambda: self.history.erasures)

    @property
    def must_settle(self) -> bool:
        return len(self._doubts) >= DOUBTS_MAX or self._doubts_bytes >= HELD_BYTES_MAX

    def servers_in_doubt(self) -> set[str]:
        return {doubt.question.event.server_id for doubt in self._doubts}

    def check(self, pairs: Sequence[tuple[Recorded, Record]]) -> Iterator[Judgement]:
        """Yield the judgements on some records, each with the call it names, but those that ``settle`` will give.

        The extension reads and writes some calls at a time for less.
        """
        for producer, group in groupby(pairs, lambda pair: self._named.of(pair[0])):
            written = list(group)
            name = f"{producer.version}@{producer.git}"
            if producer.version or producer.git:  # what cannot be read names none
                self.written_by[name] += len(written)
            is_expected = not self.producers or name in self.producers or producer.version in self.producers
            for judgement in self._judged(producer, written, is_expected):
                if judgement is not None:
                    yield judgement

    def _judged(
        self, producer: Producer, pairs: Sequence[tuple[Recorded, Record]], is_expected: bool
    ) -> Iterator[Judgement | None]:
        join = Join(
            producer=producer, bindings=self.history.view, redaction=self.redaction, call_profile=self.call_profile
        )
        calls = [call for _, call in pairs]
        events = join.read_some(calls)
        found = process_calls(join, zip(calls, events, strict=True))
        for (evidence, call), event, outputs in zip(pairs, events, found, strict=True):
            expected = outputs[0]
            if isinstance(event, InputError) and self.history.erasures.accounts(erased_by(call), evidence.value):
                erased = Judgement(_ERASED, evidence, ("call_erased",), erasure=erased_by(call))
                yield self._unsound(evidence) or erased
            elif isinstance(event, InputError):
                yield self._wrong(evidence, "call_refused")
            elif not is_expected:
                yield self._wrong(evidence, "producer_differs", "$.assayproducerversion")
            elif evidence.record is not None and not headers_equal(evidence.record, expected):
                yield self._wrong(evidence, "record_differs")
            elif expected.value == evidence.value:
                yield made_of(Judgement, (_HOLDS, evidence, (), (), (), (), None))
            else:
                yield self._look_closer(evidence, Question(call, event, evidence.value, producer), expected)

    def without_call(self, evidence: Recorded) -> Judgement:
        """Judge a record whose call is not at its claimed position."""
        erasure = None if evidence.record is None else erased_by(evidence.record)
        if evidence.record is not None and erasure is not None:
            why = self.account.refuse(evidence.record)
            status = _ERASED if why is None else RecordStatus.MISSING
            return Judgement(status, evidence, (why or "evidence_erased",), erasure=erasure)
        if evidence.call is None:
            return self._wrong(evidence, "not_evidence")
        if (wrong := self._unsound(evidence)) is not None:
            return wrong
        if not self._is_gone(evidence.call):
            return self._wrong(evidence, "origin_missing", "$.data.origin")
        return Judgement(status=RecordStatus.GONE, evidence=evidence, codes=("call_gone",), missing=(evidence.call,))

    def expected(self, call: Record) -> Recorded | None:
        """Return the identity of the evidence that a call should have, ``None`` if the join refuses the call."""
        try:
            event = read_call(call, call_profile=self.call_profile)
        except InputError:
            return None
        data = {"server_id": event.server_id, "tool": event.tool_name, "origin": call.origin.as_json()}
        return Recorded("", canonicalize({"time": event.time, "data": data}))

    def without_evidence(self, call: Record, expected: Recorded, *, gone: bool = False) -> Judgement:
        """Judge a call whose ``expected`` evidence is missing."""
        if (act := self.account.excuse(subject_of(call.value, call.headers))) is not None:
            return Judgement(_ERASED, expected, ("evidence_erased",), erasure=act.scope_id)
        status, code = (RecordStatus.GONE, "evidence_gone") if gone else (RecordStatus.MISSING, "evidence_missing")
        return Judgement(status=status, evidence=expected, codes=(code,))

    def repeated(self, evidence: Recorded) -> Judgement:
        return self._wrong(evidence, "duplicate_record", "$.data.origin")

    def settle(self, records: Iterable[Record]) -> Iterator[Judgement]:
        """Judge the records in doubt, from the snapshot and control records of their servers."""
        doubts, self._doubts, self._doubts_bytes = self._doubts, [], 0
        pairs = [(doubt, doubt.question) for doubt in doubts]
        partitions = self.history.snapshot_partitions
        for doubt, answer in explained(pairs, records, redaction=self.redaction, snapshot_partitions=partitions):
            if answer.found:
                status = RecordStatus.LATE if answer.left_out else RecordStatus.HOLDS
                yield Judgement(status=status, evidence=doubt.evidence, left_out=answer.left_out)
                continue
            missing = self._missing(doubt.evidence)
            if missing:
                code = "snapshot_gone" if origin_in(doubt.evidence.binding, "origin") else "history_gone"
                yield Judgement(status=RecordStatus.GONE, evidence=doubt.evidence, codes=(code,), missing=missing)
                continue
            codes = (*doubt.codes, "search_limited") if answer.limited else doubt.codes
            yield Judgement(status=RecordStatus.WRONG, evidence=doubt.evidence, codes=codes, paths=doubt.paths)

    def _look_closer(self, evidence: Recorded, question: Question, expected: Output) -> Judgement | None:
        if (wrong := self._unsound(evidence)) is not None:
            return wrong
        content, given = strict_content(evidence.value), orjson.loads(expected.value or b"")
        value = canonicalize(content)
        if value == expected.value:
            return Judgement(status=RecordStatus.HOLDS, evidence=evidence)
        paths = differing_paths(content, given)
        codes = codes_of(paths)
        if not rests_on_logs(paths):
            return Judgement(status=RecordStatus.WRONG, evidence=evidence, codes=codes, paths=paths)
        if evidence.text("unbound_reason") == "definition_unavailable":
            # The hold limit of the worker ended first: no log says that, and none contradicts it.
            question = question._replace(call=question.call._replace(hold_expired=True))
        self._doubts.append(_Doubt(evidence, question._replace(value=value), codes, paths))
        self._doubts_bytes += len(value) + len(question.call.value or b"")
        return None

    def _unsound(self, evidence: Recorded) -> Judgement | None:
        try:
            if is_intact(strict_content(evidence.value)):
                return None
        except InputError:
            return self._wrong(evidence, "not_evidence")
        return self._wrong(evidence, "content_hash_mismatch", "$.assaycontenthash")

    def _wrong(self, evidence: Recorded, code: str, *paths: str) -> Judgement:
        return Judgement(status=RecordStatus.WRONG, evidence=evidence, codes=(code,), paths=paths)

    def _is_gone(self, origin: Origin) -> bool:
        return self.starts is None or origin.offset < self.starts.get(origin[:2], 0)

    def _missing(self, evidence: Recorded) -> tuple[Origin, ...]:
        """Return what a record rests on and is deleted: the snapshot it names, else where each log starts."""
        snapshot = origin_in(evidence.binding, "origin")
        if snapshot is not None:
            first, last = self.history.ranges.get(snapshot[:2], (0, -1))
            if self.starts is None:
                return () if first <= snapshot.offset <= last else (snapshot,)
            return (snapshot,) if self._is_gone(snapshot) else ()
        ranges = {place: first for place, (first, _) in self.history.ranges.items()}
        starts = ranges if self.starts is None else self.starts
        calls = None if evidence.call is None else evidence.call.topic
        return tuple(
            Origin(topic=topic, partition=number, offset=first - 1)
            for (topic, number), first in sorted(starts.items())
            if first > 0 and topic != calls
        )


def late_only(judgement: Judgement) -> Judgement:
    """Apply the strict rule, which accepts no record joined without late input: late becomes wrong."""
    if judgement.status is not RecordStatus.LATE:
        return judgement
    return judgement._replace(status=RecordStatus.WRONG, codes=("joined_without",))


Read = Callable[[], Iterable[Record]]
origin_of: Callable[[Record], Origin] = attrgetter("origin")
"""Of a call, as ``Pairing`` asks for it."""


class Expect(StrEnum):
    JOINED = "joined"
    ALL = "all"
    NONE = "none"


@dataclass(slots=True, eq=False)
class Coverage:
    """Decides which calls without evidence should have it.

    Args:
        expect: ``joined``: those of rule 1; ``all``: every one; ``none``: the evidence is an extract.
        joined: the first offset of each partition that the join has not committed, as far as known.
    """

    expect: Expect = Expect.JOINED
    joined: Mapping[PartitionPlace, int] = field(default_factory=dict)
    pending: int = field(default=0, init=False)
    """Calls without evidence that are not due."""
    _shown: dict[PartitionPlace, int] = field(default_factory=dict, init=False)
    _out_of_order: set[PartitionPlace] = field(default_factory=set, init=False)
    _seen: Offsets = field(default_factory=Offsets, init=False)

    @property
    def asks(self) -> bool:
        return self.expect is not Expect.NONE

    def note(self, call: Origin | None, *, selected: bool = True) -> None:
        """Record that a call has evidence.

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
        """Return True if a call must have evidence, and none was noted so far."""
        return self.asks and call not in self._seen

    def is_missing(self, call: Origin) -> bool:
        """Return True if a call without evidence should have it by now; otherwise count it as pending."""
        place = call[:2]
        due = self.joined.get(place, 0)
        if place not in self.joined or place not in self._out_of_order:
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
    calls = (record for record in read() if record.role is Role.CALLS)

    def selected() -> Iterator[Recorded]:
        wants_all = selection == EvidenceSelection()
        for given in evidence:
            is_wanted = wants_all or selection.wants(given)
            # What is not selected does not cover a call that is: it may have been altered to escape the selection.
            coverage.note(given.call, selected=is_wanted)
            if is_wanted:
                yield given

    def applied(servers: set[str]) -> Iterator[Record]:
        keys = {name.encode() for name in servers}
        return (record for record in read() if record.role is not Role.CALLS and record.key in keys)

    yield from judged(verifier, selected(), calls, applied, selection=selection, coverage=coverage, pairing=pairing)
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
                judgement = verifier.without_evidence(call, expected, gone=call.origin.offset < gone_before())
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


class Summary:
    """Totals of a run of judgements."""

    def __init__(self) -> None:
        self._statuses: Counter[str] = Counter({status.value: 0 for status in RecordStatus})
        self._codes: Counter[str] = Counter()
        self._producers: Counter[str] = Counter()
        self._erasures: set[str] = set()
        self.pending = 0
        """Calls whose evidence is not due yet."""

    def note(self, judgement: Judgement) -> None:
        self._statuses[judgement.status._value_] += 1
        if judgement.erasure is not None:
            self._erasures.add(judgement.erasure)
        if judgement.codes:
            self._codes.update(judgement.codes)

    def note_producers(self, written_by: Mapping[str, int]) -> None:
        self._producers.update(written_by)

    def erasures(self, known: Erasures) -> list[ScopeAct]:
        """Return the erasures that records named, in their order."""
        return [act for act in known if act.scope_id in self._erasures]

    def as_json(self) -> dict[str, Any]:
        """Return the counts: by status, by code, of pending calls, and by claimed producer."""
        return {
            "records": sum(self._statuses.values()) - self._statuses[RecordStatus.MISSING.value],
            **self._statuses,
            "pending": self.pending,
            "codes": dict(sorted(self._codes.items())),
            "producers": dict(sorted(self._producers.items())),
        }

    @property
    def exit_code(self) -> int:
        """1 if something is wrong or missing, 3 if something relies on deleted records, else 0."""
        if self._statuses[RecordStatus.WRONG.value] or self._statuses[RecordStatus.MISSING.value]:
            return 1
        return 3 if self._statuses[RecordStatus.GONE.value] else 0
