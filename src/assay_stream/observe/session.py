"""One connection without I/O: events in, commands for its host out.

A host owns the bytes (``observe.inspection`` for pipes, ``observe.http`` for HTTP, ``observe.feeds`` for hooks of
gateways). It passes in each message as an event and executes the resulting commands. ``Session`` only
observes; ``observe.gate`` has the sessions that refuse calls and hide tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from types import MappingProxyType
from typing import ClassVar, NamedTuple, TypeVar

from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.observe.jsonrpc import BLANKS, Direction, Line, may_be_misread, may_list
from assay_stream.observe.mcp_wire import WireObserver
from assay_stream.observe.observation import Observation

Key = TypeVar("Key")

_NAMES_LOGGED = 5


class ClientSaid(NamedTuple):
    """A client message on its way to the server."""

    raw: bytes


class ServerSaid(NamedTuple):
    """A server message on its way to the client; ``exchange`` as in ``WireObserver.take``."""

    raw: bytes
    exchange: int = 0


class Missed(NamedTuple):
    """A message that could not be inspected: too long, or unreadable."""

    direction: Direction
    exchange: int = 0


class Failed(NamedTuple):
    """A client message that cannot be ruled on, with the reason and details for the client."""

    raw: bytes
    reason: str = "not_ruled_on"
    detail: Mapping[str, str] = MappingProxyType({})


Event = ClientSaid | ServerSaid | Missed | Failed


@dataclass(slots=True)
class Commands:
    """The host's response to an event.

    Args:
        forward: bytes for the other side; ``None`` if nothing passes.
        observations: to publish.
        reply: the client's replacement for the server's answer, a line with its line feed; empty if none is expected.
        warnings: tools whose calls pass although their definition gives cause for concern; of a name beyond the limit
            its beginning.
        hidden: names of the tools dropped from ``forward``.
        withheld: number of server messages replaced by an error.
        is_bad_request: whether the message is blocked because of its form.
        gives_list: whether the host must call ``delivered`` once the client has ``forward``.
    """

    forward: bytes | None = None
    observations: list[Observation] = field(default_factory=list)
    reply: bytes = b""
    warnings: list[str] = field(default_factory=list)
    hidden: tuple[str, ...] = ()
    withheld: int = 0
    is_bad_request: bool = False
    gives_list: bool = False

    @property
    def notices(self) -> list[str]:
        """Log messages: names are server text, truncated to the length limit for names."""
        found = [f"the digest policy warns of a call that passed: {name!r}" for name in self.warnings]
        if self.hidden:
            more = len(self.hidden) - _NAMES_LOGGED
            names = ", ".join(repr(name[: DEFAULT_LIMITS.identifier_chars_max]) for name in self.hidden[:_NAMES_LOGGED])
            found.append(
                f"the digest policy hides tools from a list: {names}" + (f" and {more} more" if more > 0 else "")
            )
        return found


class Session(WireObserver):
    """Observe all messages and let everything pass."""

    enforces: ClassVar[bool] = False
    """Whether a client message passes only after a ruling."""

    hides: ClassVar[bool] = False
    """Whether server messages must be held until it is known what the client gets of them."""

    def receive(self, event: Event, at: datetime) -> Commands:
        match event:
            case ClientSaid(raw):
                return self._from_client(raw, at)
            case ServerSaid(raw, exchange):
                return self._from_server(raw, at, exchange)
            case Missed(direction, exchange):
                return self._missed(direction, at, exchange)
            case Failed():
                return self._failed(event, at)

    def rule(self, line: Line, raw: bytes, at: datetime) -> Commands:  # noqa: ARG002 - for sessions that refuse
        """Rule on a line, without observing it if it may pass."""
        return Commands(raw)

    def delivered(self, exchange: int = 0) -> None:
        self.offered.delivered(exchange)

    def doubt(self) -> None:
        """Record that inspecting the server failed: its lists are unknown."""
        self.offered.doubt()

    def _from_client(self, raw: bytes, at: datetime) -> Commands:
        if not raw.strip(BLANKS):
            return Commands(raw)
        line = self.read(raw)
        commands = self.rule(line, raw, at)
        if commands.forward is not None:
            commands.observations += self.take("client->server", line, raw, at)
            if not self.enforces and may_be_misread(line, raw):
                commands.observations += self.lost(at)
        return commands

    def _from_server(self, raw: bytes, at: datetime, exchange: int) -> Commands:
        if not raw.strip(BLANKS):
            return Commands(raw)
        line = self.read(raw)
        if exchange and not line.messages and may_list(raw):
            # Some clients read JSON in other encodings than UTF-8.
            return Commands(raw, self.missed("server->client", at, exchange=exchange))
        return Commands(raw, self.take("server->client", line, raw, at, exchange=exchange))

    def _missed(self, direction: Direction, at: datetime, exchange: int) -> Commands:
        return Commands(b"", self.missed(direction, at, exchange=exchange))

    def _failed(self, event: Failed, at: datetime) -> Commands:  # noqa: ARG002 - observing holds nothing back
        return Commands(event.raw)


def to_evict(sessions: Mapping[Key, Session], count_max: int) -> Key | None:
    """Return which of too many sessions, the least recently used first, is to end; ``None`` if there is room."""
    if len(sessions) <= count_max:
        return None
    # Made-up clients must not end the open calls of others.
    others = islice(sessions, count_max)
    resting = next((key for key in others if not sessions[key].calls.open_calls), None)
    return next(iter(sessions)) if resting is None else resting
