"""Recompute evidence in Kafka from the logs in Kafka."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from functools import partial

from assay_stream.config import Settings
from assay_stream.kafka.ranges import LogRanges
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.record import Record, Role
from assay_stream.replay.history import History
from assay_stream.verify.evidence import EvidenceSelection, Recorded, of_record
from assay_stream.verify.judging import WHOLE, Coverage, Expect, Share, leftovers
from assay_stream.verify.pairing import CALLS, Pairing
from assay_stream.verify.verification import Judgement, Verifier

_ALL = 2**63
_ROLES = (Role.SNAPSHOTS, Role.CONTROL, Role.CALLS, Role.EVIDENCE)


async def verified(
    settings: Settings,
    selection: EvidenceSelection,
    *,
    producers: Collection[str] = (),
    share: Share = WHOLE,
    coverage: Coverage | None = None,
) -> AsyncIterator[tuple[Verifier, Judgement]]:
    """Yield the judgement on each selected record of the evidence topic, and on each call without one; and who gave it.

    Args:
        settings: the operator's settings.
        selection: which evidence to judge.
        producers: versions that may have written it; empty for any.
        share: which partitions to judge.
        coverage: which calls must have evidence; ``None`` for none.

    Raises:
        ConfigurationError: ``topic_missing``.
    """
    async with LogRanges(settings, _ROLES) as logs:
        history = await read_history(logs)
        verifier = Verifier(
            history,
            starts=logs.starts(),
            redaction=settings.redaction(),
            call_profile=settings.call_profile,
            producers=producers,
        )
        for number in logs.partitions(Role.EVIDENCE):
            if selection.partition not in (None, number) or number % share.of != share.number:
                continue
            covers = Coverage(Expect.NONE) if coverage is None else coverage
            async for judgement in _partition(logs, verifier, selection, number, covers):
                yield verifier, judgement
        for judgement in await _settled(logs, verifier, True):
            yield verifier, judgement


async def read_history(logs: LogRanges) -> History:
    """Return what the snapshot and control topics say."""
    history = History()
    for role in (Role.CONTROL, Role.SNAPSHOTS):
        async for record in logs.records(role):
            history.take(record)
    return history


async def records_of_servers(logs: LogRanges, server_ids: Collection[str]) -> list[Record]:
    """Return the snapshot and control records of some servers."""
    keys = {name.encode() for name in server_ids}
    return [
        record for role in (Role.CONTROL, Role.SNAPSHOTS) async for record in logs.records(role) if record.key in keys
    ]


async def _partition(
    logs: LogRanges, verifier: Verifier, selection: EvidenceSelection, number: int, coverage: Coverage
) -> AsyncIterator[Judgement]:
    pairing = Pairing(CALLS)
    first = 0
    if selection.since_us is not None:
        first = await logs.offset_at(Role.EVIDENCE, number, selection.since_us // 1_000)
    calls = _Calls(logs, number, await _first_call(logs, selection, number) if coverage.asks else None)
    gone_before = 0
    is_due = partial(_is_due, verifier, selection, coverage)
    async for batch in logs.read(Role.EVIDENCE, number, first=first):
        given = [of_record(record) for record in batch]
        gone_before = gone_before or _gone_before(logs, given[0], first)
        here = []
        for evidence in given:
            is_here = _is_in_partition(logs, evidence, number)
            is_wanted = selection.wants(evidence)
            # What is not selected does not cover a call that is: it may have been altered to escape the selection.
            coverage.note(evidence.call if is_here else None, shared=is_wanted)
            if is_wanted and is_here:
                here.append(evidence)
            elif is_wanted:
                yield verifier.without_call(evidence)
        pairs = [pairing.evidence(evidence) for evidence in here]
        offsets = [evidence.call.offset for evidence in here if evidence.call]
        last, least = max(offsets, default=-1), min(offsets, default=0)
        pairs += [
            pairing.other(call, keep=call.origin.offset > last or is_due(call))
            async for call in calls.up_to(last, first=least)
        ]
        for judgement in filter(None, [verifier.check(*pair) for pair in pairs if pair is not None]):
            yield judgement
        for judgement in await _settled(logs, verifier, verifier.must_settle):
            yield judgement
    if coverage.asks:
        await _read_on(calls, pairing, selection, is_due)
    for left in leftovers(verifier, pairing, selection, coverage, gone_before=gone_before):
        for judgement in [left] if left is not None else await _settled(logs, verifier, verifier.must_settle):
            yield judgement


def _is_due(verifier: Verifier, selection: EvidenceSelection, coverage: Coverage, call: Record) -> bool:
    """Tell whether a call is selected, and no evidence of it was noted so far."""
    if not coverage.lacks(call.origin):
        return False
    expected = verifier.expected(call)
    return expected is not None and selection.wants(expected)


async def _read_on(
    calls: _Calls, pairing: Pairing[Record], selection: EvidenceSelection, is_due: Callable[[Record], bool]
) -> None:
    """Read the calls behind the last one that evidence names, as far as they are selected."""
    last = _ALL if selection.to_offset is None else selection.to_offset - 1
    async for call in calls.up_to(last, first=0):
        pairing.other(call, keep=is_due(call))


def _gone_before(logs: LogRanges, earliest: Recorded, first: int) -> int:
    """Return the call of the first record of a log that lost its beginning: calls before it lost their evidence."""
    if earliest.record is None or earliest.call is None:
        return 0
    begin, _ = logs.bounds[earliest.record.origin[:2]]
    return earliest.call.offset if begin > 0 and first <= begin else 0


async def _first_call(logs: LogRanges, selection: EvidenceSelection, number: int) -> int:
    """Return the offset before which no call is selected."""
    first = selection.from_offset or 0
    if selection.since_us is not None:
        # Its event time may lie after its record's own by as much, and no more.
        since_ms = max(0, selection.since_us // 1_000 - DEFAULT_LIMITS.future_max_ms)
        first = max(first, await logs.offset_at(Role.CALLS, number, since_ms))
    return first


class _Calls:
    """The calls of one partition, read as far as needed, from ``first`` or from where ``up_to`` says first."""

    def __init__(self, logs: LogRanges, number: int, first: int | None) -> None:
        self._logs, self._number, self._first = logs, number, first
        self._batches: AsyncIterator[list[Record]] | None = None
        self._last = -1

    async def up_to(self, last: int, *, first: int) -> AsyncIterator[Record]:
        """Yield the calls up to an offset, and those that were read with them."""
        if self._batches is None:
            begin = first if self._first is None else self._first
            self._batches = self._logs.read(Role.CALLS, self._number, first=begin)
        while self._last < last and (batch := await anext(self._batches, None)) is not None:
            self._last = batch[-1].origin.offset
            for call in batch:
                yield call


def _is_in_partition(logs: LogRanges, evidence: Recorded, number: int) -> bool:
    """Tell whether a record names a call in the partition that has its own number, as ours all do."""
    call = evidence.call
    return call is not None and call.partition == number and call[:2] in logs.bounds


async def _settled(logs: LogRanges, verifier: Verifier, is_due: bool) -> list[Judgement]:
    servers = verifier.servers_in_doubt() if is_due else set()
    if not servers:
        return []
    return list(verifier.settle(await records_of_servers(logs, servers)))
