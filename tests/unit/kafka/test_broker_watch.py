"""Whether the brokers answer; with real brokers that die and return it is tests/integration's."""

from __future__ import annotations

import asyncio

from assay_stream.config import Settings
from assay_stream.kafka.connection import SILENCE_LIMIT_S, BrokerWatch
from tests.support.deployment import free_port


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


async def test_silence_grows_from_the_last_answer() -> None:
    """Ready with an answer, for as long as the limit; not before the first."""
    clock = Clock()
    watch = BrokerWatch(Settings(), monotonic_s=clock)
    clock.now_s += 3
    assert (watch.ready, watch.silent_s) == (False, 3.0)
    watch._note()
    clock.now_s += SILENCE_LIMIT_S
    assert watch.ready
    clock.now_s += 0.1
    assert not watch.ready


async def test_brokers_that_are_away_are_only_silence() -> None:
    """It goes on asking, raises nothing, and stops when told."""
    watch = BrokerWatch(Settings(bootstrap_servers=f"127.0.0.1:{free_port()}"))
    asking = asyncio.create_task(watch.run())
    await asyncio.sleep(0.5)
    assert not asking.done()
    assert not watch.ready
    watch.stop()
    async with asyncio.timeout(30):
        await asking
