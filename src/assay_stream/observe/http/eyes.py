"""What sees the exchanges of the reverse proxy, and may refuse or hide: the interface, and one that does nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from assay_stream.observe.http.exchange import Ending
from assay_stream.observe.http.headers import HeaderFields


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a client gets in place of a server's answer."""

    status: int
    body: bytes


class Eyes(Protocol):
    """What gets to see an exchange. Nothing here may raise."""

    @property
    def rules(self) -> bool:
        """Whether a request passes only once it was ruled on as a whole."""

    @property
    def hides(self) -> bool:
        """Whether a response passes only once it is known what the client gets of it."""

    async def ruled(self, body: bytes) -> Refusal | None:
        """Return what the client gets instead if a request must not pass."""

    def from_client(self, data: bytes | None) -> None:
        """Bytes of the request's body, ``None`` for its end."""

    def answered(self, status: int, fields: HeaderFields) -> None:
        """The head of the response."""

    async def from_server(self, data: bytes | None) -> bytes:
        """Bytes of the response's body before they pass, ``None`` for its end; returns what may pass now."""

    async def whole(self, body: bytes) -> bytes:
        """A whole body before it passes; returns what passes in its place, nothing if it cannot be inspected."""

    def passed(self) -> None:
        """What was returned so far has passed."""

    def closed(self, ending: Ending) -> None:
        """The end of the exchange."""


class Blind:
    """For what is no MCP: documents about authorisation."""

    rules = False
    hides = False

    async def ruled(self, body: bytes) -> Refusal | None:  # noqa: ARG002 - the protocol's
        return None

    def from_client(self, data: bytes | None) -> None:
        pass

    def answered(self, status: int, fields: HeaderFields) -> None:
        pass

    async def from_server(self, data: bytes | None) -> bytes:
        return data or b""

    async def whole(self, body: bytes) -> bytes:
        return body

    def passed(self) -> None:
        pass

    def closed(self, ending: Ending) -> None:
        pass
