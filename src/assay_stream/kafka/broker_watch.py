"""Broker liveness: probed every few seconds over a separate connection.

A consumer cannot tell: unreachable brokers and a topic without new records look the same to it.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from assay_stream.config import Settings
from assay_stream.kafka.connection import connection_options

SILENCE_LIMIT_S = 10.0
"""Silence after which the brokers count as unreachable: several unanswered probes in a row."""

_INTERVAL_S = 2.0
_ANSWER_LIMIT_S = 5.0


class BrokerWatch:
    """Request metadata repeatedly until stopped."""

    def __init__(self, settings: Settings, *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._monotonic_s = monotonic_s
        self._answered_s: float | None = None
        self._started_s = monotonic_s()
        self._stopping = asyncio.Event()

    @property
    def silent_s(self) -> float:
        """Seconds since a broker last answered, or since creation."""
        since_s = self._started_s if self._answered_s is None else self._answered_s
        return self._monotonic_s() - since_s

    @property
    def ready(self) -> bool:
        return self._answered_s is not None and self.silent_s <= SILENCE_LIMIT_S

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        """Probe until stopped. Failures only count as silence."""
        while not self._stopping.is_set():
            client = AIOKafkaClient(**connection_options(self._settings))
            try:
                async with asyncio.timeout(_ANSWER_LIMIT_S):
                    await client.bootstrap()
                self._note()
                await self._ask(client)
            except (KafkaError, OSError, TimeoutError, ValueError):
                await self._pause()
            finally:
                await client.close()

    async def _ask(self, client: AIOKafkaClient) -> None:
        while not self._stopping.is_set():
            await self._pause()
            async with asyncio.timeout(_ANSWER_LIMIT_S):
                await client.fetch_all_metadata()
            self._note()

    def _note(self) -> None:
        self._answered_s = self._monotonic_s()

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_INTERVAL_S):
                await self._stopping.wait()
