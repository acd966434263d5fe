"""Honest servers beside a hostile one: listed and called all the time, their evidence and their worker watched."""

import asyncio
import itertools
import json
import math
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from aiokafka import AIOKafkaProducer, TopicPartition

from assay_stream.kafka.connection import reading_consumer
from assay_stream.model.record import Role, murmur2_partition
from tests.support.deployment import Deployment, Worker
from tests.support.fleet import a_call_by, a_listing, server_name

EVIDENCE_LIMIT_S = 10.0
"""What is quadratic takes minutes; 8,000 lists of one server take four to six seconds."""
HEALTH_LIMIT_S = 2.0
ABOVE_NORMAL_MB = 256
HOME = 0
"""The partition that hostile servers share with the first neighbour."""

_CALL_EVERY_S = 0.1
_LIST_EVERY_CALLS = 40
_END_LIMIT_S = 120
_numbers = itertools.count(1)


def in_partition(partition: int, prefix: str, partitions: int = 2) -> str:
    """Return a name that begins so, of a server whose records belong in a partition."""
    names = (f"{prefix}-{number}" for number in itertools.count())
    return next(name for name in names if murmur2_partition(name.encode(), partitions) == partition)


def processor_s(worker: Worker) -> float:
    """Return how much processor time a worker has used: what else there is on the machine does not lengthen it."""
    stat = Path(f"/proc/{worker.process.pid}/stat").read_text(encoding="ascii")
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def resident_mb(worker: Worker, name: str = "VmRSS") -> float:
    """Return what memory a worker has, or with ``VmHWM`` the most it ever had, in MB."""
    lines = Path(f"/proc/{worker.process.pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024


@dataclass
class Watch:
    """What neighbours and worker went through. Seconds are those of the worker's processor time.

    Args:
        waited_s: by server, for how much work each call waited for its evidence.
        unbound: calls whose evidence has no digest.
        health: status of each answer of ``/healthz``, and for how much work it waited.
        memory_mb: the most the worker took above what it had before.
    """

    waited_s: dict[str, list[float]] = field(default_factory=dict)
    unbound: list[str] = field(default_factory=list)
    health: list[tuple[int, float]] = field(default_factory=list)
    memory_mb: float = 0.0

    def __str__(self) -> str:
        told = [f"{name}: {len(waited)} calls, p99 {p99(waited):.2f} s" for name, waited in self.waited_s.items()]
        slowest_s = max(seconds for _, seconds in self.health)
        return "; ".join([*told, f"healthz {slowest_s:.2f} s at most", f"+{self.memory_mb:.0f} MB"])

    def check(self, evidence_limit_s: float, above_normal_mb: float) -> None:
        print(self)
        assert not self.unbound, self
        assert {status for status, _ in self.health} == {200}, self
        assert max(seconds for _, seconds in self.health) < HEALTH_LIMIT_S, self
        assert all(p99(waited) <= evidence_limit_s for waited in self.waited_s.values()), self
        assert self.memory_mb <= above_normal_mb, self


def p99(values: list[float]) -> float:
    return sorted(values)[math.ceil(len(values) * 0.99) - 1]


class Neighbours:
    """Two servers, one in the hostile one's partition and one in the other.

    Args:
        deployment: where they publish to.
        worker: its only one.
    """

    def __init__(self, deployment: Deployment, worker: Worker) -> None:
        self._deployment = deployment
        self._worker = worker
        names = {murmur2_partition(server_name(n).encode(), 2): n for n in range(20, 0, -1)}
        self._servers = [names[HOME], names[1 - HOME]]
        self._sent_s: dict[str, tuple[str, float]] = {}
        self._is_over = False
        self.watch = Watch(waited_s={server_name(number): [] for number in self._servers})

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
                self._sent_s[f"call-{number}"] = (server_name(server), processor_s(self._worker))
                await producer.send_and_wait(topics[role], value, key=key)
                await asyncio.sleep(_CALL_EVERY_S)

    async def read(self) -> None:
        """Read evidence as it comes, until all is over and every call has its own."""
        consumer = reading_consumer(self._deployment.settings)
        partitions = [
            TopicPartition(self._deployment.topics[Role.EVIDENCE], number)
            for number in range(self._deployment.settings.call_partitions)
        ]
        consumer.assign(partitions)
        async with consumer:
            await consumer.seek_to_end(*partitions)
            while self._sent_s or not self._is_over:
                for messages in (await consumer.getmany(timeout_ms=100)).values():
                    for message in messages:
                        self._take(json.loads(message.value)["data"])

    def _take(self, data: dict[str, str]) -> None:
        call = data["tool_call_id"]
        if call not in self._sent_s:
            return
        server, sent_s = self._sent_s.pop(call)
        self.watch.waited_s[server].append(processor_s(self._worker) - sent_s)
        if "tool_definition_digest" not in data:
            self.watch.unbound.append(call)

    async def ask_for_health(self) -> None:
        while not self._is_over:
            asked_s = processor_s(self._worker)
            status, _ = await asyncio.to_thread(self._worker.get, "/healthz")
            self.watch.health.append((status, processor_s(self._worker) - asked_s))
            await asyncio.sleep(0.2)

    def end(self) -> None:
        self._is_over = True


@asynccontextmanager
async def watched(
    deployment: Deployment,
    worker: Worker,
    *,
    evidence_limit_s: float = EVIDENCE_LIMIT_S,
    above_normal_mb: float = ABOVE_NORMAL_MB,
) -> AsyncIterator[Watch]:
    """Neighbours that live while something hostile goes on; afterwards the bounds are checked."""
    neighbours = Neighbours(deployment, worker)
    live = asyncio.create_task(neighbours.live())
    read = asyncio.create_task(neighbours.read())
    await asyncio.sleep(2)  # Before the hostile begins, everything runs.
    before_mb = resident_mb(worker)
    Path(f"/proc/{worker.process.pid}/clear_refs").write_text("5", encoding="ascii")  # The peak begins anew.
    health = asyncio.create_task(neighbours.ask_for_health())
    try:
        yield neighbours.watch
    finally:
        neighbours.end()
        await asyncio.wait_for(asyncio.gather(live, read, health), _END_LIMIT_S)
    assert worker.process.poll() is None, worker.tail()
    neighbours.watch.memory_mb = resident_mb(worker, "VmHWM") - before_mb
    neighbours.watch.check(evidence_limit_s, above_normal_mb)
