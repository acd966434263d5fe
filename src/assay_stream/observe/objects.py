"""From the objects that a gateway's hooks hand over to observations: the observer of all feeds, without clock or I/O.

A feed says what a client asked for and what it was answered. Each view (one client of one server) is followed as a tap
would follow its connection, so that lists, pages, calls, limits and rulings obey the rules of ``observe.mcp_wire`` and
``observe.gate``.

Rules:

1. What strict decoding would refuse (NaN, a lone surrogate, too much of anything) is noted and never hashed.
2. Lists that a gateway may have filtered are partial, never complete.
3. A call that is reported after it ended refers to a snapshot only if that was seen before the call began.
4. A gateway's names are its own: ``named`` tells the server and the tool behind each. A name that it gives to no server
   is taken, as it is, for one of the view's server.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from assay_stream.canonical.decode import decode_json
from assay_stream.errors import InputError
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.limits.serving import FEED_LIMITS, FeedLimits
from assay_stream.observe.jsonrpc import EVENT_BREAK, Direction, Line, is_ambiguous, request_key
from assay_stream.observe.mcp_wire import LINE_BYTES_MAX, WireObserver
from assay_stream.observe.observation import Observation, Vantage
from assay_stream.observe.prefixes import OwnName
from assay_stream.observe.wire import WireStats
from assay_stream.observe.wire_lists import LIST_CHANGED

if TYPE_CHECKING:
    from assay_stream.observe.gate import Gate, Passage, Rule

UNSOUND: Mapping[str, Any] = {"unsound": math.nan}
"""A result that stands for one that cannot be read: NaN is no JSON, so it is on record as unsound, and never hashed."""

_LINE_LIMITS = replace(DEFAULT_LIMITS, record_bytes_max=LINE_BYTES_MAX)

CALL = "tools/call"
Named = Callable[[str, str], OwnName]
"""Whose tool a name means (``Prefixes.own``), given the server of the view and the name that the gateway shows."""


def bare(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "params": {"name": message["params"].get("name")}}


def encoded(message: dict[str, Any]) -> bytes:
    """Return a message as JSON, nothing if it is none; NaN and lone surrogates stay, for strict decoding to refuse."""
    try:
        return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError):
        return b""


def encoded_within(message: dict[str, Any], bytes_max: int) -> bytes:
    """Return a message as JSON; nothing if it is too large or cannot be written."""
    return encoded(message) if _fits(message, bytes_max) else b""


def shared_members(result: Mapping[str, Any], limits: FeedLimits = FEED_LIMITS) -> dict[str, Any]:
    """Return what goes with each server's part of a list of several: small, whatever stands beside the tools.

    What stands there is judged once, as the reader of each part would: if it is unsound or ambiguous, each part is.
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
    """Tell whether a value has at most so many characters and values, with a look at no more than those."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientView:
    """What one client sees of one server.

    Args:
        server_id: the operator's name for the server; of several behind one gateway, those that ``Named`` gives.
        auth_context: label of the permissions under which the server is used; published.
        client: tells clients of one context apart, such as a session id; never published.
        shown_prefix: what the gateway puts before the names of the tools; ``None`` if it is what it was.
    """

    server_id: str
    auth_context: str | None = None
    client: str = ""
    shown_prefix: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that a feed reported.

    Args:
        error: the JSON-RPC error that its caller gets instead of an answer; ``None`` if it may pass.
        warned: the tool, if the policy warns of a call that may pass.
    """

    view: ClientView
    message: dict[str, Any]
    observations: list[Observation] = field(default_factory=list)
    error: Mapping[str, Any] | None = None
    warned: str | None = None


@dataclass(frozen=True, slots=True)
class _Followed:
    wire: WireObserver
    gate: Gate | None


class ObjectObserver:
    """Follows the clients of one gateway. Not thread-safe; times must be timezone-aware.

    Args:
        observer_id: the gateway.
        new_id: returns a new unique id with every call.
        rule: what to do with a call (``VerdictClient.rule``); without it every call passes.
        named: undoes the names that the gateway gives to tools.
        filtered: whether the gateway may leave tools out of lists.
        retrospective: whether calls are reported after they ended.
    """

    def __init__(
        self,
        observer_id: str,
        *,
        new_id: Callable[[], str],
        rule: Rule | None = None,
        named: Named | None = None,
        filtered: bool = False,
        retrospective: bool = False,
        server_scoped: bool = True,
        limits: FeedLimits = FEED_LIMITS,
    ) -> None:
        self._observer_id = observer_id
        self._new_id = new_id
        self._rule = rule
        self._named = named
        self._filtered = filtered
        self._retrospective = retrospective
        self._server_scoped = server_scoped
        self._limits = limits
        self._followed: OrderedDict[ClientView, _Followed] = OrderedDict()
        self._past = WireStats()
        self._numbers = itertools.count(1)
        self.forgotten_views = 0
        """Those given up because too many others came after them."""

    @property
    def stats(self) -> WireStats:
        return sum((each.wire.stats for each in self._followed.values()), self._past)

    def ask(
        self,
        view: ClientView,
        method: str,
        params: Mapping[str, Any],
        at: datetime,
        *,
        call_id: str = "",
        shown_name: str | None = None,
    ) -> Asked:
        """Take a client's request, before it is passed on if it is to be ruled on.

        Args:
            params: as JSON-RPC has them: of a call, ``name``, ``arguments``, and ``_meta`` with a ``traceparent``.
            call_id: the gateway's own id of the call; the next number if it has none.
            shown_name: what the client called the tool, where the gateway itself says how the server calls it.
        """
        params = dict(params)
        message = {"jsonrpc": "2.0", "id": call_id or next(self._numbers), "method": method, "params": params}
        if method != CALL:
            return Asked(view=view, message=message)  # which servers are concerned is known from the answer
        name = params.get("name")
        if self._named is not None and isinstance(name, str):
            own = self._named(view.server_id, name)
            params["name"] = own.tool_name
            view = replace(view, server_id=own.server_id or view.server_id, shown_prefix=own.prefix)
        followed, observations = self._follow(view, at)
        raw = encoded_within(message, self._limits.message_bytes_max)
        if followed.gate is None:
            observations += self._take(followed.wire, "client->server", message, raw, at, shown_name)
            return Asked(view=view, message=message, observations=observations)
        passage = followed.gate.inward(
            # Whether a call may pass does not depend on its arguments.
            raw or encoded(bare(message)),
            at,
            lambda *_: self._take(followed.wire, "client->server", message, raw, at, shown_name),
        )
        return _ruled(view, message, observations, passage)

    def not_ruled_on(self, asked: Asked, at: datetime) -> Asked:
        followed, observations = self._follow(asked.view, at)
        if followed.gate is None:
            return asked
        passage = followed.gate.not_ruled_on(encoded(bare(asked.message)), at)
        return _ruled(asked.view, asked.message, observations, passage)

    def answer(self, asked: Asked, answer: Mapping[str, Any], at: datetime) -> list[Observation]:
        """Take the answer to a request.

        Args:
            answer: ``{"result": ...}`` as the client was given it, or ``{"error": {"code": ...}}``.
        """
        reply = {"jsonrpc": "2.0", "id": asked.message["id"], **answer}
        if asked.message["method"] == CALL:
            return self._outward(asked.view, reply, at)
        observations: list[Observation] = []
        for view, part in self._by_server(asked, reply):
            followed, given_up = self._follow(view, at)
            raw = encoded_within(asked.message, self._limits.message_bytes_max)
            observations += [*given_up, *self._take(followed.wire, "client->server", asked.message, raw, at)]
            observations += self._outward(view, part, at)
        return observations

    def unanswered(self, asked: Asked, code: str, at: datetime, *, ok: bool | None = None) -> list[Observation]:
        """Note that the answer to a request will not be seen; ``code`` says why, ``ok`` whether it means success."""
        key, followed = request_key(asked.message["id"]), self._followed.get(asked.view)
        return [] if key is None or followed is None else followed.wire.unanswered(key, code, at, ok=ok)

    def changed(self, view: ClientView, at: datetime) -> list[Observation]:
        return self._outward(view, {"jsonrpc": "2.0", "method": LIST_CHANGED}, at)

    def doubt(self, view: ClientView) -> None:
        """Note that a list could not be inspected: until the next whole ones this client's tools are unknown."""
        for each, followed in self._followed.items():
            if (each.client, each.auth_context) == (view.client, view.auth_context):
                followed.wire.offered.doubt()

    def close(self, at: datetime) -> list[Observation]:
        """Return the calls that will never be answered, when the gateway ends."""
        observations = [each for followed in self._followed.values() for each in followed.wire.close(at)]
        self._past = self.stats
        self._followed.clear()
        return observations

    def _follow(self, view: ClientView, at: datetime) -> tuple[_Followed, list[Observation]]:
        followed = self._followed.get(view)
        if followed is not None:
            self._followed.move_to_end(view)
            if view.shown_prefix is not None:
                followed.wire.shown_as(view.shown_prefix)
            return followed, []
        vantage = Vantage(
            server_id=view.server_id,
            observer_id=self._observer_id,
            server_scoped=self._server_scoped,
            auth_context=view.auth_context,
            shown_prefix=view.shown_prefix or "",
        )
        wire = WireObserver(
            vantage,
            session_id=self._new_id(),
            new_id=self._new_id,
            filtered=self._filtered,
            retrospective=self._retrospective,
        )
        self._followed[view] = followed = _Followed(wire, self._gate(vantage, wire))
        if len(self._followed) <= self._limits.views_max:
            return followed, []
        # Made-up clients must not end the open calls of others.
        others = islice(self._followed, self._limits.views_max)
        resting = next((each for each in others if not self._followed[each].wire.open_calls), None)
        forgotten = self._followed.pop(resting or next(iter(self._followed)))
        self._past += forgotten.wire.stats
        self.forgotten_views += 1
        return followed, forgotten.wire.close(at)

    def _gate(self, vantage: Vantage, wire: WireObserver) -> Gate | None:
        if self._rule is None:
            return None
        # Imported here: a feed that does not enforce starts without the schemes.
        from assay_stream.observe.gate import Gate

        return Gate(vantage, wire, self._rule, over_http=True)

    def _by_server(self, asked: Asked, reply: dict[str, Any]) -> Iterator[tuple[ClientView, dict[str, Any]]]:
        """Yield an answer as each server gave its part of it."""
        result = reply.get("result")
        tools = result.get("tools") if isinstance(result, dict) else None
        if self._named is None or not isinstance(result, dict) or not isinstance(tools, list) or not tools:
            yield asked.view, reply
            return
        parts: dict[tuple[str, str], list[Any]] = {}
        for tool in tools:
            name = tool.get("name") if isinstance(tool, dict) else None
            own = OwnName(tool_name="")
            if isinstance(name, str):
                own = self._named(asked.view.server_id, name)
                tool = {**tool, "name": own.tool_name} if own.prefix else tool
            parts.setdefault((own.server_id or asked.view.server_id, own.prefix), []).append(tool)
        shared = shared_members(result, self._limits) if len(parts) > 1 else result
        for (server_id, prefix), part in parts.items():
            view = replace(asked.view, server_id=server_id, shown_prefix=prefix)
            yield view, {**reply, "result": {**shared, "tools": part}}

    def _outward(self, view: ClientView, message: dict[str, Any], at: datetime) -> list[Observation]:
        followed, observations = self._follow(view, at)
        raw = encoded_within(message, self._limits.message_bytes_max)
        if not raw and followed.wire.awaits_list:
            return observations + followed.wire.missed("server->client", at)
        if followed.gate is not None and raw:
            shown = followed.gate.show(raw, at)
            followed.gate.offered.delivered()
            return observations + shown.observations
        return observations + self._take(followed.wire, "server->client", message, raw, at)

    @staticmethod
    def _take(
        wire: WireObserver,
        direction: Direction,
        message: dict[str, Any],
        raw: bytes,
        at: datetime,
        shown_name: str | None = None,
    ) -> list[Observation]:
        line = wire.read(raw) if raw else Line((message,), exact=False)
        return wire.take(direction, line, raw, at, shown_name=shown_name)


def _ruled(view: ClientView, message: dict[str, Any], observations: list[Observation], passage: Passage) -> Asked:
    reply = json.loads(passage.reply) if passage.reply else {}
    return Asked(
        view=view,
        message=message,
        observations=observations + passage.observations,
        error=None if passage.forward else reply.get("error", {}),
        warned=passage.warnings[0] if passage.warnings else None,
    )
