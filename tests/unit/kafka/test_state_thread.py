"""The thread that works on records."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Iterator

import pytest

from assay_stream.errors import OperatingError
from assay_stream.kafka.stage import StateThread
from tests.support.errors import raises_code


@pytest.fixture
def thread() -> Iterator[StateThread]:
    made = StateThread("engine")
    yield made
    made.close()


async def test_the_loop_lives_while_a_record_is_worked_on(thread: StateThread) -> None:
    """Pure Python that goes on until the loop has had its turns delays nobody else for long."""
    enough = threading.Event()
    working = asyncio.ensure_future(thread.run(spin_until, enough))
    delays_s = []
    for _ in range(50):
        asked_s = time.monotonic()
        await asyncio.sleep(0.001)
        delays_s.append(time.monotonic() - asked_s)
        assert not working.done()
    enough.set()
    await working
    assert statistics.median(delays_s) < 0.25


def spin_until(enough: threading.Event) -> None:
    """Keep the processor busy; for ever would hang the test where the loop gets no turn."""
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s and not enough.is_set():
        sum(range(100))


async def test_calls_run_one_after_the_other_in_one_thread(thread: StateThread) -> None:
    """State that they share needs no lock."""
    seen: list[tuple[int, str]] = []

    def note(number: int) -> int:
        seen.append((number, threading.current_thread().name))
        return number

    assert await asyncio.gather(*(thread.run(note, number) for number in range(5))) == list(range(5))
    assert seen == [(number, "engine") for number in range(5)]


async def test_an_error_is_raised_where_it_is_waited_for(thread: StateThread) -> None:
    with pytest.raises(ValueError, match="bad"):
        await thread.run(int, "bad")
    assert await thread.run(int, "7") == 7


async def test_a_lack_of_memory_is_an_operating_error_that_holds_nothing(thread: StateThread) -> None:
    """The frames of the original would keep what fills the memory."""

    def exhaust() -> None:
        raise MemoryError

    with raises_code("out_of_memory", kind=OperatingError) as raised:
        await thread.run(exhaust)
    assert raised.value.__cause__ is None


async def test_a_caller_that_is_cancelled_leaves_the_thread_in_order(thread: StateThread) -> None:
    """The answer is dropped; the next call gets its own."""
    release = threading.Event()
    working = asyncio.ensure_future(thread.run(release.wait, 10))
    await asyncio.sleep(0.01)
    working.cancel()
    release.set()
    assert await thread.run(int, "7") == 7
