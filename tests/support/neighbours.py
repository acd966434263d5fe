"""Honest servers beside a hostile one: listed and called all the time, their evidence and their worker watched."""

import asyncio
import itertools
import json
import math
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from aiokafka import AIOKafkaProducer, TopicPartition

from assay_stream.kafka.connection import Consumer, reading_consumer
from assay_stream.model.record import Role, murmur2_partition
from tests.support.deployment import Deployment, Worker
from tests.support.fleet import a_call_by, a_listing, server_name

ABOVE_NORMAL_MB = 256
HOME = 0
"""The partition that hostile servers share with the first neighbour."""

_CALL_EVERY_S = 0.1
_LIST_EVERY_CALLS = 40
_END_LIMIT_S = 200
"""A test that never ends is worse than one that fails. No bound of the product: a slow machine takes what it takes."""
_numbers = itertools.count(1)


def in_partition(partition: int, prefix: str, partitions: int = 2) -> str:
    """Return a name that begins so, of a server whose records belong in a partition."""
    names = (f"{prefix}-{number}" for number in itertools.count())
    return next(name for name in names if murmur2_partition(name.encode(), partitions) == partition)


def resident_mb(worker: Worker, name: str = "VmRSS") -> float:
    """Return what memory a worker has, or with ``VmHWM`` the most it ever had, in MB."""
    lines = Path(f"/proc/{worker.process.pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024


@dataclass
class Watch:
    """What neighbours and worker went through.

    Args:
        lists_meanwhile: by neighbour, how many lists of the hostile server's partition the registry finished while each
            call waited for its evidence. That of the neighbour in that partition comes first.
        unbound: calls whose evidence has no digest.
        health: how often ``/healthz`` answered with each status, 0 for no answer.
        memory_mb: the most the worker took above what it had before.
    """

    lists_meanwhile: dict[str, list[int]]
    unbound: list[str] = field(default_factory=list)
    health: Counter[int] = field(default_factory=Counter)
    memory_mb: float = 0.0

    def __str__(self) -> str:
        told = [f"{name}: {len(each)} calls, p99 {p99(each)} lists" for name, each in self.lists_meanwhile.items()]
        return "; ".join([*told, f"healthz {dict(self.health)}", f"+{self.memory_mb:.0f} MB"])

    def check(self, above_normal_mb: float) -> None:
        print(self)
        assert all(self.lists_meanwhile.values()), self
        assert not self.unbound, self
        assert self.health.keys() == {200}, self
        assert self.memory_mb <= above_normal_mb, self


def p99(values: list[int]) -> int:
    return sorted(values)[math.ceil(len(values) * 0.99) - 1]


class Neighbours:
    """Two servers, one in the hostile one's partition and one in the other.

    Args:
        deployment: where they publish to.
        worker: its only one.
        registry: tells how far the registry is; a reader in its group that has not joined it.
    """

    def __init__(self, deployment: Deployment, worker: Worker, registry: Consumer) -> None:
        self._deployment = deployment
        self._worker = worker
        self._registry = registry
        self._home = TopicPartition(deployment.topics[Role.SNAPSHOTS], HOME)
        names = {murmur2_partition(server_name(n).encode(), 2): n for n in range(20, 0, -1)}
        self._servers = [names[HOME], names[1 - HOME]]
        self._sent: dict[str, tuple[str, int]] = {}
        """By call: its server, and how many lists of the partition were done when it was sent."""
        self._is_over = False
        self.watch = Watch({server_name(number): [] for number in self._servers})

    async def live(self) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self._deployment.bootstrap) as producer:
            topics = self._deployment.topics
            for count in itertools.count():
                if count % _LIST_EVERY_CALLS == 0:
                    for server in self._servers:
                        role, key, value = a_listing(server, 0, 0, next(_numbers), datetime.now(UTC))
                        await producer.send_and_wait(topics[role], value, key=key)
                if self._is_over:
                    return
                server, number = self._servers[count % 2], next(_numbers)
                role, key, value = a_call_by(server, 0, number, datetime.now(UTC), None)
                self._sent[f"call-{number}"] = (server_name(server), await self._lists_done())
                await producer.send_and_wait(topics[role], value, key=key)
                await asyncio.sleep(_CALL_EVERY_S)

    async def read(self) -> None:
        """Read evidence as it comes, until all is over and every call has its own."""
        settings, topic = self._deployment.settings, self._deployment.topics[Role.EVIDENCE]
        partitions = [TopicPartition(topic, number) for number in range(settings.call_partitions)]
        consumer = reading_consumer(settings)
        consumer.assign(partitions)
        async with consumer:
            await consumer.seek_to_end(*partitions)
            while self._sent or not self._is_over:
                fetched = await consumer.getmany(timeout_ms=100)
                done = await self._lists_done() if fetched else 0
                for message in itertools.chain(*fetched.values()):
                    self._take(json.loads(message.value)["data"], done)

    def _take(self, data: dict[str, str], done: int) -> None:
        call = data["tool_call_id"]
        if call not in self._sent:
            return
        server, done_before = self._sent.pop(call)
        self.watch.lists_meanwhile[server].append(done - done_before)
        if "tool_definition_digest" not in data:
            self.watch.unbound.append(call)

    async def _lists_done(self) -> int:
        return await self._registry.committed(self._home) or 0

    async def until_waiting(self, lists_max: int) -> None:
        """Wait until at most so many lists of the hostile server's partition wait for the registry."""
        while (await self._registry.end_offsets([self._home]))[self._home] - await self._lists_done() > lists_max:
            await asyncio.sleep(0.02)

    async def ask_for_health(self) -> None:
        while not self._is_over:
            status, _ = await asyncio.to_thread(self._worker.get, "/healthz")
            self.watch.health[status] += 1
            await asyncio.sleep(0.2)

    def end(self) -> None:
        self._is_over = True


@asynccontextmanager
async def watched(
    deployment: Deployment, worker: Worker, *, above_normal_mb: float = ABOVE_NORMAL_MB
) -> AsyncIterator[Neighbours]:
    """Neighbours that live while something hostile goes on; afterwards the bounds are checked."""
    settings = deployment.settings
    async with reading_consumer(settings, group_id=f"{settings.group_prefix}-registry") as registry:
        neighbours = Neighbours(deployment, worker, registry)
        live = asyncio.create_task(neighbours.live())
        read = asyncio.create_task(neighbours.read())
        await asyncio.sleep(2)  # Before the hostile begins, everything runs.
        before_mb = resident_mb(worker)
        Path(f"/proc/{worker.process.pid}/clear_refs").write_text("5", encoding="ascii")  # The peak begins anew.
        health = asyncio.create_task(neighbours.ask_for_health())
        try:
            yield neighbours
        finally:
            neighbours.end()
            await asyncio.wait_for(asyncio.gather(live, read, health), _END_LIMIT_S)
    assert worker.process.poll() is None, worker.tail()
    neighbours.watch.memory_mb = resident_mb(worker, "VmHWM") - before_mb
    neighbours.watch.check(above_normal_mb)
