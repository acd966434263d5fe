"""A program measured from outside: how far it has come, and the CPU time its processes took for that."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

_SAMPLE_S = 0.05
_START_LIMIT_S = 90.0
_STALL_LIMIT_S = 60.0

Progress = Callable[[], Awaitable[int]]


class Stalled(Exception):  # noqa: N818 - says what happened
    """A program made no progress."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """What of a run counts.

    Args:
        calls: how many calls there are.
        warm_up_calls: how many of them do not count.
        limit_s: how long is measured at most, and how long is warmed up at most.
    """

    calls: int
    warm_up_calls: int
    limit_s: float


@dataclass(frozen=True, kw_only=True)
class Measure:
    """What one run showed: calls per second of wall clock, and CPU time of all processes per call."""

    calls: int
    calls_per_s: float
    cpu_us: float
    memory_mib: float


@dataclass(frozen=True, kw_only=True)
class _Sample:
    calls: int
    wall_s: float
    cpu_s: float


async def measure(
    command: tuple[str, ...], variables: Sequence[Mapping[str, str]], log: Path, progress: Progress, window: Window
) -> Measure:
    """Run a program over a window and kill it.

    Args:
        command: what starts it.
        variables: the whole environment of each of its processes.
        log: where their output goes.
        progress: tells how many calls it has finished.
        window: what counts.

    Raises:
        Stalled: it made no progress for too long.
        AssertionError: it ended, or was done before the warm-up was over.
    """
    with log.open("wb") as output:
        processes = [
            subprocess.Popen(command, env=dict(one), stdout=output, stderr=subprocess.STDOUT) for one in variables
        ]
    try:
        return await _watch([psutil.Process(process.pid) for process in processes], log, progress, window)
    finally:
        for process in processes:
            process.kill()
            process.wait()


async def _watch(processes: list[psutil.Process], log: Path, progress: Progress, window: Window) -> Measure:
    first_s: float | None = None
    start: _Sample | None = None
    moved_s, last = time.monotonic(), 0
    while True:
        await asyncio.sleep(_SAMPLE_S)
        if any(process.status() == psutil.STATUS_ZOMBIE for process in processes):
            raise AssertionError(f"the program ended; {log} ends:\n{log.read_text(errors='replace')[-2_000:]}")
        sample = await _sample(processes, progress)
        if sample.calls > last:
            moved_s, last = sample.wall_s, sample.calls
        elif sample.wall_s - moved_s > (_STALL_LIMIT_S if last else _START_LIMIT_S):
            raise Stalled(f"no progress at {last} calls; see {log}")
        if first_s is None:
            first_s = sample.wall_s if sample.calls else None
            continue
        since_s = sample.wall_s - first_s
        # A window begins and ends where progress was made: batches are large.
        if sample.wall_s != moved_s:
            continue
        if start is None:
            if sample.calls >= window.calls:
                raise AssertionError("done before the warm-up was over: raise --calls")
            if sample.calls >= window.warm_up_calls or since_s >= window.limit_s:
                start = sample
        elif sample.calls >= window.calls or sample.wall_s - start.wall_s >= window.limit_s:
            memory_mib = sum(process.memory_info().rss for process in processes) / 2**20
            return _between(start, sample, memory_mib)


def _between(start: _Sample, end: _Sample, memory_mib: float) -> Measure:
    calls = end.calls - start.calls
    return Measure(
        calls=calls,
        calls_per_s=calls / (end.wall_s - start.wall_s),
        cpu_us=(end.cpu_s - start.cpu_s) / calls * 1e6,
        memory_mib=memory_mib,
    )


async def _sample(processes: list[psutil.Process], progress: Progress) -> _Sample:
    calls = await progress()
    times = [process.cpu_times() for process in processes]
    cpu_s = sum(one.user + one.system for one in times)
    return _Sample(calls=calls, wall_s=time.monotonic(), cpu_s=cpu_s)


def committed_by(admin: AIOKafkaAdminClient, group: str, topic: str) -> Progress:
    """Return what tells how many calls a consumer group has committed: exact for who commits with its output.

    Args:
        admin: a connected client.
        group: the group.
        topic: the topic of calls, whose partitions begin at offset 0 and have no gaps.
    """

    async def progress() -> int:
        offsets = await admin.list_consumer_group_offsets(group)
        return sum(max(found.offset, 0) for partition, found in offsets.items() if partition.topic == topic)

    return progress


def written_to(consumer: AIOKafkaConsumer, topic: str, partitions: int) -> Progress:
    """Return what tells how many records a topic has been given since now, for who writes without transactions.

    Args:
        consumer: a started client.
        topic: the topic written to, new and empty.
        partitions: how many it has.
    """

    async def progress() -> int:
        ends = await consumer.end_offsets([TopicPartition(topic, number) for number in range(partitions)])
        return sum(ends.values())

    return progress
