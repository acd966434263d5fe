"""A hundredth of a fleet of a million proxies on real workers, beside what the model of ``bench.capacity`` says of it.

A registry worker and a join worker take in one list of each observer of each server, the same lists once more, and
calls of a backlog. What they took is compared with what the measured costs of single records add up to.

    python -m bench.bench_fleet [--scale N] [--calls N] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random

import orjson
import psutil
from aiokafka import TopicPartition

from assay_stream.cli.shared import quiet_client_logs
from assay_stream.kafka.connection import reading_consumer, start_admin
from assay_stream.model.record import Role
from bench.capacity import MILLION
from bench.publishing import publish_to
from bench.results import write_line
from bench.rounds import QuietCheck
from deploy.local.kafka import Broker
from tests.support.deployment import Deployment, Worker
from tests.support.fleet import START, Published, a_call_by, a_listing

_LIMIT_S = 600.0
_IDLE_S = 2.0
_IDLE_SHARE = 0.08
_LOOK_S = 10.0
"""Of a core: what a worker without work takes for heartbeats and fetches, and a margin."""
_PRODUCTION = {"ASSAY_STREAM_SESSION_TIMEOUT_MS": "10000"}
"""The default again, in place of what tests run with."""


@dataclass(frozen=True, kw_only=True)
class Scaled:
    """A part of the fleet: servers have as many observers as in all of it.

    Args:
        servers: how many.
        observers: of each server.
        calls: how many are made.
    """

    servers: int
    observers: int
    calls: int

    def lists(self, number: int) -> Iterator[Published]:
        """Yield the list that each observer publishes in an hour."""
        at = START + timedelta(hours=number)
        for server in range(self.servers):
            for observer in range(self.observers):
                yield a_listing(server, observer, 0, self._list_number(server, observer, number), at)

    def calls_made(self, hours: int) -> Iterator[Published]:
        """Yield calls after so many hours; half of them name the snapshot they rest on."""
        choose = Random(11)
        for number in range(self.calls):
            server, observer = choose.randrange(self.servers), choose.randrange(self.observers)
            named = f"snapshot-{self._list_number(server, observer, hours - 1)}" if choose.random() < 0.5 else None
            yield a_call_by(server, observer, number, START + timedelta(hours=hours), named)

    def _list_number(self, server: int, observer: int, hour: int) -> int:
        return (hour * self.servers + server) * self.observers + observer


async def read_to_the_end(deployment: Deployment, stage: str, role: Role) -> None:
    """Wait until a stage has committed everything that its input topic holds."""
    topic, settings = deployment.topics[role], deployment.settings
    group = f"{settings.group_prefix}-{stage}"
    count = settings.call_partitions if role is Role.CALLS else settings.input_partitions
    partitions = [TopicPartition(topic, number) for number in range(count)]
    admin, consumer = await start_admin(settings), reading_consumer(settings)
    await consumer.start()
    deadline_s = time.monotonic() + _LIMIT_S
    try:
        while True:
            ends = await consumer.end_offsets(partitions)
            committed = await admin.list_consumer_group_offsets(group)
            if all(tp in committed and committed[tp].offset >= end for tp, end in ends.items() if end):
                return
            if time.monotonic() > deadline_s:
                raise AssertionError(f"the {stage} stage is not done after {_LIMIT_S} s")
            await asyncio.sleep(0.2)
    finally:
        await consumer.stop()
        await admin.close()


def cpu_s(worker: Worker) -> float:
    """CPU time that a worker has taken, seconds."""
    times = psutil.Process(worker.process.pid).cpu_times()
    return float(times.user + times.system)


def resident_mib(worker: Worker) -> float:
    """Resident memory of a worker."""
    return float(psutil.Process(worker.process.pid).memory_info().rss / 2**20)


async def settled(workers: Iterable[Worker]) -> None:
    """Wait until workers have nothing left to do."""
    for worker in workers:
        deadline_s = time.monotonic() + _LIMIT_S
        while True:
            before_s = cpu_s(worker)
            await asyncio.sleep(_IDLE_S)
            if cpu_s(worker) - before_s < _IDLE_S * _IDLE_SHARE:
                break
            if time.monotonic() > deadline_s:
                raise AssertionError("a worker does not come to rest")


async def bench(broker: Broker, fleet: Scaled) -> Mapping[str, float]:
    """Return what the workers took."""
    deployment = Deployment(broker.bootstrap, "fleet", env=_PRODUCTION)
    await deployment.apply_topics()
    registry, join = (deployment.start_worker("--role", role) for role in ("registry", "join"))
    workers = (registry, join)
    try:
        for worker in workers:
            await worker.wait_ready()
        await settled(workers)
        found = {"servers": fleet.servers, "observers": fleet.servers * fleet.observers, "calls": fleet.calls}
        measured: dict[str, float] = {"empty_join_mib": resident_mib(join)}

        async def taken(doing: Awaitable[object]) -> list[float]:
            started_s, before = time.monotonic(), [cpu_s(worker) for worker in workers]
            await doing
            elapsed_s = time.monotonic() - started_s
            return [
                cpu_s(worker) - start_s - elapsed_s * idle
                for worker, start_s, idle in zip(workers, before, idles, strict=True)
            ]

        async def worked_off(published: Iterator[Published], stage: str, role: Role) -> None:
            await publish_to(deployment.bootstrap, deployment.topics, published)
            await read_to_the_end(deployment, stage, role)
            await settled(workers)

        # What polls and heartbeats take whatever is published is not what a list or a call costs.
        idles = [0.0, 0.0]
        idles = [idle_s / _LOOK_S for idle_s in await taken(asyncio.sleep(_LOOK_S))]

        first = await taken(worked_off(fleet.lists(0), "registry", Role.SNAPSHOTS))
        measured |= {"first_registry_s": first[0], "first_join_s": first[1], "first_join_mib": resident_mib(join)}
        again = await taken(worked_off(fleet.lists(1), "registry", Role.SNAPSHOTS))
        measured |= {"again_registry_s": again[0], "again_join_s": again[1]}
        measured |= {"lists_join_mib": resident_mib(join), "registry_mib": resident_mib(registry)}
        calls = await taken(worked_off(fleet.calls_made(2), "join", Role.CALLS))
        measured |= {"calls_join_s": calls[1], "calls_mib": resident_mib(join)}
        topics = {"call_bytes": Role.CALLS, "evidence_bytes": Role.EVIDENCE}
        sizes = _sizes(broker.data)
        measured |= {name: sizes(deployment.topics[role]) / fleet.calls for name, role in topics.items()}
        return found | measured
    finally:
        for worker in workers:
            worker.kill()


def _sizes(data: Path) -> Callable[[str], int]:
    def size(topic: str) -> int:
        return sum(file.stat().st_size for file in data.glob(f"logs/{topic}-[0-9]*/*.log"))

    return size


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, default=100, help="which part of the fleet: one in so many servers")
    parser.add_argument("--calls", type=int, default=200_000)
    parser.add_argument("--json", type=Path, help="append the result to this file")
    arguments = parser.parse_args()
    quiet_client_logs()
    observers = MILLION.proxies * MILLION.servers_each // MILLION.servers
    fleet = Scaled(servers=MILLION.servers // arguments.scale, observers=observers, calls=arguments.calls)
    busy = QuietCheck().look()
    with Broker() as broker:
        line = {"bench": "fleet", "scale": arguments.scale, **asyncio.run(bench(broker, fleet)), "busy": busy}
    print(orjson.dumps(line).decode())
    write_line(arguments.json, line)


if __name__ == "__main__":
    main()
