"""The channel between a partition task and its Faust agent, in a real Faust application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from assay_stream.errors import OperatingError
from assay_stream.worker.worker import AgentApp, AgentFunction, Batches, TransactionalChannel
from tests.support.counting import counting_calls
from tests.support.errors import raises_code

PARTITIONS = 3


class Item:
    def __init__(self, number: int = 0) -> None:
        self.number = number


@asynccontextmanager
async def running(function: AgentFunction) -> AsyncIterator[TransactionalChannel]:
    app = AgentApp("test")
    channel = TransactionalChannel(app, name="counting", partitions=PARTITIONS)
    app.agent(channel)(function)
    await app.start()
    try:
        yield channel
    finally:
        await app.stop()


async def process(channel: TransactionalChannel, number: int = 0) -> None:
    async with asyncio.timeout(5):
        await channel.process(Item(number))  # type: ignore[arg-type]


async def test_a_batch_is_done_when_the_agent_asks_for_the_next() -> None:
    seen: list[int] = []
    taken, release = asyncio.Event(), asyncio.Event()

    async def agent(batches: Any) -> None:
        async for batch in batches:
            taken.set()
            await release.wait()
            seen.append(batch.number)

    async with running(agent) as channel:
        working = asyncio.create_task(process(channel, 7))
        await taken.wait()
        assert not working.done()
        release.set()
        await working
    assert seen == [7]


async def test_no_batch_waits_for_that_of_another_partition() -> None:
    release = asyncio.Event()

    async def agent(batches: Any) -> None:
        async for batch in batches:
            if batch.number == 0:
                await release.wait()

    async with running(agent) as channel:
        slow = [asyncio.create_task(process(channel, 0)) for _ in range(PARTITIONS - 1)]
        for number in range(1, 50):
            await process(channel, number)
        assert not any(task.done() for task in slow)
        release.set()
        await asyncio.gather(*slow)


async def test_what_an_agent_raises_is_raised_to_the_task() -> None:
    """The agent goes on with the next batch, as often as it raises."""

    async def agent(batches: Any) -> None:
        async for batch in batches:
            if batch.number % 2:
                raise ValueError(batch.number)

    async with running(agent) as channel:
        for number in range(0, 200, 2):
            await process(channel, number)
            with pytest.raises(ValueError, match=str(number + 1)):
                await process(channel, number + 1)


async def returns_at_once(batches: Batches) -> None:
    """An agent that forgot its loop."""


async def returns_with_a_batch_in_hand(batches: Batches) -> None:
    async for _ in batches:
        return


async def raises_before_its_loop(batches: Batches) -> None:
    raise KeyError("secret")


@pytest.mark.parametrize(
    ("agent", "why"),
    [
        (returns_at_once, "counting agent returned"),
        (returns_with_a_batch_in_hand, "counting agent returned"),
        (raises_before_its_loop, "counting agent failed outside any batch: KeyError at"),
    ],
)
async def test_an_agent_that_ends_fails_its_batch_and_all_others(agent: AgentFunction, why: str) -> None:
    """No task waits for it; the error names it."""
    async with running(agent) as channel:
        for _ in range(2 * PARTITIONS):
            with raises_code("agent_failed", kind=OperatingError, match=why) as failed:
                await process(channel)
            assert "secret" not in str(failed.value)


async def test_an_agent_that_is_cancelled_fails_the_batch_in_hand() -> None:
    """As by an application that is stopped: its task never waits for it."""
    taken = asyncio.Event()

    async def agent(batches: Any) -> None:
        async for _ in batches:
            taken.set()
            await asyncio.Event().wait()

    async with running(agent) as channel:
        working = asyncio.create_task(process(channel))
        await taken.wait()
    await asyncio.wait([working], timeout=5)
    assert working.done()
    assert working.exception() is not None


async def test_faust_makes_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of value would stand there."""
    monkeypatch.chdir(tmp_path)
    async with running(takes_each) as channel:
        await process(channel)
    assert list(tmp_path.iterdir()) == []


async def test_a_batch_costs_little() -> None:
    """Some 230 calls, a small part of those of its transaction (``docs/adr/0003``)."""
    count = 200
    async with running(takes_each) as channel:
        await process(channel)
        with counting_calls() as counted:
            for number in range(count):
                await process(channel, number)
    assert counted.calls / count < 1_200


async def takes_each(batches: Batches) -> None:
    async for _ in batches:
        pass
