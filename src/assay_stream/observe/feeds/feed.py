"""A feed: the observer of a gateway's hooks, in the gateway's own process.

A hook reports a client's request and the answer. Each view (one client of one server) is followed as a tap
would follow its connection, so that lists, pages, calls, limits and rulings obey the rules of ``observe.session``.

Rules:

1. Nothing here raises or waits into a call that passes: failures are counted by code, and each code is logged once.
   Where a feed enforces, a call whose ruling fails does not pass.
2. What strict decoding would refuse (NaN, a lone surrogate, too much of anything) is noted and never hashed.
3. Lists that a gateway may have filtered are partial, never complete.
4. A call that is reported after it ended refers to a snapshot only if that was seen before the call began.
5. Gateways rename tools: ``prefixes`` map each name to its server and tool. A name that they give to no
   server is attributed, unchanged, to the view's server.
"""

from __future__ import annotations

import functools
import itertools
import json
import logging
import math
import threading
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from assay_stream.canonical.decode import decode_json
from assay_stream.errors import AssayStreamError, InputError
from assay_stream.limits import DEFAULT_LIMITS, FEED_LIMITS, FeedLimits
from assay_stream.observe.calls import CALL as CALL
from assay_stream.observe.lists import LIST_CHANGED
from assay_stream.observe.observation import Observation, Vantage
from assay_stream.observe.session import (
    LINE_BYTES_MAX,
    Event,
    Failed,
    Missed,
    ServerSaid,
    Session,
    session_maker,
    to_evict,
)
from assay_stream.observe.sinks import Sink
from assay_stream.observe.wire import (
    BLOCKED_CODE,
    EVENT_BREAK,
    NOT_RULED_ON,
    Direction,
    Line,
    WireStats,
    error_of,
    is_ambiguous,
    misread_members,
    request_key,
)

if TYPE_CHECKING:
    from assay_stream.observe.gate import Rule
    from assay_stream.observe.observation import Prefixes

UNSOUND: Mapping[str, Any] = {"unsound": math.nan}
"""Placeholder for an unreadable result: NaN is not valid JSON, so it is recorded as unsound and never hashed."""

Renamed = Callable[[str, Sequence[Mapping[str, Any]]], str]
_LINE_LIMITS = replace(DEFAULT_LIMITS, record_bytes_max=LINE_BYTES_MAX)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientView:
    """What one client sees of one server.

    Args:
        server_id: the operator's name for the server; of several behind one gateway, those that ``Named`` gives.
        auth_context: label of the permissions under which the server is used; published.
        client: distinguishes clients of one context, such as a session id; never published.
        shown_prefix: the gateway's prefix of the tool names; ``None`` if unchanged.
    """

    server_id: str
    auth_context: str | None = None
    client: str = ""
    shown_prefix: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that a hook reported; one with an error, the answer to return, may not pass."""

    view: ClientView
    message: dict[str, Any]
    error: Mapping[str, Any] | None = None


@dataclass(eq=False, repr=False)
class Feed:
    """Report the traffic of one gateway. Thread-safe.

    Args:
        server_id: the server behind the gateway; with several, the one for names that match no prefix.
        observer_id: the gateway.
        sink: receives the observations, such as a started ``ObservationPublisher``.
        rule: what to do with a call (``VerdictClient.rule``); without it every call passes.
        prefixes: the gateway's tool name prefixes by server.
        filtered: whether the gateway may omit tools from lists.
        retrospective: whether calls are reported after they ended.

    Raises:
        ConfigurationError: ``bad_identifier``.
    """

    server_id: str
    observer_id: str
    sink: Sink
    _: KW_ONLY
    auth_context: str | None = None
    rule: Rule | None = None
    prefixes: Prefixes | None = None
    filtered: bool = False
    retrospective: bool = False
    server_scoped: bool = True
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    new_id: Callable[[], str] = lambda: str(uuid.uuid4())
    limits: FeedLimits = FEED_LIMITS

    def __post_init__(self) -> None:
        self.failures: Counter[str] = Counter()
        """Observation failures, by error code, or by exception class where there is none."""
        self.refused = 0
        self.forgotten_views = 0
        """Views evicted by newer ones."""
        self._vantage = Vantage(
            server_id=self.server_id,
            observer_id=self.observer_id,
            auth_context=self.auth_context,
            server_scoped=self.server_scoped,
        )
        self._view = ClientView(server_id=self.server_id, auth_context=self.auth_context)
        options = {} if self.rule is None else {"over_http": True}
        self._new_session = session_maker(
            self.rule, filtered=self.filtered, retrospective=self.retrospective, **options
        )
        self._lock = threading.Lock()
        self._found: list[Observation] = []
        """What the step under way has observed."""
        self._sessions: OrderedDict[ClientView, Session] = OrderedDict()
        self._past = WireStats()
        self._numbers = itertools.count(1)

    @property
    def stats(self) -> WireStats:
        with self._lock:
            return sum((each.stats for each in self._sessions.values()), self._past)

    def view(self, client: str = "", *, server_id: str = "", auth_context: str | None = None) -> ClientView:
        """Return the view of a client; without arguments, the one shared by all clients."""
        own = self._view
        return ClientView(
            server_id=server_id or own.server_id, auth_context=auth_context or own.auth_context, client=client
        )

    def ask(
        self,
        method: str,
        params: Callable[[], Mapping[str, Any]],
        *,
        view: ClientView | Callable[[], ClientView] | None = None,
        at: datetime | None = None,
        call_id: str = "",
        shown_name: str | None = None,
        renamed: Renamed | None = None,
    ) -> Asked | None:
        """Record a client's request; ``None`` if that failed. If the result has an ``error``, it must not pass.

        Args:
            params: returns the JSON-RPC parameters: of a call, ``name``, ``arguments``, and ``_meta`` with
                a ``traceparent``; exceptions in it are counted as ours.
            view: the client's view, or a function that returns it; without it all clients share one.
            at: time of the request; default: now.
            call_id: the gateway's own id of the call; default: the next number.
            shown_name: the client's name for the tool, where the gateway reports the server's own name.
            renamed: the call's name for rulings and records, by the tool's name and its definitions as shown.
        """
        client, given = self._view, dict[str, Any]()
        try:
            given = dict(params())
            client = view() if callable(view) else view or client
            with self._observing():
                number = call_id or next(self._numbers)
                message = {"jsonrpc": "2.0", "id": number, "method": method, "params": dict(given)}
                asked = Asked(view=client, message=message)
                if method == CALL:  # of others it is known from the answer which servers are concerned
                    asked = self._call(asked, at or self.clock(), shown_name, renamed)
        except Exception as error:  # noqa: BLE001 - no failure of the observer may reach the call
            self._note(error)
            if self.rule is None or method != CALL:
                return None
            unruled = {"id": None, "method": method, "params": given}
            asked = Asked(view=client, message=unruled, error=error_of(BLOCKED_CODE, NOT_RULED_ON, "not_ruled_on"))
            self._run(lambda at: self._receive(self._follow(client, at), Failed(encoded(_bare(unruled))), at))
        self.refused += asked.error is not None
        return asked

    def answer(
        self, asked: Asked | None, answer: Callable[[], Mapping[str, Any]], *, at: datetime | None = None
    ) -> None:
        """Record the answer: ``{"result": ...}`` as the client got it, or ``{"error": {"code": ...}}``."""
        if asked is None or asked.error is not None:
            return
        try:
            with self._observing():
                self._answered(asked, answer(), at or self.clock())
        except Exception as error:  # noqa: BLE001 - as above
            self._note(error)
            # A list may not have been inspected: until the next complete ones this client's tools are unknown.
            with self._lock:
                for view, session in self._sessions.items():
                    if (view.client, view.auth_context) == (asked.view.client, asked.view.auth_context):
                        session.offered.doubt()

    def unanswered(self, asked: Asked | None, code: str, *, ok: bool | None = None, at: datetime | None = None) -> None:
        """Record that the answer to a request will not be seen; ``code`` says why, ``ok`` whether it means success."""
        key = None if asked is None or asked.error is not None else request_key(asked.message["id"])
        if asked is None or key is None:
            return

        def end(now: datetime) -> None:
            if (session := self._sessions.get(asked.view)) is not None:
                self._found += session.unanswered(key, code, at or now, ok=ok)

        self._run(end)

    def changed(self, view: ClientView | None = None) -> None:
        """Record that a client was notified of changed tools."""
        message = {"jsonrpc": "2.0", "method": LIST_CHANGED}
        self._run(lambda at: self._outward(view or self._view, message, at))

    def close(self) -> None:
        """Report the calls that will never be answered. The sink stays open; its owner closes it."""

        def end(at: datetime) -> None:
            for view in list(self._sessions):
                self._forget(view, at)

        self._run(end)

    def guard(self, step: Callable[[], object]) -> None:
        """Run a hook's side effect; count failures and swallow them."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - no failure of the observer may reach the gateway
            self._note(error)

    def _call(self, asked: Asked, at: datetime, shown_name: str | None, renamed: Renamed | None) -> Asked:
        message, view = asked.message, asked.view
        name = message["params"].get("name")
        if self.prefixes is not None and isinstance(name, str):
            own = self.prefixes.own(name)
            message["params"]["name"] = own.tool_name
            view = replace(view, server_id=own.server_id or view.server_id, shown_prefix=own.prefix)
        session = self._follow(view, at)
        if renamed is not None:
            name, server_id = message["params"]["name"], session.vantage.server_id
            # Evidence of a client that was shown none is bound to what others were shown.
            others = (each for each in self._sessions.values() if each.vantage.server_id == server_id)
            shown = session.offered.of(name) or [tool for each in others for tool in each.offered.of(name)]
            message["params"]["name"] = renamed(name, shown)
        raw = encoded_within(message, self.limits.message_bytes_max)
        # Whether a call may pass does not depend on its arguments.
        bare = raw or encoded(_bare(message))
        commands = session.rule(session.read(bare), bare, at)
        self._found += commands.observations
        for notice in commands.notices:
            _log.warning("%s", notice)
        if commands.forward is None:
            reply = json.loads(commands.reply) if commands.reply else {}
            return Asked(view=view, message=message, error=reply.get("error", {}))
        self._take(session, "client->server", message, raw, at, shown_name)
        # Kept until the answer comes, which does not need the parameters.
        return Asked(view=view, message={**message, "params": {}})

    def _answered(self, asked: Asked, answer: Mapping[str, Any], at: datetime) -> None:
        reply = {"jsonrpc": "2.0", "id": asked.message["id"], **answer}
        if asked.message["method"] == CALL:
            self._outward(asked.view, reply, at)
            return
        raw = encoded_within(asked.message, self.limits.message_bytes_max)
        for view, part in self._by_server(asked.view, reply):
            self._take(self._follow(view, at), "client->server", asked.message, raw, at)
            self._outward(view, part, at)

    def _follow(self, view: ClientView, at: datetime) -> Session:
        session = self._sessions.get(view)
        if session is not None:
            self._sessions.move_to_end(view)
            if view.shown_prefix is not None:
                session.vantage = replace(session.vantage, shown_prefix=view.shown_prefix)
            return session
        vantage = replace(
            self._vantage,
            server_id=view.server_id,
            auth_context=view.auth_context,
            shown_prefix=view.shown_prefix or "",
        )
        session = self._new_session(vantage, session_id=self.new_id(), new_id=self.new_id)
        self._sessions[view] = session
        evicted = to_evict(self._sessions, self.limits.views_max)
        if evicted is not None:
            self.forgotten_views += 1
            self._forget(evicted, at)
        return session

    def _forget(self, view: ClientView, at: datetime) -> None:
        observer = self._sessions.pop(view)
        self._past += observer.stats
        self._found += observer.close(at)

    def _by_server(self, view: ClientView, reply: dict[str, Any]) -> Iterator[tuple[ClientView, dict[str, Any]]]:
        result = reply.get("result")
        tools = result.get("tools") if isinstance(result, dict) else None
        if self.prefixes is None or not isinstance(result, dict) or not isinstance(tools, list) or not tools:
            yield view, reply
            return
        parts = self.prefixes.split(tools)
        shared = shared_members(result, self.limits) if len(parts) > 1 else result
        for (server_id, prefix), part in parts.items():
            own = replace(view, server_id=server_id or view.server_id, shown_prefix=prefix)
            yield own, {**reply, "result": {**shared, "tools": part}}

    def _outward(self, view: ClientView, message: dict[str, Any], at: datetime) -> None:
        session = self._follow(view, at)
        raw = encoded_within(message, self.limits.message_bytes_max)
        if raw:
            self._receive(session, ServerSaid(raw), at)
            session.offered.delivered()
        elif session.awaits_list():
            self._receive(session, Missed("server->client"), at)
        else:
            self._take(session, "server->client", message, raw, at)

    def _receive(self, session: Session, event: Event, at: datetime) -> None:
        self._found += session.receive(event, at).observations

    def _take(
        self,
        session: Session,
        direction: Direction,
        message: dict[str, Any],
        raw: bytes,
        at: datetime,
        shown_name: str | None = None,
    ) -> None:
        line = session.read(raw) if raw else Line((message,), exact=False)
        self._found += session.take(direction, line, raw, at, shown_name=shown_name)

    @contextmanager
    def _observing(self) -> Iterator[None]:
        """Hold the lock, and publish afterwards what was observed meanwhile."""
        found: list[Observation] = []
        try:
            with self._lock:
                self._found = found
                yield
        finally:
            for observation in found:
                # What a sink cannot take, it counts by itself.
                self.guard(functools.partial(self.sink.publish, observation))

    def _run(self, step: Callable[[datetime], object]) -> None:
        try:
            with self._observing():
                step(self.clock())
        except Exception as error:  # noqa: BLE001 - no failure of the observer may reach the gateway
            self._note(error)

    def _note(self, error: Exception) -> None:
        code = error.code if isinstance(error, AssayStreamError) else type(error).__name__
        self.note(code, "observing failed; the gateway goes on")

    def note(self, code: str, why: str) -> None:
        """Count a failure, and log the first of its code. ``why`` quotes nothing that passes the gateway."""
        with self._lock:
            self.failures[code] += 1
            is_first = self.failures[code] == 1
        if is_first:
            _log.warning("%s: %s; further ones are only counted", code, why)


def _bare(message: dict[str, Any]) -> dict[str, Any]:
    """Return a call without its arguments, with the names that some program may take for that of the tool."""
    params = message["params"]
    return {**message, "params": {**dict.fromkeys(misread_members(params)), "name": params.get("name")}}


def encoded(message: dict[str, Any]) -> bytes:
    """Return a message as JSON, empty if unencodable; NaN and lone surrogates stay, for strict decoding to refuse."""
    try:
        return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError):
        return b""


def encoded_within(message: dict[str, Any], bytes_max: int) -> bytes:
    return encoded(message) if _fits(message, bytes_max) else b""


def shared_members(result: Mapping[str, Any], limits: FeedLimits = FEED_LIMITS) -> dict[str, Any]:
    """Return the members to copy into each server's part of a merged list: small, whatever accompanies the tools.

    They are judged once, as the reader of each part would: if they are unsound or ambiguous, each part is.
    """
    message = {"result": {name: value for name, value in result.items() if name != "tools"}}
    raw = encoded_within(message, limits.message_bytes_max)
    try:
        decode_json(raw, limits=_LINE_LIMITS)
    except InputError:
        return dict(UNSOUND)
    shared = {
        name: result[name] if _fits(result[name], limits.cursor_chars_max) else True
        for name in ("nextCursor", "ttlMs")
        if name in result
    }
    if is_ambiguous(Line((message,), exact=True), raw, EVENT_BREAK):
        shared["TOOLS"] = None  # which some programs take for the tools: as ambiguous, and short
    return shared


def _fits(value: Any, bytes_max: int) -> bool:
    """Return True if a value has at most ``bytes_max`` characters and values, examining no more than those."""
    waiting, left = [value], bytes_max
    while waiting and left >= 0:
        each = waiting.pop()
        left -= 1 + (len(each) if isinstance(each, str | list | tuple | dict) else 0)
        if left >= 0 and isinstance(each, dict):
            waiting += each.keys()
            waiting += each.values()
        elif left >= 0 and isinstance(each, list | tuple):
            waiting += each
    return left >= 0
