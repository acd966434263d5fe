"""Recompute evidence in Kafka from the logs in Kafka."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator

from assay_stream.config import Settings
from assay_stream.kafka.ranges import SyncRanges
from assay_stream.kafka.topics import topic_names
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.record import Record, Role
from assay_stream.replay.history import History
from assay_stream.verify.evidence import EvidenceSelection, Recorded, of_record
from assay_stream.verify.judging import Coverage, Expect, judged
from assay_stream.verify.pairing import CALLS, Pairing
from assay_stream.verify.verification import Judgement, Verifier

_APPLIED = (Role.CONTROL, Role.SNAPSHOTS)


def verified(
    settings: Settings,
    selection: EvidenceSelection,
    *,
    producers: Collection[str] = (),
    coverage: Coverage | None = None,
) -> Iterator[tuple[Verifier, Judgement]]:
    """Yield the judgement on each selected record of the evidence topic, and on each call without one; and who gave it.

    Args:
        producers: versions that may have written it; empty for any.
        coverage: which calls must have evidence; ``None`` for none.

    Raises:
        ConfigurationError: ``topic_missing``.
        OperatingError: ``brokers_failing``.
    """
    coverage = Coverage(Expect.NONE) if coverage is None else coverage
    roles = (Role.SNAPSHOTS, Role.CONTROL, Role.CALLS, Role.EVIDENCE)
    with asyncio.Runner() as runner, SyncRanges(settings, roles, runner) as logs:

        def applied(servers: set[str]) -> Iterator[Record]:
            keys = {name.encode() for name in servers}
            return (record for role in _APPLIED for record in logs.all(role) if record.key in keys)

        home_partitions = settings.home_partitions(len(logs.ranges.partitions(Role.SNAPSHOTS)))
        history = History(home_partitions=home_partitions)
        for role in _APPLIED:
            for record in logs.all(role):
                history.take(record)
        verifier = Verifier(
            history,
            starts=logs.ranges.starts(),
            redaction=settings.redaction(),
            call_profile=settings.call_profile,
            producers=producers,
        )
        for number in logs.ranges.partitions(Role.EVIDENCE):
            if selection.partition not in (None, number):
                continue
            place = (topic_names(settings)[Role.CALLS], number)
            part = _Partition(logs, verifier, selection, coverage, place)
            for judgement in part.judged(applied):
                yield verifier, judgement
        if verifier.servers_in_doubt():
            for judgement in verifier.settle(applied(verifier.servers_in_doubt())):
                yield verifier, judgement


class _Partition:
    """The evidence in one partition, and the calls in the partition of its number, which ours all name."""

    def __init__(
        self,
        logs: SyncRanges,
        verifier: Verifier,
        selection: EvidenceSelection,
        coverage: Coverage,
        place: tuple[str, int],
    ) -> None:
        self._logs, self._verifier, self._selection, self._coverage = logs, verifier, selection, coverage
        self._number = place[1]
        self._pairing = Pairing(CALLS, places={place} & logs.ranges.bounds.keys())
        self._gone_before = 0
        self._first_call: int | None = None
        self._last_call = -1
        self._has_ended = False

    def judged(self, applied: Callable[[set[str]], Iterable[Record]]) -> Iterator[Judgement]:
        return judged(
            self._verifier,
            self._evidence(),
            self._calls(),
            applied,
            selection=self._selection,
            coverage=self._coverage,
            pairing=self._pairing,
            keep=self._may_have_evidence,
            gone_before=lambda: self._gone_before,
        )

    def _evidence(self) -> Iterator[Recorded]:
        first, since_us = 0, self._selection.since_us
        if since_us is not None:
            first = self._logs.run(self._logs.ranges.offset_at(Role.EVIDENCE, self._number, since_us // 1_000))
        for batch in self._logs.batches(Role.EVIDENCE, self._number, first=first):
            given = [of_record(record) for record in batch]
            if not self._gone_before and given[0].call is not None:
                # Of a log that lost its beginning: calls before its first record's lost their evidence.
                begin, _ = self._logs.ranges.bounds[batch[0].origin[:2]]
                self._gone_before = given[0].call.offset if begin > 0 and first <= begin else 0
            wanted = []
            for evidence in given:
                is_here, is_wanted = self._pairing.takes(evidence), self._selection.wants(evidence)
                # What is not selected does not cover a call that is: it may have been altered to escape the selection.
                self._coverage.note(evidence.call if is_here else None, selected=is_wanted)
                if is_wanted:
                    wanted.append(evidence)
            offsets = [one.call.offset for one in wanted if one.call is not None and self._pairing.takes(one)]
            if self._first_call is None and offsets:
                self._first_call = min(offsets)
            self._last_call = max([self._last_call, *offsets])
            yield from wanted
        self._has_ended = True

    def _calls(self) -> Iterator[Record]:
        """Yield the calls from the first that may be selected; without coverage, those that evidence names."""
        asks, selection = self._coverage.asks, self._selection
        # Evidence of re-routed calls is not in their order: a later record may name an earlier call.
        is_any = asks or self._logs.ranges.has_rerouted
        first = selection.from_offset or 0 if is_any else self._first_call or 0
        if is_any and selection.since_us is not None:
            # Its event time may lie after its record's own by as much, and no more.
            since_ms = max(0, selection.since_us // 1_000 - DEFAULT_LIMITS.future_max_ms)
            first = max(first, self._logs.run(self._logs.ranges.offset_at(Role.CALLS, self._number, since_ms)))
        for batch in self._logs.batches(Role.CALLS, self._number, first=first, end=selection.to_offset):
            yield from batch
            if self._has_ended and not asks and batch[-1].origin.offset >= self._last_call:
                return

    def _may_have_evidence(self, call: Record) -> bool:
        """Tell whether evidence of a call may still come, or is asked for and was not noted so far."""
        if call.origin.offset > self._last_call or self._logs.ranges.has_rerouted:
            return True
        if not self._coverage.lacks(call.origin):
            return False
        expected = self._verifier.expected(call)
        return expected is not None and self._selection.wants(expected)
