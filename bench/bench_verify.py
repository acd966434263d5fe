"""How fast evidence is verified: ``verify --from-kafka`` beside plain reading of the same records, in one run.

Both read the evidence and the calls from one broker, in one process. Plain reading does nothing else, so the rest
is what verifying costs: the join done again, and the comparison. What the join alone costs in the same process, at
the same time, is printed beside it.

    python -m bench.bench_verify [--calls N] [--rounds N]
"""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import time
from collections import Counter

from assay_stream import __version__
from assay_stream.cli.verify import judging_topics
from assay_stream.config import Settings, load_settings
from assay_stream.join import Join, process
from assay_stream.kafka.connection import start_admin
from assay_stream.kafka.ranges import LogRanges
from assay_stream.kafka.topics import apply_topics, topic_names
from assay_stream.model.cloudevents import read_event
from assay_stream.model.evidence import Producer
from assay_stream.model.observation import CallEvent
from assay_stream.model.record import Origin, Record, Role, murmur2_partition
from assay_stream.replay.log_cut import History
from assay_stream.verify.evidence import EvidenceSelection
from assay_stream.verify.verification import Coverage, Expect
from bench.on_broker import on_broker
from bench.publishing import send
from tests.support.fleet import Fleet


def made_up(settings: Settings, calls: int) -> list[tuple[Role, Record]]:
    """Return what a fleet published, and the evidence of it, each record with the topic it goes to."""
    topics = topic_names(settings)
    counts = {Role.SNAPSHOTS: settings.input_partitions, Role.CALLS: settings.call_partitions}
    offsets: Counter[tuple[Role, int]] = Counter()
    history, producer = History(), Producer(version=__version__)
    written: list[tuple[Role, Record]] = []
    waiting: list[Record] = []
    for role, key, value in Fleet(servers=200, calls=calls, changes=100, seed=11).history():
        number = murmur2_partition(key, counts[role])
        place = Origin(topic=topics[role], partition=number, offset=offsets[role, number])
        offsets[role, number] += 1
        record = Record(role=role, origin=place, key=key, value=value)
        written.append((role, record))
        if role is Role.CALLS:
            waiting.append(record)
        else:
            history.take(record)
    for record in waiting:
        event = read_event(record)
        assert isinstance(event, CallEvent)
        output = process(Join(producer=producer, bindings=history.view), record, event)[0]
        evidence = record._replace(
            key=output.key, value=output.value, headers=output.headers, timestamp_ms=output.timestamp_ms
        )
        written.append((Role.EVIDENCE, evidence))
    return written


async def publish(settings: Settings, written: list[tuple[Role, Record]]) -> None:
    """Write the records to their topics, each at the offset that it has."""
    topics = topic_names(settings)
    records = (
        {
            "topic": topics[role],
            "key": record.key,
            "value": record.value,
            "headers": list(record.headers),
            "partition": record.origin.partition,
            "timestamp_ms": record.timestamp_ms or None,
        }
        for role, record in written
    )
    await send(settings.bootstrap_servers, records)


async def read_plainly(settings: Settings) -> int:
    """Read the evidence and the calls, and return how much evidence there is."""
    count = 0
    async with LogRanges(settings, [Role.EVIDENCE, Role.CALLS]) as logs:
        for role in (Role.EVIDENCE, Role.CALLS):
            for number in logs.partitions(role):
                async for batch in logs.read(role, number):
                    count += len(batch) if role is Role.EVIDENCE else 0
    return count


async def verify(settings: Settings) -> int:
    """Verify all evidence, and return how many records hold."""

    def count() -> int:
        with judging_topics(settings, EvidenceSelection(), Coverage(Expect.NONE)) as (_, found):
            return sum(judgement.status == "holds" for judgement in found)

    return await asyncio.to_thread(count)


def join_again(sample: list[tuple[Role, Record]]) -> float:
    """Join some calls in memory, and return what one costs, microseconds of CPU time."""
    history, producer = History(), Producer(version=__version__)
    calls = [record for role, record in sample if role is Role.CALLS]
    for role, record in sample:
        if role is Role.SNAPSHOTS:
            history.take(record)
    join = Join(producer=producer, bindings=history.view)
    started_s = time.process_time()
    for record in calls:
        event = read_event(record)
        assert isinstance(event, CallEvent)
        process(join, record, event)
    return (time.process_time() - started_s) / len(calls) * 1e6


async def bench(bootstrap: str, calls: int, rounds: int) -> None:
    """Measure, and print the result."""
    settings = load_settings(bootstrap_servers=bootstrap, call_partitions=4, group_prefix="bench")
    admin = await start_admin(settings)
    await apply_topics(admin, settings)
    await admin.close()
    written = made_up(settings, calls)
    await publish(settings, written)
    sample = written[:20_000]
    del written
    print(
        f"{calls} calls and as many records of evidence, {settings.call_partitions} partitions, {os.cpu_count()} "
        f"cores shared with the broker, Python {platform.python_version()}"
    )
    for number in range(rounds):
        figures = []
        for measured in (verify, read_plainly):
            gc.collect()
            wall_s, cpu_s = time.perf_counter(), time.process_time()
            count = await measured(settings)
            wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
            assert count == calls, f"{count} of {calls}"
            figures.append((calls / wall_s, cpu_s / calls * 1e6, calls / cpu_s))
        join_us = join_again(sample)
        (rate, cpu_us, per_core), (plain_rate, plain_us, _) = figures
        print(
            f"round {number + 1}: verify {rate:,.0f} records/s at {cpu_us:.1f} us CPU ({per_core:,.0f} per second "
            f"of one core), the join alone {join_us:.1f} us CPU; plain reading {plain_rate:,.0f} records/s at "
            f"{plain_us:.1f} us CPU; ratio {rate / plain_rate:.2f}"
        )


if __name__ == "__main__":
    on_broker(bench, __doc__)
