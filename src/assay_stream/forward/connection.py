"""A connection that carries octets one way, and knows what the other host has acknowledged, where the system tells."""

import asyncio
from typing import Any

try:
    import fcntl
    import termios
except ImportError:  # pragma: no cover - not on this system
    _TIOCOUTQ = None
else:
    _TIOCOUTQ = getattr(termios, "TIOCOUTQ", None)

_ACKNOWLEDGED_PAUSE_S = 0.002


class OneWayConnection(asyncio.Protocol):
    """Carries frames one way. What a receiver says means nothing, but that it hangs up."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended_s: float | None = None
        """When it ended, by the loop's clock."""
        self._lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def eof_received(self) -> None:
        # A write would still succeed, into nothing.
        self.ended_s = self._loop.time()

    def connection_lost(self, error: Exception | None) -> None:
        self.ended_s = self.ended_s or self._loop.time()
        self._lost.set()

    async def write(self, frame: bytes) -> None:
        """Send a frame, and wait until the receiver's host has acknowledged every octet, where the system can tell."""
        self.transport.write(frame)
        descriptor = self.transport.get_extra_info("socket").fileno()
        while self.ended_s is None and (self.transport.get_write_buffer_size() or _unacknowledged(descriptor)):
            await asyncio.sleep(_ACKNOWLEDGED_PAUSE_S)
        if self.ended_s is not None:
            raise ConnectionResetError

    async def close(self) -> None:
        """Hang up in order: what was sent is read by the receiver."""
        self.transport.close()
        await self._lost.wait()


def _unacknowledged(descriptor: int) -> bool:
    return _TIOCOUTQ is not None and any(fcntl.ioctl(descriptor, _TIOCOUTQ, bytes(4)))
