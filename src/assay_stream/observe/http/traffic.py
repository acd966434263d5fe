"""From HTTP exchanges with one server to observations: a deterministic state machine without clock or I/O.

Rules:

1. Exchanges are grouped into *connections*, each with a ``Session`` of ``observe.session``: a session of MCP
   (``Mcp-Session-Id``, until 2025-11-25) under one authorisation context; without one, all requests with the same
   credential, or none.
2. The response to a request comes in the request's own exchange. Only a session may go on in another one: a request
   that was left open can then be answered on any later stream of its session.
3. A session begins with the response to ``initialize``, which may name it; earlier messages belong to it.
4. From MCP 2026-07-28 on, a client that closes an exchange cancels what it asked for. Before, it does not.
5. An exchange that ends without an answer yields its calls all the same, with the reason: ``http_401``,
   ``upstream_failed``, ``cancelled``, ``no_response``.
6. A request that the server does not accept (2xx) changes nothing beyond its own record: what it says of others waits
   until then. A refusal says something of the requests in it only. Without a session no request can name another.
7. Nothing here is ever about bytes that did not pass: what could not be read is counted, and a list that may have
   been in it is published as unreadable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from assay_stream.limits import HTTP_LIMITS, HttpLimits
from assay_stream.observe.http.connections import Connections, Contexts, Ending, Exchange
from assay_stream.observe.http.messages import (
    CHARSETS_WITH_ASCII,
    UTF_8,
    Body,
    EventStream,
    HeaderFields,
    JsonBody,
    Opaque,
    Unreadable,
    body_of,
    first,
    is_body_unclear,
    is_request_unclear,
    mismatch,
    plain_body,
    repeated,
)
from assay_stream.observe.observation import Observation, Vantage, loss_event
from assay_stream.observe.session import CANCELLED, LINE_BYTES_MAX, Commands, Failed, Missed, ServerSaid, Session
from assay_stream.observe.wire import (
    BLANKS,
    EVENT_BREAK,
    Direction,
    Line,
    is_ambiguous,
    may_be_misread,
    may_list,
    request_key,
)

SESSION = "mcp-session-id"
_VERSION = "mcp-protocol-version"
_CLOSING_CANCELS = "2026-07-28"
READ_FIELDS = frozenset((SESSION, _VERSION, "authorization", "content-type", "content-encoding"))
"""Fields read here when no session rules; others need not be kept."""


class Opened(NamedTuple):
    """The head of a request: an exchange begins."""

    method: str
    fields: HeaderFields


class Passed(NamedTuple):
    """Bytes of a body in transit; ``None`` for its end."""

    direction: Direction
    data: bytes | None


class Asked(NamedTuple):
    """The whole body of a request, to be ruled on."""

    body: bytes
    fields: HeaderFields


class Answered(NamedTuple):
    """The head of a response."""

    status: int
    fields: HeaderFields


class Replied(NamedTuple):
    """The whole body of a response, to be shown or withheld."""

    body: bytes


class Lost(NamedTuple):
    """Bytes of a body that passed uninspected."""

    direction: Direction


class Closed(NamedTuple):
    """The end of an exchange."""

    ending: Ending


HttpEvent = Opened | Passed | Asked | Answered | Replied | Lost | Closed


@dataclass(eq=False, repr=False)
class Traffic:
    """Follow the traffic between all clients and one server. Times must be timezone-aware."""

    vantage: Vantage
    contexts: Contexts
    _: KW_ONLY
    new_id: Callable[[], str]
    session: Callable[..., Session] = Session
    limits: HttpLimits = HTTP_LIMITS
    message_bytes_max: int = LINE_BYTES_MAX
    exchanges: dict[int, Exchange] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._kept_bytes = 0
        """Bytes buffered for the bodies of all exchanges."""
        self.connections = Connections(self.vantage, new_id=self.new_id, session=self.session, limits=self.limits)

    def receive(self, number: int, event: HttpEvent, at: datetime) -> Commands:
        """Return the commands for an event of the exchange ``number``, unique in the process, from 1."""
        if isinstance(event, Opened):
            return Commands(observations=self._open(number, event, at))
        exchange = self.exchanges.get(number)
        if exchange is None:
            if isinstance(event, Asked):
                raise RuntimeError("the exchange could not be opened, so that nothing can be ruled on")
            return Commands()
        match event:
            case Passed("client->server", data):
                return Commands(data, self._from_client(exchange, data, at))
            case Passed(_, data):
                return self._passed(exchange, data, at)
            case Asked(body, fields):
                return self._rule(exchange, body, fields, at)
            case Answered(status, fields):
                return Commands(observations=self._answered(exchange, status, fields, at))
            case Replied(body):
                return self._shown_whole(exchange, body, at)
            case Lost(direction):
                return Commands(observations=self._lost(exchange, direction, at))
            case Closed(ending):
                del self.exchanges[number]
                return Commands(observations=self._closed(exchange, ending, at))

    def failed(self, number: int, event: HttpEvent, at: datetime) -> Commands:
        if isinstance(event, Asked):
            return self.exchanges[number].session.receive(Failed(event.body), at)
        exchange = self.exchanges.get(number)
        # Anyone can have a request refused.
        if exchange is not None and not exchange.is_refused:
            exchange.session.offered.doubt()
        return Commands()

    def delivered(self, number: int) -> None:
        """Record that the client has what was given it of an exchange."""
        exchange = self.exchanges.get(number)
        if exchange is not None:
            exchange.session.offered.delivered(number)

    def missed(self, exchanges: int, at: datetime) -> list[Observation]:
        """Return the loss events of exchanges that passed uninspected. Contents unknown, each counts as a call."""
        return [loss_event(self.vantage, event_id=self.new_id(), observed_at=at, lists=0, calls=exchanges)]

    def close(self, at: datetime) -> list[Observation]:
        return self.connections.close(at)

    def _open(self, number: int, event: Opened, at: datetime) -> list[Observation]:
        method, fields = event
        context = self.contexts.of(first(fields, "authorization"))
        session_id = first(fields, SESSION)
        connection, observations = self.connections.of(context, session_id, at)
        observations += self.connections.expire(at)
        # Whatever its headers say that it is: not every server heeds them.
        request = JsonBody(self.message_bytes_max, first(fields, "content-encoding"))
        exchange = Exchange(number, method, context, session_id, first(fields, _VERSION), connection, request)
        exchange.is_mislabelled = is_body_unclear(fields, charsets=CHARSETS_WITH_ASCII)
        self.exchanges[number] = exchange
        return observations

    def _from_client(self, exchange: Exchange, data: bytes | None, at: datetime) -> list[Observation]:
        observations: list[Observation] = []
        for message in self._read(exchange, "client->server", data):
            if message is None:
                observations += self._lost(exchange, "client->server", at)
            elif message.strip():
                line = exchange.session.read(message)
                exchange.is_unread |= exchange.is_mislabelled or may_be_misread(line, message, None)
                observations += self._asked(exchange, line, message, at)
        if exchange.is_refused:  # before it was read
            observations += exchange.session.exchange_refused(exchange.number, exchange.asked, at)
        return observations

    def _answered(self, exchange: Exchange, status: int, fields: HeaderFields, at: datetime) -> list[Observation]:
        observations: list[Observation] = []
        exchange.status = status
        exchange.response = self._response_body(exchange, fields)
        if exchange.is_refused:
            return exchange.session.exchange_refused(exchange.number, exchange.asked, at)
        if exchange.session_id is None and (session_id := first(fields, SESSION)) is not None:
            exchange.session_id = session_id
            exchange.connection, observations = self.connections.of(exchange.context, session_id, at)
        observations += self.connections.confirm(exchange.connection, at)
        if exchange.version is not None:
            exchange.session.lists.note_version(exchange.version)
        if exchange.waiting is not None:
            observations += self._take_part(exchange, *exchange.waiting, of_others=True)
            self._kept_bytes -= len(exchange.waiting[0])
            exchange.waiting = None
        return observations

    @staticmethod
    def _heard(exchange: Exchange, message: bytes | None, at: datetime) -> Commands:
        if message is None:
            return exchange.session.receive(Missed("server->client", exchange.number), at)
        return exchange.session.receive(ServerSaid(message, exchange.number), at)

    @staticmethod
    def _says_nothing(exchange: Exchange, message: bytes | None) -> bool:
        """Return True if a message is an unclear part of a refusal, which anyone can provoke."""
        if not exchange.is_refused or message is None:
            return exchange.is_refused
        line = exchange.session.read(message)
        return not line.exact or is_ambiguous(line, message, EVENT_BREAK)

    def _passed(self, exchange: Exchange, data: bytes | None, at: datetime) -> Commands:
        """Return the server's bytes for the client: unchanged, or event by event for a held stream."""
        events = exchange.response
        if not (exchange.session.hides and isinstance(events, EventStream)):
            passing = Commands(data or b"")
            for message in self._read(exchange, "server->client", data):
                if not self._says_nothing(exchange, message):
                    passing.observations += self._heard(exchange, message, at).observations
            return passing
        if data is None:
            return Commands()  # an event that the end cuts off is none
        given, total = bytearray(), Commands()
        self._kept_bytes -= events.kept_bytes
        for event in events.events(data):
            if not event.messages:
                given += event.raw
                continue
            message = event.messages[0]
            if self._says_nothing(exchange, message):
                passes = None not in event.messages and not may_list(event.raw)
                given += event.raw if passes else b""
                total.withheld += not passes
                continue
            shown = self._heard(exchange, message, at)
            given += event.raw if shown.forward is message else event.saying(shown.forward or b"")
            total.observations += shown.observations
            total.hidden += shown.hidden
            total.withheld += shown.withheld
        if self._kept_bytes + events.kept_bytes > self.limits.kept_bytes_max:
            events.lose()
        self._kept_bytes += events.kept_bytes
        total.forward = bytes(given)
        return total

    def _shown_whole(self, exchange: Exchange, body: bytes, at: datetime) -> Commands:
        """Return the client's version of a whole body: empty if it cannot be read reliably."""
        shown = Commands(body)
        for part in (body, None):
            for message in self._read(exchange, "server->client", part):
                if self._says_nothing(exchange, message):
                    passes = message is not None and not may_list(message)
                    return shown if passes else Commands(b"", withheld=1)
                if message is None:
                    return Commands(b"", self._lost(exchange, "server->client", at), withheld=1)
                shown = self._heard(exchange, message, at)
                if shown.forward is message:
                    shown.forward = body
        return shown

    def _rule(self, exchange: Exchange, body: bytes, fields: HeaderFields, at: datetime) -> Commands:
        """Rule on a whole body. One that its headers describe differently is blocked: some server goes by them."""
        session = exchange.session
        raw = plain_body(body, first(fields, "content-encoding"), message_bytes_max=self.message_bytes_max)
        line = session.read(body if raw is None else raw)
        header = repeated(fields) or next((name for each in line.messages if (name := mismatch(fields, each))), None)
        if header is not None:
            return session.receive(Failed(body if raw is None else raw, "header_mismatch", {"header": header}), at)
        if raw is None or is_request_unclear(fields):
            return session.receive(Failed(body if raw is None else raw, "body_unclear"), at)
        if not raw.strip(BLANKS):
            return Commands(raw)
        commands = session.rule(line, raw, at)
        if commands.forward is not None:
            commands.observations += self._asked(exchange, line, raw, at)
        return commands

    def _lost(self, exchange: Exchange, direction: Direction, at: datetime) -> list[Observation]:
        exchange.is_unread |= direction == "client->server"
        return exchange.session.missed(direction, at, exchange=exchange.number)

    def _closed(self, exchange: Exchange, ending: Ending, at: datetime) -> list[Observation]:
        """End an exchange; its unanswered requests are answered elsewhere, or never."""
        try:
            session, asked = exchange.session, exchange.asked
            exchange.asked = []
            session.exchange_ended(exchange.number)
            # A server that refused it did nothing, and anyone can have a request refused.
            lost = self.missed(1, at) if exchange.is_unread and not exchange.is_refused else []
            self._kept_bytes -= exchange.let_go()
            session.offered.cut_off(exchange.number)
            if exchange.method == "DELETE" and exchange.is_successful:
                return lost + (self.connections.end(exchange.connection, at) if exchange.session_id is not None else [])
            if exchange.session_id is not None and exchange.is_successful:
                return lost + [each for key in asked for each in session.orphaned(key, at)]
            code, ok = "upstream_failed" if ending == "upstream_failed" else "no_response", None
            if exchange.is_refused:
                code, ok = f"http_{exchange.status}", False
            elif ending == "client_left" and exchange.version is not None and exchange.version >= _CLOSING_CANCELS:
                code = "cancelled"
            return lost + [each for key in asked for each in session.unanswered(key, code, at, ok=ok)]
        except Exception:
            if not exchange.is_refused:
                exchange.session.offered.doubt()
            raise

    def _response_body(self, exchange: Exchange, fields: HeaderFields) -> Body:
        """Return the parser of a response: as messages, whatever its type, unless clients may find others in it."""
        kind, encoding = first(fields, "content-type"), first(fields, "content-encoding")
        session, is_refused = exchange.session, not exchange.is_successful
        body = body_of(kind, encoding, message_bytes_max=self.message_bytes_max)
        charsets = UTF_8 if session.enforces and not is_refused else CHARSETS_WITH_ASCII
        is_unclear = is_body_unclear(fields, charsets=charsets)
        if isinstance(body, Opaque):
            is_unclear |= session.enforces and not is_refused
            body = body_of(None, encoding, message_bytes_max=self.message_bytes_max)
        return Unreadable() if is_unclear and (not is_refused or session.hides) else body

    def _read(self, exchange: Exchange, direction: Direction, data: bytes | None) -> list[bytes | None]:
        body = exchange.request if direction == "client->server" else exchange.response
        before_bytes = body.kept_bytes
        messages = list(body.end() if data is None else body.feed(data))
        after_bytes = 0 if data is None else body.kept_bytes
        self._kept_bytes += after_bytes - before_bytes
        if data is None or self._kept_bytes > self.limits.kept_bytes_max:
            # Nothing comes after the end; and what has no room is let go.
            self._kept_bytes -= after_bytes
            if direction == "client->server":
                exchange.request = Opaque()
            else:
                exchange.response = Opaque()
            messages += [None] * (after_bytes > 0)
        return messages

    def _asked(self, exchange: Exchange, line: Line, message: bytes, at: datetime) -> list[Observation]:
        keys = (request_key(each.get("id"), exchange.number) for each in line.messages if "method" in each)
        exchange.asked += [key for key in keys if key is not None]
        if not any(map(_concerns_others, line.messages)):
            return exchange.session.take("client->server", line, message, at, exchange=exchange.number)
        observations = self._take_part(exchange, message, at, of_others=False)
        if exchange.is_successful:
            return observations + self._take_part(exchange, message, at, of_others=True)
        if exchange.waiting is not None or self._kept_bytes + len(message) > self.limits.kept_bytes_max:
            return observations + self._lost(exchange, "client->server", at)
        exchange.waiting = message, at
        self._kept_bytes += len(message)
        return observations

    def _take_part(self, exchange: Exchange, raw: bytes, at: datetime, *, of_others: bool) -> list[Observation]:
        line = exchange.session.read(raw)
        # Without a session clients count from 1 each, so that an id names nobody's request.
        named = (each for each in line.messages if exchange.session_id is not None or each.get("method") != CANCELLED)
        messages = tuple(each for each in named if _concerns_others(each) is of_others)
        part = replace(line, messages=messages)
        return exchange.session.take("client->server", part, raw, at, exchange=exchange.number) if messages else []


def _concerns_others(message: Mapping[str, Any]) -> bool:
    """Return True if a client's message concerns more than its own exchange: a server request, a task, a session."""
    method = message.get("method")
    is_notice = ("method" not in message or "id" not in message) and method != "tools/call"
    return is_notice or method in ("initialize", "tasks/update")
