"""Notify open pages of store changes: one query for all of them, and only while there are any."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from assay_stream.errors import AssayStreamError
from assay_stream.limits.console import CONSOLE_LIMITS, ConsoleLimits


class Live:
    """Follow the store.

    Args:
        look: returns a value that differs once the store has changed.
    """

    def __init__(self, look: Callable[[], Awaitable[object]], limits: ConsoleLimits = CONSOLE_LIMITS) -> None:
        self._look = look
        self._limits = limits
        self._changed = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self.streams = 0
        self.is_stopped = False

    @property
    def is_full(self) -> bool:
        """Whether the limit on open pages is reached."""
        return self.is_stopped or self.streams >= self._limits.streams_max

    async def stream(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Send events to one page until it disconnects or ``stop``."""
        self.streams += 1
        if self._looking is None:
            self._looking = asyncio.create_task(self._follow())
        try:
            await send(b"retry: 5000\n\n")
            while not self.is_stopped:
                changed = self._changed
                try:
                    async with asyncio.timeout(self._limits.beat_every_s):
                        await changed.wait()
                except TimeoutError:
                    await send(b":\n\n")
                else:
                    if not self.is_stopped:
                        await send(b"event: changed\ndata: {}\n\n")
        finally:
            self.streams -= 1
            if not self.streams and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    def stop(self) -> None:
        self.is_stopped = True
        self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _follow(self) -> None:
        before = await self._seen()
        while True:
            await asyncio.sleep(self._limits.look_every_s)
            now = await self._seen()
            if now != before:
                before = now
                self._tell()

    async def _seen(self) -> object:
        try:
            return await self._look()
        except AssayStreamError as error:
            # The page says it too once it is read again.
            return error.code
