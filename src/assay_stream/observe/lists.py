"""List observation: assemble lists from pages, publish snapshots, and track what each client was offered.

A request without a cursor starts a list; one whose cursor came with the last page continues it (the empty string is
a cursor). Servers do not keep pages consistent, so a list is only what its pages said. A page that cannot be matched
makes a list of unknown completeness.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple

from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.observe.observation import (
    EVENT_BYTES_MAX,
    Completeness,
    RawMessage,
    list_changed_event,
    loss_event,
    snapshot_event,
)
from assay_stream.observe.wire import Pending, RequestKey, WireConnection, meta_of, trace_of

TOOLS = "tools/list"

_PROMPTS = "prompts/list"
_TEMPLATES = "resources/templates/list"
_MEMBERS = {TOOLS: "tools", _PROMPTS: "prompts", _TEMPLATES: "resourceTemplates"}
_GREETINGS = ("initialize", "server/discover")
"""Requests whose result describes the server and instructs the model. The second came with MCP 2026-07-28."""
METHODS = frozenset((*_MEMBERS, *_GREETINGS))
"""The requests followed here."""

LIST_CHANGED = "notifications/tools/list_changed"
_REPEATED_AFTER = timedelta(seconds=30)
"""Minimum gap between published announcements without a list in between: repeats change nothing and cost a record each.
Less than ``announced_limit_ms``, so that a missing list is still noticed.
"""

_TOO_LARGE = {"unreadable": "too large"}
_MISSED = {"unreadable": "line missed"}
_NO_RESULT = {"unreadable": "the result is no object"}
_NO_TEXT = {"unreadable": "the instructions are no text"}
_UNSOUND = {"unreadable": "the JSON is unsound"}

_ANSWERS_KEPT_MAX = 64
"""Answers remembered, to notice a second one to the same request: a client asks for a few pages at a time."""
NAMES_MAX = 20_000
"""Tool names remembered, four times the longest list that is accepted. The least recently listed goes first."""

_TTL_MS_MAX = 2**53
_CUT_OFF = -1

Snapshot = tuple[str, datetime]
"""Id and time of a published snapshot."""


class HiddenTool(NamedTuple):
    """A definition withheld from the client: its name (empty if it has none) and full digest."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """A list assembled so far. Immutable: pending requests keep theirs.

    Args:
        sound: whether it began with the first page and every page was readable.
        too_large: whether it outgrew the limits; its items are dropped then.
        ttl_ms: the longest stated cache lifetime of its pages.
        hidden: entries withheld from the client.
    """

    items: tuple[Any, ...] = ()
    next_cursor: Any = None
    sound: bool = True
    too_large: bool = False
    size_bytes: int = 0
    ttl_ms: int | None = None
    hidden: tuple[HiddenTool, ...] = ()

    @property
    def completeness(self) -> Completeness:
        if not self.sound:
            return "unknown"
        return "complete" if self.next_cursor is None else "partial"

    def with_page(
        self, page: Any, result: Mapping[str, Any], limits: Limits, *, size_bytes: int, hidden: Iterable[HiddenTool]
    ) -> Assembly:
        stated, ttl_ms = result.get("ttlMs"), self.ttl_ms
        if isinstance(stated, int) and not isinstance(stated, bool) and 0 <= stated <= _TTL_MS_MAX:
            ttl_ms = max(ttl_ms or 0, stated)
        grown = replace(
            self,
            next_cursor=result.get("nextCursor"),
            size_bytes=self.size_bytes + size_bytes,
            ttl_ms=ttl_ms,
            hidden=(*self.hidden, *hidden)[: limits.tools_max + 1],
        )
        if not isinstance(page, list):
            return replace(grown, sound=False)
        if self.too_large or grown.size_bytes > limits.record_bytes_max:
            return replace(grown, items=(), hidden=(), too_large=True)
        # One entry over the limit is kept: enough for the registry to reject the list by name.
        return replace(grown, items=(self.items + tuple(page))[: limits.tools_max + 1])


_START = Assembly()
_UNMATCHED = Assembly(sound=False)


class _Listing(NamedTuple):
    """The entries of a list, as far as its pages are known, by name.

    Args:
        exchange: the exchange that delivers it to the client.
        changes: changes announced before it.
        settles: the doubts that it resolves; ``None`` if it is incomplete.
    """

    exchange: int
    tools: dict[str, tuple[dict[str, Any], ...]]
    changes: int
    settles: int | None
    snapshot: Snapshot | None


class Offered:
    """Track the lists that one client received.

    A name keeps its definitions until a later list has others, whatever lists come in between: the client may have
    kept them too. A name is *withdrawn* if the server announced a change and the next whole list lacks it. What an
    unreadable list said is in doubt until a later list was read from beginning to end.

    A list counts once the client received it. Until then, if delivery is reported (``deferred``), the list
    before it counts, plus whatever the new one offers: the client may have read it already.
    """

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self.deferred = False
        """Whether ``delivered`` reports when the client has a list."""
        self.doubts = 0
        """Count of unreadable messages that may have been lists."""
        self.snapshot: Snapshot | None = None
        """The latest snapshot, accepted or not; ``None`` from an announced change until the next snapshot."""
        self._settled = 0
        self._changes = 0
        self._whole = 0
        """The number of the last change that was followed by a complete list."""
        self._tools: OrderedDict[str, tuple[tuple[dict[str, Any], ...], int]] = OrderedDict()
        """For each name, its definitions, and the number of the last change before it was listed, if any."""
        self._on_the_way: list[_Listing] = []

    @property
    def in_doubt(self) -> bool:
        """Whether the client may have seen a list that is unknown here."""
        return self._settled < self.doubts

    @property
    def is_on_the_way(self) -> bool:
        """Whether there are lists that the client may or may not have received yet."""
        return bool(self._on_the_way)

    def of(self, name: str) -> tuple[dict[str, Any], ...]:
        """Return the definitions of a tool that the client received last: several if one list had several."""
        return self._tools.get(name, ((), 0))[0]

    def on_the_way(self, name: str) -> list[dict[str, Any]]:
        """Return the definitions of a tool in lists that the client may or may not have received yet."""
        return [tool for listing in self._on_the_way for tool in listing.tools.get(name, ())]

    def add(
        self, items: Iterable[Any], *, settles: int | None = None, exchange: int = 0, snapshot: Snapshot | None = None
    ) -> None:
        """Add a list as far as its pages are known, and the doubts that it settles if it is complete."""
        by_name: dict[str, list[dict[str, Any]]] = {}
        for item in items:
            if isinstance(item, dict) and isinstance(item.get("name"), str):
                by_name.setdefault(item["name"], []).append(item)
        tools = {name: tuple(found) for name, found in by_name.items()}
        self._on_the_way.append(_Listing(exchange, tools, self._changes, settles, snapshot))
        if not self.deferred:
            self.delivered(exchange)
        elif len(self._on_the_way) > self._limits.lists_on_the_way_max:
            self._show(self._on_the_way.pop(0))

    def delivered(self, exchange: int = 0) -> None:
        for listing in [each for each in self._on_the_way if each.exchange == exchange]:
            self._on_the_way.remove(listing)
            self._show(listing)

    def cut_off(self, exchange: int) -> None:
        """Record that an exchange ended: the client may have read the lists in it, or may never get them."""
        self._on_the_way = [
            each._replace(exchange=_CUT_OFF) if each.exchange == exchange else each for each in self._on_the_way
        ]

    def outdate(self) -> None:
        self._changes += 1
        self.snapshot = None

    def is_withdrawn(self, name: str) -> bool:
        """Return True if a tool was listed, and a complete list after an announced change lacks it."""
        return name in self._tools and self._tools[name][1] < self._whole

    def doubt(self) -> None:
        """Record that the client may have seen an unknown list, or that inspecting the server failed."""
        self.doubts += 1

    def _show(self, listing: _Listing) -> None:
        for name, tools in listing.tools.items():
            self._tools[name] = tools, listing.changes
            self._tools.move_to_end(name)
        while len(self._tools) > NAMES_MAX:
            self._tools.popitem(last=False)
        if listing.changes == self._changes and listing.snapshot is not None:
            self.snapshot = listing.snapshot
        if listing.settles is not None:
            self._settled = max(self._settled, listing.settles)
            self._whole = max(self._whole, listing.changes)
            self._on_the_way = [each for each in self._on_the_way if each.exchange != _CUT_OFF]


@dataclass(frozen=True, slots=True)
class _Request:
    """A request for a list, or a greeting.

    Args:
        doubts: their count when the list began.
        changes: tool changes announced before the request.
        answered: whether a response arrived that only some clients accept.
    """

    method: str
    base: Assembly
    traceparent: str | None
    doubts: int
    changes: int
    answered: bool = False


class _Companions(NamedTuple):
    """Lists and instructions that accompany the tools; ``None`` is unknown."""

    prompts: list[Any] | None = None
    resource_templates: list[Any] | None = None
    instructions: str | dict[str, str] | None = None
    """Not a string if the instructions are unreadable or unpublishable: the registry must see that, and reject it."""


class ListObserver:
    def __init__(self, wire: WireConnection) -> None:
        self._wire = wire
        self.offered = Offered(wire.limits)
        self._latest_doubts = 0
        self._announced_at: datetime | None = None
        """When an announcement was published that no snapshot has followed yet."""
        self._is_miss_recorded = False
        """Whether the newest snapshot records a missed line, and no list was asked for since."""
        self._newest: tuple[object, Snapshot | None] | None = None
        """The answer that made the newest snapshot; ``None`` if there is none, or a list changed or was asked for."""
        self._latest: dict[str, Assembly] = {}
        """What the latest result of each method made of its list."""
        self._requests = Pending[_Request](wire.pending_max)
        self._tools_requests = Pending[_Request](wire.pending_max + 1)
        self._unanswered = Pending[_Request](wire.pending_max + 1)
        """Those of ``_tools_requests`` that got no response that some clients accept."""
        self._greetings = Pending[_Request](wire.pending_max + 1)
        """Those for what the server says of itself."""
        self._protocol_version: str | None = None
        self._reported: Assembly | None = None
        """The tools of the latest acceptable snapshot."""
        self._answers = Pending[bytes](_ANSWERS_KEPT_MAX)
        """Digests of the latest lists of tools, by the id of their request."""
        self._companions = _Companions()
        self._instructions: str | dict[str, str] | None = None

    def snapshot_id(self) -> str | None:
        """Return the id of the snapshot that a call now refers to."""
        latest = self.offered.snapshot
        return None if latest is None or (self._wire.retrospective and latest[1] > self._wire.at) else latest[0]

    def note_version(self, version: object) -> None:
        """Remember the MCP revision in use; anything but a short ASCII string is ignored."""
        if isinstance(version, str) and 1 <= len(version) <= 64 and version.isascii():
            self._protocol_version = version

    def _greeted(self, result: Any) -> None:
        if not isinstance(result, dict):
            return  # An error: the client knows no more than before.
        self.note_version(result.get("protocolVersion"))
        stated = result.get("instructions")
        if stated is None:
            # Absent is unknown to the registry. Here it is known that there are none any more.
            self._instructions = None if self._instructions is None else ""
        elif not self._wire.exact:
            self._instructions = _UNSOUND
        elif not isinstance(stated, str):
            self._instructions = _NO_TEXT
        else:
            # One character over the limit is kept: enough for the registry to reject them by name.
            self._instructions = stated[: self._wire.limits.instructions_chars_max + 1]
        self._publish_companions()

    def greeting_missed(self) -> None:
        """Record that an uninspected line may have been a greeting's answer."""
        if self._greetings.latest_in(self._wire.exchange) is not None:
            self._instructions = _MISSED
            self._publish_companions()

    def request(self, method: str, key: RequestKey, params: Mapping[str, Any]) -> None:
        trace = trace_of(meta_of(params).get("traceparent"))
        cursor, latest, base = params.get("cursor"), self._latest.get(method), _UNMATCHED
        if cursor is None:
            base = _START
        elif latest is not None and type(latest.next_cursor) is type(cursor) and latest.next_cursor == cursor:
            base = latest
        # A list is as doubtful as its beginning: what came before the client asked for it may be obsolete.
        doubts = self._latest_doubts if cursor is not None else self.offered.doubts
        changes = self._wire.counts.list_changes
        if method == TOOLS:
            self._is_miss_recorded, self._newest = False, None
        self._put(key, _Request(method, base, None if trace is None else trace[0], doubts, changes))

    def response(
        self, key: RequestKey, message: Mapping[str, Any], raw: bytes, *, same_id: bool, hidden: Iterable[HiddenTool]
    ) -> bool:
        """Return False if it answers no list request; ``hidden`` was withheld from the client."""
        request = self.forget(key)
        if request is None:
            return False
        if request.method in _GREETINGS:
            self._greeted(message.get("result"))
            return True
        if request.method == TOOLS and request.answered:
            self.offered.doubt()
        if not same_id:
            self._put(key, replace(request, answered=True))
        if "result" not in message:
            return True
        result, exact = message["result"], self._wire.exact
        base, limits = request.base, self._wire.limits
        if request.method == TOOLS and request.changes < self._wire.counts.list_changes and base != _START:
            base = _UNMATCHED  # pages from before a change
        sound = exact and isinstance(result, dict)
        if sound:
            listed = result.get(_MEMBERS[request.method])
            assembly = base.with_page(listed, result, limits, size_bytes=len(raw), hidden=hidden)
        else:
            assembly = replace(_UNMATCHED, next_cursor=result.get("nextCursor") if isinstance(result, dict) else None)
        self._latest[request.method] = assembly
        if request.method != TOOLS:
            self._publish_companions(request.traceparent)
            return True
        digest = _digest(result, len(raw))
        self._answers.take(key[:2])
        self._answers.put(key[:2], digest)
        page = result.get("tools") if sound else RawMessage(raw) if not exact else _NO_RESULT
        inexact = b"" if exact else sha256(raw).digest()
        answer, newest = (key, digest, inexact, assembly.too_large, assembly.hidden), self._newest
        is_repeat = request.answered and bool(digest) and self._known_companions() == self._companions
        # A last page of a few bytes, sent again, would publish megabytes again.
        if is_repeat and newest is not None and newest[0] == answer:
            new = newest[1]
        else:
            before, self._reported = self.offered.snapshot, None
            if isinstance(page, list):
                self._publish_tools(assembly, request.traceparent)
            else:
                self._publish_unreadable(page, request.traceparent)
            new, self.offered.snapshot = self.offered.snapshot, before
            self._newest = answer, new
        self._latest_doubts = request.doubts
        is_readable = isinstance(page, list) and not assembly.too_large and len(assembly.items) <= limits.tools_max
        if not is_readable:
            self.offered.doubt()
        settles = request.doubts if is_readable and assembly.completeness == "complete" else None
        self.offered.add(assembly.items, settles=settles, exchange=self._wire.exchange, snapshot=new)
        return True

    def for_tools(self, exchange: int) -> Iterator[RequestKey]:
        """Return the requests for tools that a message in an exchange may answer, its own last; 0 means any."""
        return self._tools_requests.answered_in(exchange)

    def awaited(self, key: RequestKey) -> str | None:
        request = self._requests.get(key)
        return None if request is None else request.method

    def forget(self, key: RequestKey) -> _Request | None:
        self._tools_requests.take(key)
        self._unanswered.take(key)
        self._greetings.take(key)
        return self._requests.take(key)

    def orphan(self, key: RequestKey) -> None:
        """Allow another exchange to answer the request with this id."""
        if (request := self.forget(key)) is not None:
            self.forget(key[:2])
            self._put(key[:2], request)

    def give_up(self, key: RequestKey) -> None:
        """Drop a request that will not be answered, and publish what waited for it."""
        if self.forget(key) is not None:
            self._publish_companions()

    def strayed(self, keys: Iterable[RequestKey], message: Mapping[str, Any], size_bytes: int) -> None:
        """Record a list that answers no request of its exchange: clients that match by id accept it in another one.

        A second answer to a request is taken by few clients. It is a lost list, once for each request, and the first
        one stays in force. A stream that is resumed brings the same answer again.
        """
        wire = self._wire
        for key in keys:
            if self._tools_requests.latest_with_id(key) is not None:
                self.offered.doubt()
            elif self._answers.get(key) not in (None, _digest(message["result"], size_bytes)):
                self._answers.take(key)
                wire.found.append(
                    loss_event(wire.vantage, event_id=wire.new_id(), observed_at=wire.at, lists=1, calls=0)
                )

    def changed(self) -> None:
        """Outdate earlier pages. What was offered stays known: clients that do not list again go on with it."""
        wire = self._wire
        wire.counts.list_changes += 1
        self._reported = self._newest = None
        if TOOLS in self._latest:
            # A page that continues the old list belongs to no known list.
            self._latest[TOOLS] = replace(_UNMATCHED, next_cursor=self._latest[TOOLS].next_cursor)
        self.offered.outdate()
        if self._announced_at is None or wire.at - self._announced_at >= _REPEATED_AFTER:
            self._announced_at = wire.at
            event_id, session_id = wire.new_id(), wire.session_id
            wire.found.append(
                list_changed_event(wire.vantage, event_id=event_id, observed_at=wire.at, session_id=session_id)
            )

    def missed(self) -> None:
        """Record an uninspected server line; in an exchange, it answers no other one's request.

        But a client that matches by id may take it for such an answer, so its offered tools are in doubt.

        It may have been a pending list of tools. The registry then gets a snapshot it will reject, because a list
        too long to be seen must not leave the previous one in force. The next list recovers from that.
        """
        if self._tools_requests:
            self.offered.doubt()
        latest = self._unanswered.latest_in(self._wire.exchange)
        # A few bytes can be such a line, and many may come: one snapshot covers them all.
        if latest is not None and not self._is_miss_recorded:
            self._reported = None
            self._latest[TOOLS] = _UNMATCHED
            self._publish_unreadable(_MISSED, latest.traceparent)
            self._is_miss_recorded = True

    def _put(self, key: RequestKey, request: _Request) -> None:
        if request.method in _GREETINGS:
            self._greetings.put(key, request)
        if request.method == TOOLS:
            self._tools_requests.put(key, request)
            if not request.answered:
                self._unanswered.put(key, request)
        evicted = self._requests.put(key, request)
        if evicted is not None:
            self.forget(evicted[0])
            self._wire.counts.evicted_requests += 1

    def _publish_companions(self, traceparent: str | None = None) -> None:
        """Publish the tools again if companions became known since."""
        known = self._known_companions()
        is_news = any(new is not None and new != old for new, old in zip(known, self._companions, strict=True))
        if self._reported is not None and not self._tools_requests and is_news:
            self._publish_tools(self._reported, traceparent)

    def _publish_tools(self, assembly: Assembly, traceparent: str | None) -> None:
        if assembly.too_large:
            self._publish_unreadable(_TOO_LARGE, traceparent)
            return
        items, known = list(assembly.items), self._known_companions()
        # If everything together is too large, the tools go without lists, but never without what every model reads.
        options = (items, known), (items, _Companions(instructions=known.instructions))
        if not self._publish(assembly, traceparent, *options):
            self._publish_unreadable(_TOO_LARGE, traceparent)
            return
        is_sound = all(isinstance(tool, dict) for tool in assembly.items)
        self._reported, self._companions = assembly if is_sound else None, known
        chars_max, stated = self._wire.limits.instructions_chars_max, known.instructions
        is_acceptable = len(stated) <= chars_max if isinstance(stated, str) else stated is None
        self._wire.counts.refused_snapshots += not is_acceptable

    def _publish_unreadable(self, tools: Any, traceparent: str | None) -> None:
        """Publish a snapshot that must be rejected: its tools are not an array of sound JSON."""
        self._publish(_UNMATCHED, traceparent, (tools, _Companions()), (_TOO_LARGE, _Companions()))
        self._wire.counts.refused_snapshots += 1

    def _publish(self, assembly: Assembly, traceparent: str | None, *options: tuple[Any, _Companions]) -> bool:
        """Publish a snapshot with the first tools and companions that fit into a record; return False if none do."""
        wire, snapshot_id, event_id = self._wire, self._wire.new_id(), self._wire.new_id()
        is_partial = wire.filtered and assembly.completeness == "complete"
        for tools, companions in options:
            event = snapshot_event(
                wire.vantage,
                event_id=event_id,
                snapshot_id=snapshot_id,
                observed_at=wire.at,
                completeness="partial" if is_partial else assembly.completeness,
                tools=tools,
                protocol_version=self._protocol_version,
                **companions._asdict(),
                hidden=[tool._asdict() for tool in assembly.hidden],
                ttl_ms=assembly.ttl_ms,
                traceparent=traceparent,
            )
            if len(event.value) <= EVENT_BYTES_MAX:
                self.offered.snapshot = snapshot_id, wire.at
                self._announced_at, self._is_miss_recorded, self._newest = None, False, None
                wire.counts.snapshots += 1
                wire.found.append(event)
                return True
        return False

    def _known_companions(self) -> _Companions:
        return _Companions(self._companion(_PROMPTS), self._companion(_TEMPLATES), self._instructions)

    def _companion(self, method: str) -> list[Any] | None:
        """Return a companion list, if it is known to be complete and well-formed."""
        assembly = self._latest.get(method)
        if assembly is None or assembly.too_large or assembly.completeness != "complete":
            return None
        items = list(assembly.items)
        return items if all(isinstance(item, dict) for item in items) else None


def _digest(result: object, size_bytes: int) -> bytes:
    """Return what tells an answer from another one; all that are too large to be accepted are alike."""
    return sha256(repr(result).encode("utf-8", "surrogatepass")).digest() if size_bytes <= EVENT_BYTES_MAX else b""
