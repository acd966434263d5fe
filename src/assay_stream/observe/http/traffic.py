"""From HTTP exchanges with one server to observations: a deterministic state machine without clock or I/O.

Rules:

1. What belongs together is a *connection*, followed by one ``WireObserver``: a session (``Mcp-Session-Id``, until
   2025-11-25) under one authorisation context; without a session, whatever has the same credential, or none.
2. The response to a request comes in the request's own exchange. Only a session may go on in another one: a request
   that was left open can then be answered on any later stream of its session.
3. A session begins with the response to ``initialize``, which may name it; what was said before then belongs to it.
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
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from assay_stream.limits.serving import HTTP_LIMITS, HttpLimits
from assay_stream.observe.http.bodies import Body, JsonBody, Opaque, Unreadable, body_of, plain_body
from assay_stream.observe.http.connections import Connections, Ending, Exchange
from assay_stream.observe.http.credentials import Contexts
from assay_stream.observe.http.event_stream import HeldEvents
from assay_stream.observe.http.headers import (
    CHARSETS_WITH_ASCII,
    UTF_8,
    HeaderFields,
    first,
    is_body_unclear,
    is_event_stream,
    is_request_unclear,
    mismatch,
    repeated,
)
from assay_stream.observe.jsonrpc import EVENT_BREAK, Direction, Line, is_ambiguous, may_be_misread, may_list
from assay_stream.observe.mcp_wire import CANCELLED, LINE_BYTES_MAX, WireObserver
from assay_stream.observe.observation import Observation, Vantage, loss_event
from assay_stream.observe.wire import Shown

if TYPE_CHECKING:
    from assay_stream.observe.gate import Gate, Passage

SESSION = "mcp-session-id"
_VERSION = "mcp-protocol-version"
READ_FIELDS = frozenset((SESSION, _VERSION, "authorization", "content-type", "content-encoding"))
"""The fields that are read here, unless a gate rules: all others need not be kept for it."""


class Traffic:
    """Follows what passes between all clients and one server. Times must be timezone-aware.

    Args:
        vantage: who observes which server; its ``auth_context`` is that of requests without credentials.
        gate: what rules on calls of a connection; without it everything passes.
        hides: whether the gates hide tools.
    """

    def __init__(
        self,
        vantage: Vantage,
        contexts: Contexts,
        *,
        new_id: Callable[[], str],
        gate: Callable[[Vantage, WireObserver], Gate] | None = None,
        hides: bool = False,
        limits: HttpLimits = HTTP_LIMITS,
        message_bytes_max: int = LINE_BYTES_MAX,
    ) -> None:
        self._vantage = vantage
        self._new_id = new_id
        self._contexts = contexts
        self.hides = hides
        self._kept_bytes = 0
        """What the bodies of all exchanges keep."""
        self._limits = limits
        self._message_bytes_max = message_bytes_max
        self.connections = Connections(vantage, new_id=new_id, gate=gate, limits=limits)

    def open(self, number: int, method: str, fields: HeaderFields, at: datetime) -> tuple[Exchange, list[Observation]]:
        """Begin an exchange with the head of its request, and return what that yields."""
        context = self._contexts.of(first(fields, "authorization"))
        session_id = first(fields, SESSION)
        connection, observations = self.connections.of(context, session_id, at)
        observations += self.connections.expire(at)
        # Whatever its headers say that it is: not every server heeds them.
        request = JsonBody(self._message_bytes_max, first(fields, "content-encoding"))
        version = first(fields, _VERSION)
        exchange = Exchange(number, method, context, session_id, version, connection, request)
        exchange.is_mislabelled = is_body_unclear(fields, charsets=CHARSETS_WITH_ASCII)
        return exchange, observations

    def from_client(self, exchange: Exchange, data: bytes | None, at: datetime) -> list[Observation]:
        observations: list[Observation] = []
        for message in self._read(exchange, "client->server", data):
            if message is None:
                observations += self.lost(exchange, "client->server", at)
            elif message.strip():
                line = exchange.connection.observer.read(message)
                exchange.is_unread |= exchange.is_mislabelled or may_be_misread(line, message, None)
                observations += self._asked(exchange, line, message, at)
        if exchange.is_refused:  # before it was read
            observations += exchange.connection.observer.refused(exchange.number, exchange.asked, at)
        return observations

    def answered(self, exchange: Exchange, status: int, fields: HeaderFields, at: datetime) -> list[Observation]:
        observations: list[Observation] = []
        exchange.status = status
        gate = exchange.connection.gate
        if gate is not None and gate.hides and is_event_stream(fields):
            exchange.events = HeldEvents(self._message_bytes_max)
        exchange.response = self._response_body(exchange, fields)
        if exchange.is_refused:
            return exchange.connection.observer.refused(exchange.number, exchange.asked, at)
        if exchange.session_id is None and (session_id := first(fields, SESSION)) is not None:
            exchange.session_id = session_id
            exchange.connection, observations = self.connections.of(exchange.context, session_id, at)
        observations += self.connections.confirm(exchange.connection, at)
        if exchange.version is not None:
            exchange.connection.observer.note_version(exchange.version)
        if exchange.waiting is not None:
            observations += self._take_part(exchange, *exchange.waiting, of_others=True)
            self._kept_bytes -= len(exchange.waiting[0])
            exchange.waiting = None
        return observations

    def from_server(self, exchange: Exchange, data: bytes | None, at: datetime) -> list[Observation]:
        observations: list[Observation] = []
        for message in self._read(exchange, "server->client", data):
            if self._says_nothing(exchange, message):
                continue
            if message is None:
                observations += self.lost(exchange, "server->client", at)
            elif (gate := exchange.connection.gate) is not None:
                observations += gate.show(message, at, exchange=exchange.number).observations
            elif message.strip():
                line = exchange.connection.observer.read(message)
                if not line.messages and may_list(message):
                    # Some clients read JSON in other encodings than UTF-8.
                    observations += self.lost(exchange, "server->client", at)
                    continue
                observations += self._take(exchange, "server->client", line, message, at)
        return observations

    @staticmethod
    def _says_nothing(exchange: Exchange, message: bytes | None) -> bool:
        """Tell whether a message is an unclear part of a refusal, as anyone can have a request refused."""
        if not exchange.is_refused or message is None:
            return exchange.is_refused
        line = exchange.connection.observer.read(message)
        return not line.exact or is_ambiguous(line, message, EVENT_BREAK)

    def shown(self, exchange: Exchange, data: bytes | None, at: datetime) -> list[Shown]:
        """Do as ``from_server``, and return what the client gets instead of the bytes; they may be held back."""
        if exchange.events is None:
            return [Shown(data or b"", self.from_server(exchange, data, at))]
        if data is None:
            return []
        gate, events, shown = exchange.gate, exchange.events, []
        self._kept_bytes -= events.kept_bytes
        for event in events.feed(data):
            if event.messages and self._says_nothing(exchange, event.messages[0]):
                passes = None not in event.messages and not may_list(event.raw)
                shown.append(Shown(event.raw if passes else b"", is_withheld=not passes))
                continue
            if None in event.messages:
                found = gate.missed_line(at, exchange=exchange.number)
            elif event.messages:
                found = gate.show(event.messages[0] or b"", at, exchange=exchange.number)
            else:
                found = Shown(event.raw)
            unchanged = not event.messages or found.text is event.messages[0]
            shown.append(replace(found, text=event.raw if unchanged else event.saying(found.text)))
        if self._kept_bytes + events.kept_bytes > self._limits.kept_bytes_max:
            events.lose()
        self._kept_bytes += events.kept_bytes
        return shown

    def shown_whole(self, exchange: Exchange, body: bytes, at: datetime) -> Shown:
        """Return what the client gets of a whole body: nothing if it cannot be read for certain."""
        gate, shown = exchange.gate, Shown(body)
        for part in (body, None):
            for message in self._read(exchange, "server->client", part):
                if self._says_nothing(exchange, message):
                    passes = message is not None and not may_list(message)
                    return shown if passes else Shown(b"", is_withheld=True)
                if message is None:
                    return Shown(b"", self.lost(exchange, "server->client", at), is_withheld=True)
                found = gate.show(message, at, exchange=exchange.number)
                shown = found if found.text is not message else replace(found, text=body)
        return shown

    def rule(self, exchange: Exchange, body: bytes, fields: HeaderFields, at: datetime) -> Passage:
        """Rule on the whole body of a request; the connection must have a gate.

        What is not by its headers what was read here does not pass: some server would read it as they say.
        """
        gate = exchange.gate
        encoding = first(fields, "content-encoding")
        raw = plain_body(body, encoding, message_bytes_max=self._message_bytes_max)
        line = exchange.connection.observer.read(body if raw is None else raw)
        header = repeated(fields) or next((name for each in line.messages if (name := mismatch(fields, each))), None)
        if header is not None:
            return gate.held_back(line, "header_mismatch", at, header=header)
        if raw is None or is_request_unclear(fields):
            return gate.held_back(line, "body_unclear", at)

        def take(line: Line, message: bytes, asked_at: datetime) -> list[Observation]:
            return self._asked(exchange, line, message, asked_at)

        return gate.inward(raw, at, take)

    def lost(self, exchange: Exchange, direction: Direction, at: datetime) -> list[Observation]:
        """Note that bytes of a body passed unseen, and return what that yields."""
        exchange.is_unread |= direction == "client->server"
        return exchange.connection.observer.missed(direction, at, exchange=exchange.number)

    def missed(self, exchanges: int, at: datetime) -> list[Observation]:
        """Return what says that exchanges passed unseen. What was in them is not known: each counts as a call."""
        return [loss_event(self._vantage, event_id=self._new_id(), observed_at=at, lists=0, calls=exchanges)]

    def closed(self, exchange: Exchange, ending: Ending, at: datetime) -> list[Observation]:
        """End an exchange; what it leaves unanswered is answered elsewhere, or never."""
        observer, asked = exchange.connection.observer, exchange.asked
        exchange.asked = []
        observer.ended(exchange.number)
        # A server that refused it did nothing, and anyone can have a request refused.
        lost = self.missed(1, at) if exchange.is_unread and not exchange.is_refused else []
        self._kept_bytes -= exchange.let_go()
        if exchange.connection.gate is not None:
            exchange.connection.gate.offered.cut_off(exchange.number)
        if exchange.method == "DELETE" and exchange.is_successful:
            return lost + (self.connections.end(exchange.connection, at) if exchange.session_id is not None else [])
        if exchange.session_id is not None and exchange.is_successful:
            return lost + [each for key in asked for each in observer.orphaned(key, at)]
        code, ok = exchange.why_unanswered(ending), False if exchange.is_refused else None
        return lost + [each for key in asked for each in observer.unanswered(key, code, at, ok=ok)]

    def close(self, at: datetime) -> list[Observation]:
        return self.connections.close(at)

    def _response_body(self, exchange: Exchange, fields: HeaderFields) -> Body:
        """Return what reads a response: as messages, whatever it is called, unless clients may find others in it."""
        kind, encoding = first(fields, "content-type"), first(fields, "content-encoding")
        gate, is_refused = exchange.connection.gate, not exchange.is_successful
        body = body_of(kind, encoding, message_bytes_max=self._message_bytes_max)
        charsets = CHARSETS_WITH_ASCII if gate is None or is_refused else UTF_8
        is_unclear = is_body_unclear(fields, charsets=charsets)
        if isinstance(body, Opaque):
            is_unclear |= gate is not None and not is_refused
            body = body_of(None, encoding, message_bytes_max=self._message_bytes_max)
        return Unreadable() if is_unclear and (not is_refused or (gate is not None and gate.hides)) else body

    def _read(self, exchange: Exchange, direction: Direction, data: bytes | None) -> list[bytes | None]:
        body = exchange.request if direction == "client->server" else exchange.response
        before_bytes = body.kept_bytes
        messages = list(body.end() if data is None else body.feed(data))
        after_bytes = 0 if data is None else body.kept_bytes
        self._kept_bytes += after_bytes - before_bytes
        if data is None or self._kept_bytes > self._limits.kept_bytes_max:
            # Nothing comes after the end; and what has no room is let go.
            self._kept_bytes -= after_bytes
            if direction == "client->server":
                exchange.request = Opaque()
            else:
                exchange.response = Opaque()
            messages += [None] * (after_bytes > 0)
        return messages

    def _asked(self, exchange: Exchange, line: Line, message: bytes, at: datetime) -> list[Observation]:
        exchange.note_asked(line)
        if not any(map(_concerns_others, line.messages)):
            return self._take(exchange, "client->server", line, message, at)
        observations = self._take_part(exchange, message, at, of_others=False)
        if exchange.is_successful:
            return observations + self._take_part(exchange, message, at, of_others=True)
        if exchange.waiting is not None or self._kept_bytes + len(message) > self._limits.kept_bytes_max:
            return observations + self.lost(exchange, "client->server", at)
        exchange.waiting = message, at
        self._kept_bytes += len(message)
        return observations

    def _take_part(self, exchange: Exchange, raw: bytes, at: datetime, *, of_others: bool) -> list[Observation]:
        line = exchange.connection.observer.read(raw)
        # Without a session clients count from 1 each, so that an id names nobody's request.
        named = (each for each in line.messages if exchange.session_id is not None or each.get("method") != CANCELLED)
        messages = tuple(each for each in named if _concerns_others(each) is of_others)
        return self._take(exchange, "client->server", replace(line, messages=messages), raw, at) if messages else []

    def _take(
        self, exchange: Exchange, direction: Direction, line: Line, raw: bytes, at: datetime
    ) -> list[Observation]:
        return exchange.connection.observer.take(direction, line, raw, at, exchange=exchange.number)


def _concerns_others(message: Mapping[str, Any]) -> bool:
    """Tell whether a client's message is about more than its own exchange: what a server asked, a task, a session."""
    method = message.get("method")
    is_notice = ("method" not in message or "id" not in message) and method != "tools/call"
    return is_notice or method in ("initialize", "tasks/update")
