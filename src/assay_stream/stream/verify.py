"""Evidence in Kafka held against the logs in Kafka."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

from assay_stream.config import Settings
from assay_stream.core.record import Record, Role
from assay_stream.forensics.evidence_record import Recorded, of_record
from assay_stream.forensics.evidence_selection import EvidenceSelection
from assay_stream.forensics.history import History
from assay_stream.forensics.pairing import CALLS, Pairing
from assay_stream.forensics.share import WHOLE, Share
from assay_stream.forensics.verification import Judgement, Verifier
from assay_stream.stream.ranges import LogRanges

_ROLES = (Role.SNAPSHOTS, Role.CONTROL, Role.CALLS, Role.EVIDENCE)


async def verified(
    settings: Settings, selection: EvidenceSelection, *, producers: Collection[str] = (), share: Share = WHOLE
) -> AsyncIterator[tuple[Verifier, Judgement]]:
    """Yield the judgement on each record of the evidence topic that is asked for, and who gave it.

    Args:
        settings: the operator's settings.
        selection: which evidence is asked for.
        producers: versions that may have written it; empty: any.
        share: the part that is asked for, of the partitions.

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
            async for judgement in _partition(logs, verifier, selection, number):
                yield verifier, judgement
        for judgement in await _settled(logs, verifier):
            yield verifier, judgement


async def read_history(logs: LogRanges) -> History:
    """Return what the snapshot and control topics say.

    Args:
        logs: the topics.
    """
    history = History()
    for role in (Role.CONTROL, Role.SNAPSHOTS):
        async for batch in logs.read_all(role):
            for record in batch:
                history.take(record)
    return history


async def records_of_servers(logs: LogRanges, server_ids: Collection[str]) -> list[Record]:
    """Return the snapshot and control records of some servers.

    Args:
        logs: the topics.
        server_ids: which servers.
    """
    keys = {name.encode() for name in server_ids}
    return [
        record
        for role in (Role.CONTROL, Role.SNAPSHOTS)
        async for batch in logs.read_all(role)
        for record in batch
        if record.key in keys
    ]


async def _partition(
    logs: LogRanges, verifier: Verifier, selection: EvidenceSelection, number: int
) -> AsyncIterator[Judgement]:
    pairing = Pairing(CALLS)
    calls = _Calls(logs, number)
    first = 0
    if selection.since_us is not None:
        first = await logs.offset_at(Role.EVIDENCE, number, selection.since_us // 1_000)
    async for batch in logs.read(Role.EVIDENCE, number, first=first):
        asked = [evidence for evidence in map(of_record, batch) if selection.wants(evidence)]
        here = [evidence for evidence in asked if _is_in_partition(logs, evidence, number)]
        for evidence in asked:
            if not _is_in_partition(logs, evidence, number):
                yield verifier.without_call(evidence)
        pairs = [pairing.evidence(evidence) for evidence in here]
        last = max((evidence.call.offset for evidence in here if evidence.call), default=-1)
        least = min((evidence.call.offset for evidence in here if evidence.call), default=0)
        pairs += [
            pairing.other(call, keep=call.origin.offset > last) async for call in calls.up_to(last, first=least)
        ]
        for pair in pairs:
            judgement = None if pair is None else verifier.check(*pair)
            if judgement is not None:
                yield judgement
        if verifier.must_settle:
            for judgement in await _settled(logs, verifier):
                yield judgement
    for evidence, is_repeated in pairing.evidence_left():
        yield verifier.repeated(evidence) if is_repeated else verifier.without_call(evidence)


class _Calls:
    """The calls of one partition, read as far as they are needed."""

    def __init__(self, logs: LogRanges, number: int) -> None:
        self._logs, self._number = logs, number
        self._batches: AsyncIterator[list[Record]] | None = None
        self._last = -1

    async def up_to(self, last: int, *, first: int) -> AsyncIterator[Record]:
        """Yield the calls up to an offset, and those that were read with them."""
        if self._batches is None:
            self._batches = self._logs.read(Role.CALLS, self._number, first=first)
        while self._last < last and (batch := await anext(self._batches, None)) is not None:
            self._last = batch[-1].origin.offset
            for call in batch:
                yield call


def _is_in_partition(logs: LogRanges, evidence: Recorded, number: int) -> bool:
    """Tell whether a record names a call in the partition that has its own number, as ours all do."""
    call = evidence.call
    return call is not None and call.partition == number and call[:2] in logs.bounds


async def _settled(logs: LogRanges, verifier: Verifier) -> list[Judgement]:
    servers = verifier.servers_in_doubt()
    if not servers:
        return []
    return list(verifier.settle(await records_of_servers(logs, servers)))
