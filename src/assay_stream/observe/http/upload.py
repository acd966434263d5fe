"""The body of a request on its way to a server."""

import asyncio
from collections.abc import AsyncIterator, Callable

from aiohttp import web

from assay_stream.limits.serving import HttpLimits
from assay_stream.observe.http.problems import HttpProblem
from assay_stream.observe.mcp_wire import LINE_BYTES_MAX


class Holding:
    """The bodies that a tap holds to rule on them.

    Args:
        bytes_max: all of them together.
    """

    def __init__(self, bytes_max: int) -> None:
        self._left_bytes = bytes_max

    def take(self, size_bytes: int) -> None:
        """Make room.

        Raises:
            Problem: ``too_many_requests`` if there is none.
        """
        if size_bytes > self._left_bytes:
            raise HttpProblem("too_many_requests")
        self._left_bytes -= size_bytes

    def give(self, size_bytes: int) -> None:
        """Let go."""
        self._left_bytes += size_bytes


class Upload:
    """The body of a request, passed on as it comes. Its end starts the time that the server has to answer."""

    def __init__(self, request: web.Request, see: Callable[[bytes | None], object], limits: HttpLimits) -> None:
        self.stalled = False
        self._whole: bytes | None = None
        self._request = request
        self._see = see
        self._limits = limits
        self._deadline: asyncio.Timeout | None = None
        self._holding: Holding | None = None
        self._held_bytes = 0

    def starts(self, deadline: asyncio.Timeout | None) -> None:
        """Set what the end of the body starts; ``None`` once the server has answered."""
        self._deadline = deadline

    def end(self) -> None:
        """Note the end of the body."""
        self._see(None)
        if self._deadline is not None:
            self._deadline.reschedule(asyncio.get_running_loop().time() + self._limits.answer_limit_s)

    def here(self) -> bytes:
        """Return the body if all of it has arrived, to be sent together with its head; otherwise nothing."""
        if self._whole is None and self._request.content.is_eof():
            self._whole = self._request.content.read_nowait()
            self._see(self._whole)
        if self._whole:
            self.end()
        return self._whole or b""

    async def whole(self, holding: Holding) -> bytes:
        """Read the body to its end, to pass on later; ``release`` lets go of it."""
        body = bytearray()
        self._holding = holding
        try:
            async for chunk in self._chunks():
                holding.take(len(chunk))
                self._held_bytes += len(chunk)
                body += chunk
                if len(body) > LINE_BYTES_MAX:
                    raise HttpProblem("body_too_long")
        except TimeoutError:
            raise HttpProblem("body_stalled") from None
        self._whole = bytes(body)
        return self._whole

    def release(self) -> None:
        """Make room for other bodies."""
        if self._holding is not None:
            self._holding.give(self._held_bytes)
            self._holding = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._whole is not None:
            yield self._whole
        else:
            async for chunk in self._chunks():
                self._see(chunk)
                yield chunk
        self.end()

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(self._limits.body_pause_limit_s):
                    chunk = await self._request.content.readany()
            except TimeoutError:
                self.stalled = True
                raise
            if not chunk:
                return
            yield chunk
