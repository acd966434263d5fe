"""List requests, greetings, their results and announced changes: what becomes a snapshot or an announcement."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from assay_stream.observe.jsonrpc import RequestKey, meta_of, trace_of
from assay_stream.observe.observation import (
    EVENT_BYTES_MAX,
    Observation,
    RawMessage,
    list_changed_event,
    snapshot_event,
)
from assay_stream.observe.offered import Assembly, HiddenTool, Lister, Offered, Snapshot
from assay_stream.observe.wire import Pending, WireConnection

TOOLS = "tools/list"

_PROMPTS = "prompts/list"
_TEMPLATES = "resources/templates/list"
_MEMBERS = {TOOLS: "tools", _PROMPTS: "prompts", _TEMPLATES: "resourceTemplates"}
METHODS = frozenset(_MEMBERS)
"""The requests that are followed here."""

LIST_CHANGED = "notifications/tools/list_changed"
_REPEATED_AFTER = timedelta(seconds=30)
"""Announcements between two lists are published at most this often: they change nothing and cost a record each. Less
than ``announced_limit_ms``, so that a missing list is still noticed."""

_TOO_LARGE = {"unreadable": "too large"}
_MISSED = {"unreadable": "line missed"}
_NO_RESULT = {"unreadable": "the result is no object"}
_NO_TEXT = {"unreadable": "the instructions are no text"}
_UNSOUND = {"unreadable": "the JSON is unsound"}


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request for a list.

    Args:
        doubts: how many there were when the list was begun.
        changes: how many changes of the tools the server had announced when it was made.
        answered: whether a response came that only some clients accept as the answer.
    """

    method: str
    base: Assembly
    traceparent: str | None
    doubts: int
    changes: int
    answered: bool = False


class _Companions(NamedTuple):
    """What goes with the tools; ``None`` is not known."""

    prompts: list[Any] | None = None
    resource_templates: list[Any] | None = None
    instructions: str | dict[str, str] | None = None
    """No text where the server's cannot be read or published: the registry must hear of that, and reject it."""


class ListObserver:
    """Follows the lists of one connection."""

    def __init__(self, wire: WireConnection) -> None:
        self._wire = wire
        self.offered = Offered(wire.limits)
        """What the client was offered."""
        self._latest_doubts = 0
        self._announced_at: datetime | None = None
        """When an announcement was published that no snapshot has followed yet."""
        self._missed: tuple[datetime, int] | None = None
        """When, and in which exchange, a line was missed, if the newest snapshot says so."""
        self._listers = {method: Lister(member, wire.limits) for method, member in _MEMBERS.items()}
        self._asked: OrderedDict[RequestKey, _Asked] = OrderedDict()
        """Requests that are not answered yet, oldest first."""
        self._tools_asked, self._unanswered = Pending[_Asked](), Pending[_Asked]()
        """Those for tools among them; and of these, those without a response that some clients accept."""
        self._protocol_version: str | None = None
        self._reported: Assembly | None = None
        """The tools of the latest snapshot that can be accepted."""
        self._companions = _Companions()
        """What went with them."""
        self._instructions: str | dict[str, str] | None = None

    def snapshot_before(self, at: datetime) -> str | None:
        """Return the id of the snapshot that a call of a time refers to."""
        latest = self.offered.snapshot
        return None if latest is None or (self._wire.retrospective and latest[1] > at) else latest[0]

    def note_version(self, version: object) -> None:
        """Remember the MCP revision in use; anything but a short ASCII string is ignored."""
        if isinstance(version, str) and 1 <= len(version) <= 64 and version.isascii():
            self._protocol_version = version

    def greeted(self, result: Any, exact: bool, at: datetime) -> list[Observation]:
        if not isinstance(result, dict):
            return []  # An error: the client knows no more than before.
        self.note_version(result.get("protocolVersion"))
        stated = result.get("instructions")
        if stated is None:
            # Absent is unknown to the registry. Here it is known that there are none any more.
            self._instructions = None if self._instructions is None else ""
        elif not exact:
            self._instructions = _UNSOUND
        elif not isinstance(stated, str):
            self._instructions = _NO_TEXT
        else:
            # One character over the limit is kept: enough for the registry to reject them by name.
            self._instructions = stated[: self._wire.limits.instructions_chars_max + 1]
        return self._with_companions(None, at)

    def greeting_missed(self, at: datetime) -> list[Observation]:
        """Return what an unseen line yields that may have held the server's instructions."""
        self._instructions = _MISSED
        return self._with_companions(None, at)

    def request(self, method: str, key: RequestKey, params: Mapping[str, Any]) -> None:
        """Note a list request (one of ``METHODS``); too many evict the oldest one."""
        trace = trace_of(meta_of(params).get("traceparent"))
        base = self._listers[method].request(params)
        # A list is as doubtful as its beginning: what came before the client asked for it may be obsolete.
        doubts = self._latest_doubts if params.get("cursor") is not None else self.offered.doubts
        changes = self._wire.stats.list_changes
        self._put(key, _Asked(method, base, None if trace is None else trace[0], doubts, changes))
        if len(self._asked) > self._wire.pending_max:
            self.forget(next(iter(self._asked)))
            self._wire.stats.evicted_requests += 1

    def response(
        self,
        key: RequestKey,
        message: Mapping[str, Any],
        raw: bytes,
        exact: bool,
        at: datetime,
        *,
        same_id: bool = True,
        exchange: int = 0,
        hidden: Iterable[HiddenTool] = (),
    ) -> list[Observation] | None:
        """Return what a response yields; ``None`` if it does not answer a list request.

        Args:
            exchange: in which the client gets it.
            hidden: what the client does not get of it.
        """
        request = self.forget(key)
        if request is None:
            return None
        if request.method == TOOLS and request.answered:
            self.offered.doubt()
        if not same_id:
            self._put(key, replace(request, answered=True))
        if "result" not in message:
            return []
        result = message["result"]
        lister, base = self._listers[request.method], request.base
        if request.method == TOOLS and request.changes < self._wire.stats.list_changes:
            base = base.outdated()
        sound = exact and isinstance(result, dict)
        if sound:
            assembly = lister.result(base, result, size_bytes=len(raw), hidden=hidden)
        else:
            assembly = lister.unreadable(result)
        if request.method != TOOLS:
            return self._with_companions(request.traceparent, at)
        self._reported = None
        self._wire.stats.snapshots += 1
        page = result.get("tools") if sound else RawMessage(raw) if not exact else _NO_RESULT
        before = self.offered.snapshot
        if isinstance(page, list):
            observation = self._snapshot(assembly, request.traceparent, at)
        else:
            observation = self._refused(page, request.traceparent, at)
        new, self.offered.snapshot = self.offered.snapshot, before
        self._note_offered(assembly, isinstance(page, list), request.doubts, exchange, new)
        return [observation]

    def for_tools(self, exchange: int) -> Iterator[RequestKey]:
        """Return the requests for tools that a message in an exchange may answer, its own last; 0 stands for any."""
        return self._tools_asked.answered_in(exchange)

    def awaited(self, key: RequestKey) -> str | None:
        """Return the method of a request that is not answered yet, if it is one."""
        return self._asked[key].method if key in self._asked else None

    def forget(self, key: RequestKey) -> _Asked | None:
        self._tools_asked.take(key)
        self._unanswered.take(key)
        return self._asked.pop(key, None)

    def orphan(self, key: RequestKey) -> None:
        """Let another exchange answer the request with this id."""
        if (request := self.forget(key)) is not None:
            self.forget(key[:2])
            self._put(key[:2], request)

    def give_up(self, key: RequestKey, at: datetime) -> list[Observation]:
        """Note that nothing will answer a request, and return what waited for it."""
        return [] if self.forget(key) is None else self._with_companions(None, at)

    def strayed(self, keys: Iterable[RequestKey]) -> None:
        """Note a list that came in another exchange than its request: a client goes by the id."""
        if any(map(self._tools_asked.has_id, keys)):
            self.offered.doubt()

    def changed(self, at: datetime) -> list[Observation]:
        """Note that the server announced a change of its tools, and return what that yields.

        Earlier pages belong to no future list. What the client was offered stays known: a client that does not
        list again goes on with it.
        """
        self._wire.stats.list_changes += 1
        self._reported = None
        self._listers[TOOLS].outdate()
        self.offered.outdate()
        if self._announced_at is not None and at - self._announced_at < _REPEATED_AFTER:
            return []
        self._announced_at = at
        wire = self._wire
        event_id, session_id = wire.new_id(), wire.session_id
        return [list_changed_event(wire.vantage, event_id=event_id, observed_at=at, session_id=session_id)]

    def missed(self, at: datetime, exchange: int = 0) -> list[Observation]:
        """Return what an unseen line from the server yields; in an exchange, it answers no other one's request.

        But a client that goes by the id may take it for such an answer, so that what it was offered is in doubt.

        It may have been a pending list of tools. The registry then gets a snapshot it will reject, because a list
        too long to be seen must not leave the previous one in force. The next list recovers from that.
        """
        if self._tools_asked:
            self.offered.doubt()
        asked = self._unanswered.latest_in(exchange)
        # A few bytes can be such a line, and many of them come at once: one snapshot says it of all.
        if asked is None or self._missed == (at, exchange):
            return []
        self._wire.stats.snapshots += 1
        self._reported = None
        self._listers[TOOLS].unreadable(None)
        observation = self._refused(_MISSED, asked.traceparent, at)
        self._missed = at, exchange
        return [observation]

    def _put(self, key: RequestKey, request: _Asked) -> None:
        self._asked[key] = request
        if request.method == TOOLS:
            self._tools_asked.put(key, request)
            if not request.answered:
                self._unanswered.put(key, request)

    def _note_offered(
        self, assembly: Assembly, readable: bool, doubts: int, exchange: int, snapshot: Snapshot | None
    ) -> None:
        self._latest_doubts = doubts
        readable = readable and not assembly.too_large and len(assembly.items) <= self._wire.limits.tools_max
        if not readable:
            self.offered.doubt()
        settles = doubts if readable and assembly.completeness == "complete" else None
        self.offered.take(assembly.items, settles=settles, exchange=exchange, snapshot=snapshot)

    def _with_companions(self, traceparent: str | None, at: datetime) -> list[Observation]:
        """Return the tools again if something became known that did not go with them yet."""
        known = self._known_companions()
        is_news = any(new is not None and new != old for new, old in zip(known, self._companions, strict=True))
        if self._reported is None or self._tools_asked or not is_news:
            return []
        self._wire.stats.snapshots += 1
        return [self._snapshot(self._reported, traceparent, at)]

    def _snapshot(self, assembly: Assembly, traceparent: str | None, at: datetime) -> Observation:
        if not assembly.too_large:
            known = self._known_companions()
            identity = self._wire.new_id(), self._wire.new_id()
            # If everything together is too large, the tools go without lists, but never without what every model reads.
            for companions in (known, _Companions(instructions=known.instructions)):
                event = self._event(identity, list(assembly.items), assembly, traceparent, at, companions)
                if len(event.value) <= EVENT_BYTES_MAX:
                    is_sound = all(isinstance(tool, dict) for tool in assembly.items)
                    self._reported, self._companions = assembly if is_sound else None, known
                    self._wire.stats.refused_snapshots += not self._is_acceptable(known.instructions)
                    return event
        return self._refused(_TOO_LARGE, traceparent, at)

    def _refused(self, tools: Any, traceparent: str | None, at: datetime) -> Observation:
        """Return a snapshot that cannot be accepted: its tools are not an array of sound JSON."""
        self._wire.stats.refused_snapshots += 1
        identity = self._wire.new_id(), self._wire.new_id()
        event = self._event(identity, tools, Assembly(sound=False), traceparent, at)
        if len(event.value) > EVENT_BYTES_MAX:
            event = self._event(identity, _TOO_LARGE, Assembly(sound=False), traceparent, at)
        return event

    def _event(
        self,
        identity: tuple[str, str],
        tools: Any,
        assembly: Assembly,
        traceparent: str | None,
        at: datetime,
        companions: _Companions = _Companions(),  # noqa: B008 - immutable
    ) -> Observation:
        self.offered.snapshot = identity[0], at
        self._announced_at = self._missed = None
        return snapshot_event(
            self._wire.vantage,
            event_id=identity[1],
            snapshot_id=identity[0],
            observed_at=at,
            completeness="partial"
            if self._wire.filtered and assembly.completeness == "complete"
            else assembly.completeness,
            tools=tools,
            protocol_version=self._protocol_version,
            **companions._asdict(),
            hidden=[tool._asdict() for tool in assembly.hidden],
            ttl_ms=assembly.ttl_ms,
            traceparent=traceparent,
        )

    def _known_companions(self) -> _Companions:
        return _Companions(self._companion(_PROMPTS), self._companion(_TEMPLATES), self._instructions)

    def _is_acceptable(self, instructions: str | dict[str, str] | None) -> bool:
        if isinstance(instructions, str):
            return len(instructions) <= self._wire.limits.instructions_chars_max
        return instructions is None

    def _companion(self, method: str) -> list[Any] | None:
        """Return a list that goes with the tools, if it is known whole and well-formed."""
        assembly = self._listers[method].latest
        if assembly is None or assembly.too_large or assembly.completeness != "complete":
            return None
        items = list(assembly.items)
        return items if all(isinstance(item, dict) for item in items) else None
