"""One MCP connection without I/O: messages in, observations and commands for its host out.

A host owns the bytes (``observe.tap`` for pipes, ``observe.http`` for HTTP, ``observe.feeds`` for hooks of
gateways). It passes in each message as an event and executes the resulting commands. ``Session`` only
observes; ``observe.gate`` has the sessions that refuse calls and hide tools.

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

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.observe.calls import CALL, INPUT_METHODS, PROGRESS, TASK_METHODS, TASK_NOTIFICATIONS, CallObserver
from assay_stream.observe.lists import LIST_CHANGED, METHODS, TOOLS, HiddenTool, ListObserver, Offered
from assay_stream.observe.observation import Observation, loss_event
from assay_stream.observe.wire import (
    BLANKS,
    Direction,
    Line,
    RequestKey,
    WireConnection,
    answer_keys,
    is_misread,
    is_response,
    is_unread_list,
    listed_in,
    may_be_misread,
    meta_of,
    params_of,
    read_line,
    request_key,
)

if TYPE_CHECKING:
    from assay_stream.observe.gate import Rule

LINE_BYTES_MAX = 4 * DEFAULT_LIMITS.record_bytes_max
"""The longest line that is read. Tool results carry files, so they are larger than any list of tools."""

CANCELLED = "notifications/cancelled"
_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_NOTHING: Mapping[int, Sequence[HiddenTool]] = {}

Key = TypeVar("Key")

_NAMES_LOGGED = 5


class ClientSaid(NamedTuple):
    """A client message on its way to the server."""

    raw: bytes


class ServerSaid(NamedTuple):
    """A server message on its way to the client; ``exchange`` as in ``Session.take``."""

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
    """

    forward: bytes | None = None
    observations: list[Observation] = field(default_factory=list)
    reply: bytes = b""
    warnings: list[str] = field(default_factory=list)
    hidden: tuple[str, ...] = ()
    withheld: int = 0
    is_bad_request: bool = False

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


@dataclass(eq=False, repr=False)
class Session(WireConnection):
    """Observe one connection between a client and a server, and let everything pass. Times must be timezone-aware."""

    enforces: ClassVar[bool] = False
    """Whether a client message passes only after a ruling."""

    hides: ClassVar[bool] = False
    """Whether server messages must be held until it is known what the client gets of them."""

    lists: ListObserver = field(init=False)
    calls: CallObserver = field(init=False)
    _refused: set[int] = field(default_factory=set, init=False)
    """Exchanges that the server refused, which anyone can provoke."""
    _lost_at: datetime | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._line_limits = replace(self.limits, record_bytes_max=LINE_BYTES_MAX)
        self.lists, self.calls = ListObserver(self), CallObserver(self)

    @property
    def offered(self) -> Offered:
        return self.lists.offered

    def awaits_list(self, exchange: int = 0) -> bool:
        """Return True if a response in an exchange may be a list of tools that the client asked for."""
        return any(True for _ in self.lists.for_tools(exchange))

    def answers_call(self, message: Mapping[str, Any], exchange: int = 0) -> bool:
        """Return True if a response answers a call, and no client with looser id matching takes it for a list's."""
        own, keys = request_key(message.get("id")), answer_keys(message.get("id"), exchange)
        # Some clients accept any message in an exchange as the answer to its request.
        is_for_list = exchange and self.awaits_list(exchange)
        if not is_response(message) or is_for_list or any(self.lists.awaited(key) for key in keys):
            return False
        return any(self.calls.awaits(key) for key in keys if key[:2] == own)

    def answers_list(self, message: Mapping[str, Any], exchange: int = 0) -> bool:
        return any(self.lists.awaited(key) == TOOLS for key in answer_keys(message.get("id"), exchange))

    def receive(self, event: Event, at: datetime) -> Commands:
        match event:
            case ClientSaid(raw) | ServerSaid(raw) if not raw.strip(BLANKS):
                return Commands(raw)
            case ClientSaid(raw):
                return self._from_client(self.read(raw), raw, at)
            case ServerSaid(raw, exchange):
                return self._from_server(self.read(raw), raw, at, exchange)
            case Missed(direction, exchange):
                return self._missed(direction, at, exchange)
            case Failed():
                return self._failed(event, at)

    def rule(self, line: Line, raw: bytes, at: datetime) -> Commands:  # noqa: ARG002 - for sessions that refuse
        """Rule on a line, without observing it if it may pass."""
        return Commands(raw)

    def _from_client(self, line: Line, raw: bytes, at: datetime) -> Commands:
        commands = self.rule(line, raw, at)
        if commands.forward is not None:
            commands.observations += self.take("client->server", line, raw, at)
            if not self.enforces and may_be_misread(line, raw):
                commands.observations += self.lost(at)
        return commands

    def _from_server(self, line: Line, raw: bytes, at: datetime, exchange: int) -> Commands:
        # A client that ignores case may be given another list than the one that is read here.
        is_other_list = self.awaits_list(exchange) and any(map(is_misread, line.messages))
        if is_other_list or is_unread_list(line, raw):
            return Commands(raw, self.missed("server->client", at, exchange=exchange))
        return Commands(raw, self.take("server->client", line, raw, at, exchange=exchange))

    def _missed(self, direction: Direction, at: datetime, exchange: int) -> Commands:
        return Commands(b"", self.missed(direction, at, exchange=exchange))

    def _failed(self, event: Failed, at: datetime) -> Commands:  # noqa: ARG002 - observing holds nothing back
        return Commands(event.raw)

    def feed(self, direction: Direction, raw: bytes, observed_at: datetime) -> list[Observation]:
        event: Event = ClientSaid(raw) if direction == "client->server" else ServerSaid(raw)
        return self.receive(event, observed_at).observations

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
        """Observe a parsed line: ``feed`` is ``read`` and this.

        Args:
            exchange: number of the HTTP exchange that the line came in: request ids are unique within it only. 0 if
                they are unique on the connection.
            hidden: list entries withheld from the client, by the ``id()`` of their message's object.
            shown_name: the client's name for a call's tool, where a gateway reports the server's own name.
        """
        self.begin(observed_at, exchange, exact=line.exact)
        self._count(line)
        self.calls.expire()
        for message in line.messages:
            method = message.get("method")
            if direction == "client->server" and "method" in message:
                self._request(message, method, shown_name)
            elif direction == "client->server":
                self.calls.client_answered(message)
            elif is_response(message):
                self._response(message, raw.strip(BLANKS), hidden.get(id(message), ()))
            elif isinstance(method, str) and method in _ON_SERVER_MESSAGE and exchange not in self._refused:
                _ON_SERVER_MESSAGE[method](self, message)
        return self.found

    def refuse(
        self, line: Line, reason_code: Callable[[Mapping[str, Any]], str], observed_at: datetime
    ) -> list[Observation]:
        """Process a client line that is not forwarded, and return its calls as denied."""
        self.begin(observed_at, exact=line.exact)
        self._count(line)
        before = self.lists.snapshot_id()
        for each in line.messages:
            if each.get("method") == CALL:
                self.calls.refuse(each, before, reason_code(each))
        return self.found

    def withheld(self, line: Line, code: str, observed_at: datetime, *, exchange: int = 0) -> list[Observation]:
        """Record that the client gets errors instead of the answers in a line, which may be taken afterwards."""
        self.begin(observed_at, exchange)
        for message in line.messages:
            if is_response(message):
                any(self.calls.give_up(key, code, ok=False) for key in self._answered(message, exchange))
        return self.found

    def missed(self, direction: Direction, observed_at: datetime, *, exchange: int = 0) -> list[Observation]:
        """Record an uninspected line. Whether a client's is a loss depends on how its exchange ends."""
        self.begin(observed_at, exchange)
        self.counts.missed_lines += 1
        if direction == "client->server":
            return [] if exchange else self.lost(observed_at)
        self.lists.missed()
        self.lists.greeting_missed()
        return self.found

    def lost(self, at: datetime) -> list[Observation]:
        """Return the loss event of a client line that may have been an unrecorded call."""
        # A few bytes can be such a line, and many may come at once: one record covers them all.
        if self._lost_at == at:
            return []
        self._lost_at = at
        return [loss_event(self.vantage, event_id=self.new_id(), observed_at=at, lists=0, calls=1)]

    def unanswered(
        self, key: RequestKey, code: str, observed_at: datetime, *, ok: bool | None = None
    ) -> list[Observation]:
        """Record that a request will not be answered, and return its call, if it is one; ``code`` says why."""
        self.begin(observed_at)
        self.calls.give_up(key, code, ok=ok)
        self.lists.give_up(key)
        return self.found

    def exchange_refused(self, exchange: int, keys: Iterable[RequestKey], observed_at: datetime) -> list[Observation]:
        """Record that an exchange was refused: its requests have no effect, and its responses answer only them."""
        self.begin(observed_at)
        self._refused.add(exchange)
        for key in keys:
            self.calls.undo(key)
        return self.found

    def exchange_ended(self, exchange: int) -> None:
        self._refused.discard(exchange)

    def orphaned(self, key: RequestKey, observed_at: datetime) -> list[Observation]:
        """Record that an exchange ended before it answered a request, which a later exchange may answer."""
        self.begin(observed_at)
        self.lists.orphan(key)
        self.calls.orphan(key)
        return self.found

    def expire(self, observed_at: datetime) -> list[Observation]:
        self.begin(observed_at)
        self.calls.expire()
        return self.found

    def close(self, observed_at: datetime) -> list[Observation]:
        self.begin(observed_at)
        self.calls.close()
        return self.found

    def _answered(self, message: Mapping[str, Any], exchange: int) -> list[RequestKey]:
        """Return the requests that a response may answer: in a refused exchange, only its own."""
        keys = answer_keys(message.get("id"), exchange)
        return [key for key in keys if len(key) == 3] if exchange in self._refused else keys

    def _count(self, line: Line) -> None:
        stats = self.counts
        stats.lines += 1
        stats.malformed_lines += not line.messages
        stats.inexact_lines += bool(line.messages) and not line.exact

    def _request(self, message: Mapping[str, Any], method: object, shown_name: str | None) -> None:
        exchange, params = self.exchange, params_of(message)
        if method == CANCELLED:
            cancelled = request_key(params.get("requestId"))
            if cancelled is not None:
                self.calls.cancelled(cancelled)
            return
        key = request_key(message.get("id"), exchange)
        if key is not None:
            self.lists.forget(key)
            self.calls.give_up(key, "id_reused")
        if not exchange:  # over HTTP it is in the header, and counts once the server has accepted the request
            self.lists.note_version(meta_of(params).get(_VERSION_KEY))
        if method == CALL:
            self.calls.request(key, params, self.lists.snapshot_id(), shown_name)
        elif key is not None and isinstance(method, str) and method in _ON_REQUEST:
            _ON_REQUEST[method](self, method, key, params)

    def _response(self, message: Mapping[str, Any], raw: bytes, hidden: Sequence[HiddenTool]) -> None:
        exchange, same_id = self.exchange, request_key(message.get("id"))
        is_refused = exchange in self._refused
        is_list = listed_in(message) is not None
        # Some clients accept any message in an exchange as the answer to its request.
        is_taken = exchange and is_list and not is_refused and self.awaits_list(exchange)
        if is_taken and not self.answers_list(message, exchange):
            self.lists.missed()
        for key in self._answered(message, exchange):
            is_same = key[:2] == same_id and "method" not in message
            if self.calls.response(key, message) or self.lists.response(
                key, message, raw, same_id=is_same, hidden=hidden
            ):
                return
        self.counts.unmatched_responses += 1
        if not is_refused:
            self.calls.strayed(answer_keys(message.get("id")), message)
            if is_list:
                self.lists.strayed(answer_keys(message.get("id")), message, len(raw))


WireObserver = Session
"""Its public name, for those who only feed it."""

_ON_REQUEST: dict[str, Callable[[Session, str, RequestKey, Mapping[str, Any]], None]] = {
    **dict.fromkeys(METHODS, lambda wire, method, key, params: wire.lists.request(method, key, params)),
    **dict.fromkeys(TASK_METHODS, lambda wire, method, key, params: wire.calls.task_request(method, key, params)),
}
"""How a client's requests are handled, by method; ``tools/call`` and cancellations are in ``_request``."""

_ON_SERVER_MESSAGE: dict[str, Callable[[Session, Mapping[str, Any]], None]] = {
    LIST_CHANGED: lambda wire, _: wire.lists.changed(),  # by itself, or on a stream of subscriptions/listen
    PROGRESS: lambda wire, message: wire.calls.progressed(params_of(message)),
    **dict.fromkeys(TASK_NOTIFICATIONS, lambda wire, message: wire.calls.task_changed(params_of(message))),
    **dict.fromkeys(INPUT_METHODS, lambda wire, message: wire.calls.client_asked(message)),
}
"""How a server's requests and notifications are handled, by method."""


def session_maker(rule: Rule | None, *, hide: bool = False, **options: Any) -> Callable[..., Session]:
    """Return what makes sessions of ``vantage``, ``session_id`` and ``new_id``; with a rule they refuse calls.

    Args:
        hide: whether tools whose calls would be refused are dropped from lists.
        options: fields of the sessions.
    """
    if rule is None:
        return partial(Session, **options)
    # Imported here: what does not enforce starts faster without the schemes.
    from assay_stream.observe.gate import Gate, HidingGate

    return partial(HidingGate if hide else Gate, decide=rule, **options)


def to_evict(sessions: Mapping[Key, Session], count_max: int) -> Key | None:
    """Return which of too many sessions, the least recently used first, is to end; ``None`` if there is room."""
    if len(sessions) <= count_max:
        return None
    # Made-up clients must not end the open calls of others.
    others = islice(sessions, count_max)
    resting = next((key for key in others if not sessions[key].calls.open_calls), None)
    return next(iter(sessions)) if resting is None else resting
