"""A replay compared with what was recorded: how much is identical, and each difference with its cause.

The cause of a difference in evidence is the first of these that applies:

1. ``missing_record``: the replay writes evidence for a call, and none is recorded.
2. ``unexpected_record``: evidence is recorded for which the replay has no call, or a second time for one call.
3. ``altered_record``: the record is not evidence, or its own content hash does not belong to it.
4. ``software_changed``: it names another version or git commit as its producer, and nothing else differs.
5. ``late_snapshot``, ``pin_changed``, ``policy_changed``, ``key_changed``: only what rests on snapshots and control
   records differs, and the logs, each cut off somewhere, give the record to the byte; the first record that the cut
   leaves out of a log is a snapshot, or a decision of that kind (``replay.log_cut``). There is a cause for each log
   that is cut. ``late_call``: no log is cut; the join knew more than the replay does at the call's time, or had folded
   more away. ``record_set_aside``: no cut gives it, and the whole logs do if one record was refused unread because it
   kept ending its worker (``record_kills_worker``), which the logs at hand do not say.
6. ``software_changed``: it names another producer, and the difference is confined to what is derived from a
   definition: digests, the tool identity, the pin result and the signature.
7. ``altered_record``: nothing explains it.

What is missing, or unexpected, because it was erased on record has the cause ``erased``, and does not count.

Alerts are compared record by record, and by their state at the end (``verify.alert_ledger``). A difference takes the
causes of the evidence that differs on its server and tool, if there is some; else ``missing_record``,
``unexpected_record``, ``software_changed`` or ``altered_record``. What follows the order in which a worker read its
partitions is reported with ``order_of_reading``, and does not count.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from operator import attrgetter

from assay_stream.bindings.erasures import Account, Erasures, acts_in, subject_of
from assay_stream.canonical.digest import DEFAULT_REDACTION, Redaction, canonicalize
from assay_stream.model.cloudevents import read_call
from assay_stream.model.observation import CallProfile
from assay_stream.model.record import Origin, Output, Record, Role, erased_by
from assay_stream.replay.log_cut import Question, explained
from assay_stream.verify.alert_ledger import AlertLedger
from assay_stream.verify.evidence import (
    ALTERED,
    ERASED,
    MISSING,
    SOFTWARE_CHANGED,
    UNEXPECTED,
    Difference,
    Pairing,
    Producers,
    Recorded,
    codes_of,
    differing_paths,
    intact_content,
    rests_on_logs,
)

LATE_CALL = "late_call"
DOUBTS_MAX = 2_000
"""Differences that wait for their causes, which are then searched for together."""

_OWN_WORD = frozenset({"$.assayproducerversion", "$.assaygit"})
_OF_DEFINITIONS = frozenset({"digest_differs", "pin_differs", "signature_differs", "producer_differs"})

Read = Callable[[], Iterable[Record]]
"""Gives the records afresh each time."""
Later = Callable[[int], Iterable[Output]]


def of_evidence(
    evidence: Recorded, *causes: str, paths: tuple[str, ...] = (), left_out: tuple[Origin, ...] = ()
) -> Difference:
    """Build a difference in evidence: the recorded one, or else the replayed one."""
    return Difference(
        what="evidence",
        causes=tuple(sorted(causes)),
        server_id=evidence.text("server_id"),
        tool_name=evidence.text("tool"),
        call=evidence.call,
        record_id=evidence.record_id,
        paths=paths,
        left_out=left_out,
    )


@dataclass(frozen=True, slots=True)
class _Doubt:
    given: Recorded
    value: bytes
    paths: tuple[str, ...]
    other_producer: bool


@dataclass(eq=False)
class ReplayComparison:
    """Compares a replay with what was recorded, and counts results.

    Args:
        snapshot_partitions: as in the replay.
    """

    read: Read
    _: KW_ONLY
    redaction: Redaction = DEFAULT_REDACTION
    call_profile: CallProfile = "assay"
    snapshot_partitions: int | None = None
    pairing: Pairing[Recorded] = field(default_factory=lambda: Pairing(attrgetter("call")))
    identical: Counter[str] = field(default_factory=lambda: Counter({"evidence": 0, "alert": 0}), init=False)
    """How many records and alerts are identical."""
    causes: Counter[str] = field(default_factory=Counter, init=False)
    """How many differences have each cause."""
    _producers: Producers = field(default_factory=Producers, init=False)
    _doubts: list[_Doubt] = field(default_factory=list, init=False)
    _alerts: AlertLedger = field(default_factory=AlertLedger, init=False)
    _causes_by_tool: defaultdict[tuple[str | None, str | None], set[str]] = field(
        default_factory=lambda: defaultdict(set), init=False
    )

    @cached_property
    def _account(self) -> Account:
        return Account(lambda: Erasures(acts_in(self.read())))

    def differences(
        self,
        replayed: Iterable[Output],
        recorded: Iterable[Recorded],
        recorded_alerts: Iterable[bytes | None] | None = None,
        later: Later | None = None,
    ) -> Iterator[Difference]:
        """Yield each difference, and effects of the order of reading.

        Args:
            recorded_alerts: the alerts, ``None`` to skip them.
            later: returns what the replay would write up to a time, microseconds since the epoch.
        """
        for difference in self._of_evidence(replayed, recorded):
            place = (difference.server_id, difference.tool_name)
            self._causes_by_tool[place].update(difference.causes)
            self.causes.update(difference.causes)
            yield difference
        if recorded_alerts is None:
            return
        for value in recorded_alerts:
            self._alerts.recorded(value)
        if later is not None:
            until_us = self._alerts.latest_ms * 1_000
            self._alerts.written_later(one.value for one in later(until_us) if one.role is Role.ALERTS)
        self.identical["alert"] = self._alerts.identical
        for difference in self._alerts.differences(self._causes_by_tool):
            self.causes.update(difference.causes)
            yield difference

    def _of_evidence(self, replayed: Iterable[Output], recorded: Iterable[Recorded]) -> Iterator[Difference]:
        for given, again in self.pairing.pairs(recorded, self._evidence_in(replayed), keep=True):
            if given is not None and again is not None:
                yield from self._compared(given, again)
            elif given is not None:
                yield of_evidence(given, self._alone(given))
            elif again is not None:
                # No more are erased than the erasure accounts for.
                excused = self._account.excuse(subject_of(again.value)) is not None
                yield of_evidence(again, ERASED if excused else MISSING)
        yield from self._settled()

    def _alone(self, given: Recorded) -> str:
        """Return the cause of evidence whose call the replay lacks: without a stub in its place, it was never there."""
        if given.record is not None and erased_by(given.record) is not None:
            return ERASED if self._account.refuse(given.record) is None else ALTERED
        if given.call is None or intact_content(given.value) is None:
            return ALTERED
        scope_id = self._erased_calls.get(given.call)
        return ERASED if self._account.erasures.accounts(scope_id, given.value) else UNEXPECTED

    @cached_property
    def _erased_calls(self) -> dict[Origin, str | None]:
        """By the place of a call that has a stub there, the id of the erasure that the stub names."""
        stubs = (record for record in self.read() if record.role is Role.CALLS and record.value is None)
        return {stub.origin: erased_by(stub) for stub in stubs}

    def _evidence_in(self, replayed: Iterable[Output]) -> Iterator[Recorded]:
        for output in replayed:
            if output.role is Role.EVIDENCE:
                yield Recorded("replayed", output.value or b"")
            elif output.role is Role.ALERTS:
                self._alerts.replayed(output.value)

    def _compared(self, given: Recorded, again: Recorded) -> Iterator[Difference]:
        if given.value == again.value:
            self.identical["evidence"] += 1
            return
        content = intact_content(given.value)
        if content is None:
            yield of_evidence(given, ALTERED)
            return
        paths = differing_paths(content, again.content)
        others = tuple(path for path in paths if path not in _OWN_WORD)
        if not paths:
            self.identical["evidence"] += 1
        elif not others:
            yield of_evidence(given, SOFTWARE_CHANGED, paths=paths)
        elif rests_on_logs(others):
            self._doubts.append(_Doubt(given, canonicalize(content), paths, len(others) < len(paths)))
            if len(self._doubts) >= DOUBTS_MAX:
                yield from self._settled()
        else:
            yield of_evidence(given, ALTERED, paths=paths)

    def _settled(self) -> Iterator[Difference]:
        doubts, self._doubts = self._doubts, []
        if not doubts:
            return
        named = {doubt.given.call for doubt in doubts}
        servers = {str(doubt.given.text("server_id")).encode() for doubt in doubts}
        calls: dict[Origin | None, Record] = {}
        applied: list[Record] = []
        for record in self.read():
            if record.role is Role.CALLS and record.origin in named:
                calls[record.origin] = record
            elif record.role is not Role.CALLS and record.key in servers:
                applied.append(record)
        questions: list[tuple[_Doubt, Question]] = []
        for doubt in doubts:
            call = calls.get(doubt.given.call)
            if call is None:
                yield of_evidence(doubt.given, ALTERED, paths=doubt.paths)
                continue
            if doubt.given.text("unbound_reason") == "definition_unavailable":
                call = call._replace(hold_expired=True)
            event = read_call(call, call_profile=self.call_profile)
            questions.append((doubt, Question(call, event, doubt.value, self._producers.of(doubt.given))))
        for doubt, answer in explained(
            questions, applied, redaction=self.redaction, snapshot_partitions=self.snapshot_partitions
        ):
            causes: tuple[str, ...] = (ALTERED,)
            if answer.found:
                causes = answer.causes or (LATE_CALL,)
            elif doubt.other_producer and _OF_DEFINITIONS.issuperset(codes_of(doubt.paths)):
                causes = (SOFTWARE_CHANGED,)
            yield of_evidence(doubt.given, *causes, paths=doubt.paths, left_out=answer.left_out)
