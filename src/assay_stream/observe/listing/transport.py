"""What a conversation needs of stdio or HTTP, and why a server could not be listed."""

from __future__ import annotations

from typing import Protocol


class ListingError(Exception):
    """A server could not be listed.

    Args:
        reason: a stable code, without anything that the server said.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ServerRefusedError(ListingError):
    """The server answered with an error."""


class Transport(Protocol):
    """Carries messages to one server, and what comes back to ``Conversation.heard``."""

    async def send(self, raw: bytes, *, method: str | None, version: str | None, expects_answer: bool) -> None:
        """Send a message; of a request, also hear what answers it, as far as that comes with it.

        Args:
            method: of a request or notification.
            version: the protocol revision in use, ``None`` until that is known.

        Raises:
            ListingError: if the server cannot be reached, or does not answer as MCP servers do.
        """

    async def listen(self, version: str) -> None:
        """Hear what the server sends by itself, until it ends.

        Raises:
            ListingError: as ``send``.
        """

    async def close(self) -> None:
        """End the connection, within a bound."""
