"""A mirror whose partitions each end at another moment: what is put back is one consistent deployment.

A made-up primary has calls, evidence of some of them, and checkpoints, with gaps as transactions leave them. Every
partition is cut at random, its records get other offsets, and some pairs of offsets are lost.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from hashlib import sha256

import orjson
from hypothesis import given, strategies as st

from assay_stream.config import load_settings
from assay_stream.files.spool import Log, LogSpool
from assay_stream.join import call_in
from assay_stream.kafka.mirror import Mirror, Pairs
from assay_stream.model.checkpoint import encode
from assay_stream.model.facts import read_progress
from assay_stream.model.record import Origin, Record, Role
from assay_stream.seal.check import Report, check
from assay_stream.verify.evidence import of_record
from tests.support.seals import KEYS, a_seal

PARTITIONS = 2
CALLS, EVIDENCE, CHECKPOINTS = "mcp.tools.call", "assay.tool.decision", "assay.evidence.checkpoint"


class Logs:
    """Mirrored partitions in memory, read as ``LogRanges`` reads them."""

    def __init__(self) -> None:
        self.records_of: dict[tuple[Role, int], list[Record]] = {}

    def partitions(self, role: Role) -> list[int]:
        return list(range(PARTITIONS)) if role is not Role.SNAPSHOTS else [0]

    async def read(self, role: Role, number: int) -> AsyncIterator[list[Record]]:
        yield self.records_of.get((role, number), [])

    async def records(self, role: Role) -> AsyncIterator[Record]:
        for number in self.partitions(role):
            for record in self.records_of.get((role, number), []):
                yield record


def a_call(number: int, partition: int, offset: int) -> Record:
    event = {"source": "urn:proxy", "id": f"call-{partition}-{number}", "data": {"server_id": "s"}}
    return Record(Role.CALLS, Origin(CALLS, partition, offset), b"s", orjson.dumps(event), timestamp_ms=number)


def evidence_of(call: Record, partition: int, offset: int) -> Record:
    event = orjson.loads(call.value or b"")
    record_id = sha256(orjson.dumps([event["source"], event["id"]])).hexdigest()
    value = {"id": record_id, "data": {"origin": call.origin.as_json(), "binding": {"scope": "none"}}}
    return Record(Role.EVIDENCE, Origin(EVIDENCE, partition, offset), b"s", orjson.dumps(value))


def checkpoints_over(evidence: dict[int, list[Record]], ranges: int) -> dict[int, list[Record]]:
    """Seal the partitions in turn, each time a part of what there is."""
    chains: dict[int, list[Record]] = {number: [] for number in evidence}
    befores = dict.fromkeys(evidence)
    for turn in range(1, ranges + 1):
        for number, records in evidence.items():
            size = -(-len(records) // ranges)
            if part := records[(turn - 1) * size : turn * size]:
                siblings = [made.head for other, made in befores.items() if made is not None and other != number]
                made = a_seal(befores[number], part, partition=number, partitions=PARTITIONS, siblings=siblings)
                befores[number] = made.checkpoint
                origin = Origin(CHECKPOINTS, number, 2 * len(chains[number]))
                chains[number].append(Record(Role.CHECKPOINTS, origin, None, encode(made)))
    return chains


@st.composite
def primaries(draw: st.DrawFn) -> tuple[dict[tuple[Role, int], list[Record]], set[Origin]]:
    """A primary's logs, and the calls that its join has passed without evidence: refused ones."""
    logs: dict[tuple[Role, int], list[Record]] = {}
    refused: set[Origin] = set()
    evidence: dict[int, list[Record]] = {}
    for number in range(PARTITIONS):
        begin = draw(st.integers(0, 3))
        calls = [a_call(each, number, begin + each) for each in range(draw(st.integers(0, 8)))]
        logs[Role.CALLS, number] = calls
        rows: list[Record] = []
        offset = 0
        for call in calls[: draw(st.integers(0, len(calls)))]:
            if draw(st.integers(0, 4)) == 0:
                refused.add(call.origin)
                continue
            offset += draw(st.sampled_from((0, 0, 1, 2)))
            rows.append(evidence_of(call, number, offset))
            offset += 1
        evidence[number] = logs[Role.EVIDENCE, number] = rows
    for number, chain in checkpoints_over(evidence, draw(st.integers(1, 4))).items():
        logs[Role.CHECKPOINTS, number] = chain
    return logs, refused


@st.composite
def mirrors(draw: st.DrawFn) -> tuple[Logs, Pairs, dict[tuple[Role, int], list[Record]]]:
    primary, _ = draw(primaries())
    logs, pairs = Logs(), Pairs()
    for (role, number), records in primary.items():
        at, copied = draw(st.integers(0, 2)), []
        noted: dict[int, int] = {}
        for index, record in enumerate(records[: draw(st.integers(0, len(records)))]):
            at += draw(st.sampled_from((1, 1, 2)))
            copied.append(record._replace(origin=Origin(f"primary.{record.origin.topic}", number, at)))
            if index == 0 or draw(st.booleans()):
                noted[at] = record.origin.offset
        logs.records_of[role, number] = copied
        pairs[CALLS if role is Role.CALLS else role.value, number] = noted
    return logs, pairs, primary


def put_back(logs: Logs, pairs: Pairs, spool: LogSpool) -> Mirror:
    mirror = Mirror(load_settings(), "primary", spool)
    asyncio.run(mirror.take(logs, pairs))  # type: ignore[arg-type]
    return mirror


@given(mirrors())
def test_every_call_has_evidence_or_is_joined_and_never_both(
    mirrored: tuple[Logs, Pairs, dict[tuple[Role, int], list[Record]]],
) -> None:
    """Calls and sealed evidence are where they were, and no offset that evidence names is given to another record."""
    logs, pairs, primary = mirrored
    with LogSpool() as spool:
        restored = put_back(logs, pairs, spool)
        for number in range(PARTITIONS):
            calls = list(spool.read(Log(Role.CALLS, CALLS, number)))
            assert calls == primary[Role.CALLS, number][: len(calls)]
            assert len(calls) == len(logs.records_of[Role.CALLS, number])
            evidence = list(spool.read(Log(Role.EVIDENCE, EVIDENCE, number)))
            named = Counter(place.offset for record in evidence if (place := of_record(record).call) is not None)
            [noted] = spool.read(Log(Role.JOIN_PROGRESS, "assay.call.progress", number))
            progress = read_progress(noted.value)["calls"]
            copied = Counter(
                call_in(copy, topic=CALLS, partitions=PARTITIONS).origin.offset
                for each in range(PARTITIONS)
                for copy in spool.read(Log(Role.REROUTED, "assay.call.rerouted", each))
                if call_in(copy, topic=CALLS, partitions=PARTITIONS).origin.partition == number
            )
            for call in calls:
                at = call.origin.offset
                assert named[at] + copied[at] + (at >= progress) == 1
            end = restored.spans[Log(Role.CALLS, CALLS, number)].end
            assert all(offset < progress <= end for offset in named)


@given(mirrors())
def test_seals_hold_over_what_is_put_back(mirrored: tuple[Logs, Pairs, dict[tuple[Role, int], list[Record]]]) -> None:
    """Each kept chain verifies, and names no head that is not there."""
    logs, pairs, _ = mirrored
    with LogSpool() as spool:
        restored = put_back(logs, pairs, spool)
        reports = {}
        for number in range(PARTITIONS):
            chain = [record.value for record in spool.read(Log(Role.CHECKPOINTS, CHECKPOINTS, number))]
            report = reports[number] = Report(topic=EVIDENCE, partition=number)
            log = Log(Role.EVIDENCE, EVIDENCE, number)
            check(report, list(enumerate(chain)), spool.read(log), KEYS, log_start=restored.spans[log].begin)
            assert not report.faults
        for report in reports.values():
            assert all(head.tree_size <= reports[head.partition].tree_size for head in report.claims)
