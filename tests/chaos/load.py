"""A fleet that goes on publishing while things break."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from aiokafka import AIOKafkaProducer

from assay_stream.model.record import Role
from tests.chaos.placing import Placing
from tests.support.deployment import Deployment
from tests.support.fleet import Fleet

_OUTAGE_LIMIT_MS = 240_000
SERVERS = 6
_JUNK_EVERY = 97
_BURST_S = 0.5


class Load:
    """Publishes a fleet's history in bursts, until told to stop: a transaction for each of few calls is no load.

    Started again, it goes on where it stopped.

    A snapshot is acknowledged before anything later is sent: then what a call rests on stands in the log before
    the call, and a replay of the logs knows no more than the workers knew.

    Args:
        deployment: where to.
        seed: of the fleet.
        placing: where calls go.
        calls_per_s: how fast, at most.
    """

    def __init__(self, deployment: Deployment, *, seed: int, placing: Placing, calls_per_s: int = 40) -> None:
        self._deployment = deployment
        self._placing = placing
        fleet = Fleet(servers=SERVERS, observers=2, calls=1_000_000, changes=20_000, seed=seed)
        self._history = enumerate(fleet.history())
        self._pace_s = 1 / calls_per_s
        self._stopping = False
        self._running: asyncio.Task[None] | None = None
        self.calls = 0
        """Published and acknowledged."""

    async def __aenter__(self) -> Load:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def start(self) -> None:
        self._stopping = False
        self._running = asyncio.create_task(self._run())

    async def stop(self) -> None:
        self._stopping = True
        if self._running is not None:
            await self._running

    async def _run(self) -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=self._deployment.bootstrap,
            enable_idempotence=True,
            request_timeout_ms=_OUTAGE_LIMIT_MS,
            linger_ms=5,
        ) as producer:
            await self._publish(producer)

    async def _publish(self, producer: AIOKafkaProducer) -> None:
        waiting: list[asyncio.Future[Any]] = []
        topics = self._deployment.topics
        next_s = time.monotonic()
        while not self._stopping:
            number, (role, key, value) = next(self._history)
            if role is not Role.CALLS:
                await self._acknowledged(waiting)
                await producer.send_and_wait(topics[role], key=key, value=value)
                continue
            if self._placing.is_left_out(key):
                continue
            partition = self._placing.partition(key, value)
            waiting.append(await producer.send(topics[role], key=key, value=value, partition=partition))
            if number % _JUNK_EVERY == 0:
                waiting.append(await producer.send(topics[role], key=key, value=b'{"number":%d' % number))
            next_s = max(next_s + self._pace_s, time.monotonic() - _BURST_S)
            if next_s > time.monotonic() + _BURST_S:
                await asyncio.sleep(_BURST_S)
        await self._acknowledged(waiting)

    async def _acknowledged(self, waiting: list[asyncio.Future[Any]]) -> None:
        await asyncio.gather(*waiting)
        self.calls += len(waiting)
        waiting.clear()
