"""Turns the messages of an MCP connection into observations: a deterministic state machine without clock or I/O.

Every tap feeds it: the stdio tap with lines, the HTTP tap with the bodies and events of HTTP exchanges.

Rules:

1. Every ``tools/list`` result yields a snapshot of the list assembled so far (``observe.lists``).
2. A result that strict decoding refuses still yields a snapshot, just as unsound: the registry must see it
   and reject it, or a malformed list could keep an old one in force.
3. Every call yields one call event, with its outcome or the reason for its absence (``observe.calls``).
4. A call refers to the latest snapshot before it, accepted or not; to none if the server has since announced that
   its tools changed (``notifications/tools/list_changed``).
5. String ids and number ids are distinct, but the id of an unexpected response is also tried as a number.
6. Instructions go with the tools: those of the latest answer to ``initialize`` or ``server/discover``.
7. Nothing here raises: unreadable input is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from assay_stream.limits.core import DEFAULT_LIMITS, Limits
from assay_stream.observe.calls import TASK_METHODS, CallObserver
from assay_stream.observe.jsonrpc import (
    BLANKS,
    Direction,
    Line,
    RequestKey,
    answer_keys,
    listed_in,
    may_be_misread,
    meta_of,
    params_of,
    read_line,
    request_key,
)
from assay_stream.observe.lists import LIST_CHANGED, METHODS, TOOLS, HiddenTool, ListObserver, Offered
from assay_stream.observe.observation import Observation, Vantage, loss_event
from assay_stream.observe.wire import Pending, WireConnection, WireStats

PENDING_MAX = 10_000
"""Limit of unanswered requests of a kind. A client has a few at a time; each costs under a kilobyte."""

LINE_BYTES_MAX = 4 * DEFAULT_LIMITS.record_bytes_max
"""The longest line that is read. Tool results carry files, so they are larger than any list of tools."""

CANCELLED = "notifications/cancelled"
_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_NOTHING: Mapping[int, Sequence[HiddenTool]] = {}
_GREETINGS = ("initialize", "server/discover")
"""Requests whose result describes the server and instructs the model. The second came with MCP 2026-07-28."""


class WireObserver:
    """Observe one connection between a client and a server. Times must be timezone-aware."""

    def __init__(
        self,
        vantage: Vantage,
        *,
        session_id: str,
        new_id: Callable[[], str],
        limits: Limits = DEFAULT_LIMITS,
        pending_max: int = PENDING_MAX,
        filtered: bool = False,
        retrospective: bool = False,
    ) -> None:
        self._line_limits = replace(limits, record_bytes_max=LINE_BYTES_MAX)
        self._wire = WireConnection(
            vantage=vantage,
            session_id=session_id,
            new_id=new_id,
            limits=limits,
            pending_max=pending_max,
            filtered=filtered,
            retrospective=retrospective,
        )
        self.lists, self.calls = ListObserver(self._wire), CallObserver(self._wire)
        self._greetings = Pending[bool]()
        """Unanswered requests of ``_GREETINGS``."""
        self._refused: set[int] = set()
        """Exchanges that the server refused, which anyone can provoke."""
        self._lost_at: datetime | None = None

    @property
    def stats(self) -> WireStats:
        return replace(self._wire.stats)

    @property
    def vantage(self) -> Vantage:
        return self._wire.vantage

    @property
    def offered(self) -> Offered:
        return self.lists.offered

    def awaited_lists(self, exchange: int) -> Iterator[int | float | str]:
        """Yield the ids of the requests for tools that a response in an exchange may answer; 0 means any."""
        return (key[1] for key in self.lists.for_tools(exchange))

    def awaits_list(self, exchange: int = 0) -> bool:
        """Return True if a response in an exchange may be a list of tools that the client asked for."""
        return any(True for _ in self.lists.for_tools(exchange))

    def answers_call(self, message: Mapping[str, Any], exchange: int = 0) -> bool:
        """Return True if a response answers a call, and no client with looser id matching takes it for a list's."""
        own, keys = request_key(message.get("id")), answer_keys(message.get("id"), exchange)
        # Some clients take whatever comes in an exchange for the answer to its request.
        is_for_list = exchange and self.awaits_list(exchange)
        if "method" in message or is_for_list or any(self.lists.awaited(key) for key in keys):
            return False
        return any(self.calls.awaits(key) for key in keys if key[:2] == own)

    def answers_list(self, message: Mapping[str, Any], exchange: int = 0) -> bool:
        return any(self.lists.awaited(key) == TOOLS for key in answer_keys(message.get("id"), exchange))

    def feed(self, direction: Direction, raw: bytes, observed_at: datetime) -> list[Observation]:
        """Process one line and return the observations to publish, in order."""
        if not raw.strip(BLANKS):
            return []
        line = self.read(raw)
        is_lost = direction == "client->server" and may_be_misread(line, raw)
        observations = self.take(direction, line, raw, observed_at)
        return [*observations, *self.lost(observed_at)] if is_lost else observations

    def read(self, raw: bytes) -> Line:
        """Parse a line for ``take`` and ``refuse``."""
        return read_line(raw.strip(BLANKS), self._line_limits)

    def take(
        self,
        direction: Direction,
        line: Line,
        raw: bytes,
        observed_at: datetime,
        *,
        exchange: int = 0,
        hidden: Mapping[int, Sequence[HiddenTool]] = _NOTHING,
        shown_name: str | None = None,
    ) -> list[Observation]:
        """Process a parsed line as ``feed`` does.

        Args:
            exchange: number of the HTTP exchange that the line came in: request ids are unique within it only. 0 if
                they are unique on the connection.
            hidden: list entries withheld from the client, by the ``id()`` of their message's object.
            shown_name: the client's name for a call's tool, where a gateway reports the server's own name.
        """
        raw = raw.strip(BLANKS)
        self._count(line)
        observations = self.calls.expire(observed_at)
        for message in line.messages:
            if direction == "client->server":
                if "method" in message:
                    observations += self._request(message, line.exact, observed_at, exchange, shown_name)
                else:
                    self.calls.answered_by_client(message)
            elif "method" not in message:
                observations += self._response(
                    message, raw, line.exact, observed_at, exchange, hidden.get(id(message), ())
                )
            elif exchange in self._refused:
                continue
            elif message["method"] == LIST_CHANGED:
                # By itself, or on a stream that subscriptions/listen opened.
                observations += self.lists.changed(observed_at)
            else:
                observations += self.calls.said(message, line.exact, observed_at, exchange)
        return observations

    def refuse(
        self, line: Line, reason_code: Callable[[Mapping[str, Any]], str], observed_at: datetime
    ) -> list[Observation]:
        """Process a client line that is not forwarded, and return its calls as denied."""
        self._count(line)
        before = self.lists.snapshot_before(observed_at)
        calls = (each for each in line.messages if each.get("method") == "tools/call")
        return [self.calls.refused(each, before, line.exact, observed_at, reason_code(each)) for each in calls]

    def withheld(self, line: Line, code: str, observed_at: datetime, *, exchange: int = 0) -> list[Observation]:
        """Record that the client gets errors instead of the answers in a line, and return the calls that this ends.

        The line itself may be passed to ``take`` afterwards.
        """
        observations = []
        for message in line.messages:
            for key in self._answered(message, exchange) if "method" not in message else ():
                ended = self.calls.give_up(key, code, observed_at, ok=False)
                observations += ended
                if ended:
                    break
        return observations

    def missed(self, direction: Direction, observed_at: datetime, *, exchange: int = 0) -> list[Observation]:
        """Record a line that could not be inspected, and return the observations.

        Whether a missed client line in an HTTP exchange is a loss depends on the outcome of the exchange.
        """
        self._wire.stats.missed_lines += 1
        if direction == "client->server":
            return [] if exchange else self.lost(observed_at)
        asked = self._greetings.latest_in(exchange) is not None
        unread = self.lists.greeting_missed(observed_at) if asked else []
        return [*self.lists.missed(observed_at, exchange), *unread]

    def lost(self, at: datetime) -> list[Observation]:
        """Return the loss event of a client line that may have been an unrecorded call."""
        # A few bytes can be such a line, and many of them come at once: one record says it of all.
        if self._lost_at == at:
            return []
        self._lost_at = at
        return [loss_event(self._wire.vantage, event_id=self._wire.new_id(), observed_at=at, lists=0, calls=1)]

    def shown_as(self, prefix: str) -> None:
        """Set the gateway's tool name prefix from now on."""
        self._wire.vantage = replace(self._wire.vantage, shown_prefix=prefix)

    def unanswered(
        self, key: RequestKey, code: str, observed_at: datetime, *, ok: bool | None = None
    ) -> list[Observation]:
        """Record that a request will not be answered, and return its call, if it is one; ``code`` says why."""
        self._greetings.take(key)
        return self.calls.give_up(key, code, observed_at, ok=ok) + self.lists.give_up(key, observed_at)

    def refused(self, exchange: int, keys: Iterable[RequestKey], observed_at: datetime) -> list[Observation]:
        """Record that an exchange was refused: its requests have no effect, and its responses answer only them."""
        self._refused.add(exchange)
        return [each for key in keys for each in self.calls.undo(key, observed_at)]

    def ended(self, exchange: int) -> None:
        self._refused.discard(exchange)

    def orphaned(self, key: RequestKey, observed_at: datetime) -> list[Observation]:
        """Record that an exchange ended before it answered a request, which a later exchange may answer."""
        self.lists.orphan(key)
        if self._greetings.take(key):
            self._greetings.take(key[:2])
            self._greetings.put(key[:2], True)
        return self.calls.orphan(key, observed_at)

    def close(self, observed_at: datetime) -> list[Observation]:
        return self.calls.close(observed_at)

    def _answered(self, message: Mapping[str, Any], exchange: int) -> list[RequestKey]:
        """Return the requests that a response may answer: in a refused exchange, only its own."""
        keys = answer_keys(message.get("id"), exchange)
        return [key for key in keys if len(key) == 3] if exchange in self._refused else keys

    def _count(self, line: Line) -> None:
        stats = self._wire.stats
        stats.lines += 1
        stats.malformed_lines += not line.messages
        stats.inexact_lines += bool(line.messages) and not line.exact

    def _request(
        self, message: Mapping[str, Any], exact: bool, at: datetime, exchange: int, shown_name: str | None
    ) -> list[Observation]:
        method, params = message["method"], params_of(message)
        if method == CANCELLED:
            cancelled = request_key(params.get("requestId"))
            return [] if cancelled is None else self.calls.cancelled(cancelled, at)
        key = request_key(message.get("id"), exchange)
        observations: list[Observation] = []
        if key is not None:
            self.lists.forget(key)
            self._greetings.take(key)
            observations += self.calls.give_up(key, "id_reused", at)
        if not exchange:  # over HTTP it is in the header, and counts once the server has accepted the request
            self.lists.note_version(meta_of(params).get(_VERSION_KEY))
        if method == "tools/call":
            snapshot_id = self.lists.snapshot_before(at)
            observations += self.calls.request(key, params, snapshot_id, exact, at, shown_name)
        elif key is not None and isinstance(method, str) and method in METHODS:
            self.lists.request(method, key, params)
        elif key is not None and isinstance(method, str) and method in TASK_METHODS:
            self.calls.task_request(method, key, params)
        elif key is not None and method in _GREETINGS:
            self._greetings.put(key, True)
            if len(self._greetings) > self._wire.pending_max and (oldest := self._greetings.oldest()) is not None:
                self._greetings.take(oldest[0])
                self._wire.stats.evicted_requests += 1
        return observations

    def _response(
        self,
        message: Mapping[str, Any],
        raw: bytes,
        exact: bool,
        at: datetime,
        exchange: int,
        hidden: Sequence[HiddenTool],
    ) -> list[Observation]:
        same_id, missed = request_key(message.get("id")), []
        is_refused = exchange in self._refused
        if exchange and listed_in(message) is not None and not self.answers_list(message, exchange):
            # Some clients take whatever comes in an exchange for the answer to its request.
            missed = self.lists.missed(at, exchange) if not is_refused and self.awaits_list(exchange) else []
        for key in self._answered(message, exchange):
            if self._greetings.take(key):
                return self.lists.greeted(message.get("result"), exact, at)
            observations = self.calls.response(key, message, exact, at)
            if observations is None:
                observations = self.lists.response(
                    key, message, raw, exact, at, same_id=key[:2] == same_id, exchange=exchange, hidden=hidden
                )
            if observations is not None:
                return missed + observations
        self._wire.stats.unmatched_responses += 1
        if is_refused:
            return []
        self.calls.strayed(answer_keys(message.get("id")), message, exact)
        if listed_in(message) is not None:
            self.lists.strayed(answer_keys(message.get("id")))
        return missed
