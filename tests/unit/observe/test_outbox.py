"""What other threads hand to the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque

import pytest

from assay_stream.observe import Observation
from assay_stream.observe.outbox import Outbox


def an_observation(number: int) -> Observation:
    """One that can be told from others."""
    return Observation(kind="call", key=b"", value=b"%d" % number, headers=(), timestamp_ms=number)


async def test_observations_of_another_thread_arrive_in_order_and_wake_the_loop_seldom() -> None:
    """All that came before the loop's turn are passed on in it."""
    loop, woken = asyncio.get_running_loop(), 0
    found: list[Observation] = []
    outbox = Outbox(loop, found.append)
    wake = loop.call_soon_threadsafe

    def counting(step: object) -> object:
        nonlocal woken
        woken += 1
        return wake(step)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "call_soon_threadsafe", counting)
        thread = threading.Thread(target=lambda: deque(map(outbox, map(an_observation, range(100)))))
        thread.start()
        thread.join()
        await asyncio.sleep(0)
        outbox(an_observation(100))
        await asyncio.sleep(0)
    assert [each.timestamp_ms for each in found] == list(range(101))
    assert woken == 2


def test_a_closed_loop_is_told_of_each_time() -> None:
    """Who publishes counts it."""
    loop = asyncio.new_event_loop()
    loop.close()
    outbox = Outbox(loop, print)
    for number in range(2):
        with pytest.raises(RuntimeError, match="closed"):
            outbox(an_observation(number))
