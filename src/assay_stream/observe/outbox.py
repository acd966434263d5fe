"""Observations on their way from other threads to the event loop, where sinks live."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from assay_stream.observe.observation import Observation


class Outbox:
    """Passes observations on in order, all that have come at a time: waking the loop costs more than publishing one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, publish: Callable[[Observation], object]) -> None:
        self._loop = loop
        self._publish = publish
        self._waiting: deque[Observation] = deque()
        self._woken = False

    def __call__(self, observation: Observation) -> None:
        """Take an observation from any thread; never waits."""
        self._waiting.append(observation)
        if not self._woken:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self._pass_on)
            except RuntimeError:
                self._woken = False  # the loop is closed, which the caller must hear of each time
                raise

    def _pass_on(self) -> None:
        # Before the first is taken: whatever is added from now on wakes the loop again.
        self._woken = False
        for _ in range(len(self._waiting)):
            self._publish(self._waiting.popleft())
