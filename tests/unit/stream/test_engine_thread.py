"""The thread that works on records."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from assay_stream.core.errors import OperatingError
from assay_stream.stream.engine_thread import EngineThread


async def test_the_loop_lives_while_a_record_is_worked_on() -> None:
    """Pure Python for half a second delays nobody else for long."""
    thread = EngineThread("engine")
    working = asyncio.create_task(thread.run(spin, 0.5))
    longest_s, last_s = 0.0, time.monotonic()
    while not working.done():
        await asyncio.sleep(0.001)
        now_s = time.monotonic()
        longest_s, last_s = max(longest_s, now_s - last_s), now_s
    thread.close()
    assert longest_s < 0.25


def spin(seconds: float) -> None:
    """Keep the processor busy."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        sum(range(100))


async def test_calls_run_one_after_the_other_in_one_thread() -> None:
    """State that they share needs no lock."""
    thread = EngineThread("engine")
    seen: list[tuple[int, str]] = []

    def note(number: int) -> int:
        seen.append((number, threading.current_thread().name))
        return number

    assert await asyncio.gather(*(thread.run(note, number) for number in range(5))) == list(range(5))
    assert seen == [(number, "engine") for number in range(5)]
    thread.close()


async def test_an_error_is_raised_where_it_is_waited_for() -> None:
    """And the thread goes on."""
    thread = EngineThread("engine")
    with pytest.raises(ValueError, match="bad"):
        await thread.run(int, "bad")
    assert await thread.run(int, "7") == 7
    thread.close()


async def test_a_lack_of_memory_is_an_operating_error_that_holds_nothing() -> None:
    """The frames of the original would keep what fills the memory."""
    thread = EngineThread("engine")

    def exhaust() -> None:
        raise MemoryError

    with pytest.raises(OperatingError) as raised:
        await thread.run(exhaust)
    assert raised.value.code == "out_of_memory"
    assert raised.value.__cause__ is None
    thread.close()


async def test_it_tells_for_how_long_it_has_been_busy_with_one_thing() -> None:
    """Idle is 0; progress begins anew."""
    thread = EngineThread("engine")
    assert thread.busy_s == 0.0
    release = threading.Event()
    working = asyncio.create_task(thread.run(release.wait, 10))
    await asyncio.sleep(0.1)
    assert thread.busy_s > 0.05
    release.set()
    await working
    await asyncio.sleep(0.05)
    assert thread.busy_s == 0.0
    thread.close()


async def test_a_caller_that_is_cancelled_leaves_the_thread_in_order() -> None:
    """The answer is dropped; the next call gets its own."""
    thread = EngineThread("engine")
    release = threading.Event()
    working = asyncio.create_task(thread.run(release.wait, 10))
    await asyncio.sleep(0.01)
    working.cancel()
    release.set()
    assert await thread.run(int, "7") == 7
    thread.close()
