"""What a flood of one hostile server costs its neighbours, in its own partition and in others."""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition

from assay_stream.kafka.connection import reading_consumer
from assay_stream.model.record import Role, murmur2_partition
from tests.adversary.test_liveness import neighbour
from tests.support.deployment import Deployment
from tests.support.fleet import Published, a_call_by, a_listing

pytestmark = pytest.mark.kafka

FLOOD_S = float(os.environ.get("ASSAY_TEST_FLOOD_S", "30"))
LISTS_PER_S = 20
CALLS_PER_S = 10
LIMIT_S = 5.0
"""Processor seconds of the worker."""
HOSTILE = "hostile"


@asynccontextmanager
async def a_tap_before(deployment: Deployment) -> AsyncIterator[asyncio.subprocess.Process]:
    server = [sys.executable, "-m", "tests.support.flooding_server"]
    tap = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "assay_stream", "tap", "--server-id", HOSTILE, "--", *server],
        env=os.environ | deployment.env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=2**24,
    )
    try:
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        await ask(tap, 0, "initialize", hello)
        yield tap
    finally:
        assert tap.stdin is not None
        tap.stdin.close()
        await asyncio.wait_for(tap.wait(), 30)


async def ask(tap: asyncio.subprocess.Process, number: int, method: str, params: object) -> None:
    assert tap.stdin is not None
    assert tap.stdout is not None
    request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    tap.stdin.write(json.dumps(request).encode() + b"\n")
    await tap.stdin.drain()
    assert await asyncio.wait_for(tap.stdout.readline(), 30)


async def flood(tap: asyncio.subprocess.Process, until_s: float) -> int:
    count = 0
    started_s = time.monotonic()
    while time.monotonic() < until_s:
        count += 1
        await ask(tap, count, "tools/list", {})
        await asyncio.sleep(max(0.0, started_s + count / LISTS_PER_S - time.monotonic()))
    return count


class Neighbours:
    """Servers that are called all the time, and for how much work of the worker each call waited for its evidence.

    Args:
        spent_s: processor seconds of the worker: what other work on the machine delays, it does not lengthen.
    """

    def __init__(self, deployment: Deployment, servers: list[int], spent_s: Callable[[], float]) -> None:
        self._deployment = deployment
        self._servers = servers
        self._spent_s = spent_s
        self._sent_s: dict[str, tuple[int, float]] = {}
        self._done = asyncio.Event()
        self.waited_s: dict[int, list[float]] = {server: [] for server in servers}

    async def offer(self) -> None:
        for server in self._servers:
            await self._publish(a_listing(server, 0, 0, server, datetime.now(UTC)))

    async def call(self, until_s: float) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=self._deployment.bootstrap)
        await producer.start()
        number = 0
        try:
            while time.monotonic() < until_s:
                number += 1
                server = self._servers[number % len(self._servers)]
                role, key, value = a_call_by(server, 0, number, datetime.now(UTC), None)
                self._sent_s[f"call-{number}"] = (server, self._spent_s())
                await producer.send_and_wait(self._deployment.topics[role], value, key=key)
                await asyncio.sleep(1 / CALLS_PER_S)
            self._done.set()
        finally:
            await producer.stop()

    async def read(self) -> None:
        consumer = reading_consumer(self._deployment.settings)
        topic = self._deployment.topics[Role.EVIDENCE]
        partitions = [TopicPartition(topic, number) for number in range(self._deployment.settings.call_partitions)]
        consumer.assign(partitions)
        await consumer.start()
        try:
            await consumer.seek_to_beginning(*partitions)
            while self._sent_s or not self._done.is_set():
                for messages in (await consumer.getmany(timeout_ms=100)).values():
                    for message in messages:
                        data = json.loads(message.value)["data"]
                        server, sent_s = self._sent_s.pop(data["tool_call_id"])
                        assert "tool_definition_digest" in data, data
                        self.waited_s[server].append(self._spent_s() - sent_s)
        finally:
            await consumer.stop()

    async def _publish(self, published: Published) -> None:
        role, key, value = published
        await self._deployment.send(role, [(key, value)])


def processor_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def p99(values: list[float]) -> float:
    return sorted(values)[math.ceil(len(values) * 0.99) - 1]


async def test_a_flood_of_new_tools_leaves_neighbours_their_evidence(deployment: Deployment) -> None:
    """Fifty new tools in each of twenty lists a second: calls on others wait for 5 s of its work at most (p99).

    One neighbour has its records in the hostile server's partition, one in the other.
    """
    home = murmur2_partition(HOSTILE.encode(), 2)
    beside, apart = neighbour(home), neighbour(1 - home)
    worker = deployment.start_worker()
    await worker.wait_ready()
    neighbours = Neighbours(deployment, [beside, apart], partial(processor_s, worker.process.pid))
    await neighbours.offer()
    async with a_tap_before(deployment) as tap:
        until_s = time.monotonic() + FLOOD_S
        reading = asyncio.create_task(neighbours.read())
        lists, _ = await asyncio.gather(flood(tap, until_s), neighbours.call(until_s))
        await asyncio.wait_for(reading, 240)
    for name, server in (("beside", beside), ("apart", apart)):
        waited_s = neighbours.waited_s[server]
        median_s = sorted(waited_s)[len(waited_s) // 2]
        print(f"{name}: {len(waited_s)} calls, p50 {median_s:.2f} s, p99 {p99(waited_s):.2f} s")
    print(f"{lists} lists in {FLOOD_S:.0f} s")
    assert lists >= FLOOD_S * LISTS_PER_S / 2
    assert p99(neighbours.waited_s[apart]) <= LIMIT_S
    assert p99(neighbours.waited_s[beside]) <= LIMIT_S
