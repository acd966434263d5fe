"""What a client was offered: lists assembled from their pages, and the latest definitions of each tool.

A request without a cursor starts a list; one whose cursor came with the last page continues it (the empty string is
a cursor). Servers do not keep pages consistent, so a list is only what its pages said. Whatever cannot be matched is
of unknown completeness, never complete.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from assay_stream.limits.core import DEFAULT_LIMITS, Limits
from assay_stream.observe.observation import Completeness

NAMES_MAX = 20_000
"""Tool names remembered, four times the longest list that is accepted. The least recently listed goes first."""

_TTL_MS_MAX = 2**53
_CUT_OFF = -1


Snapshot = tuple[str, datetime]
"""A snapshot's id and time."""


class HiddenTool(NamedTuple):
    """A definition that the client was not shown: its name (empty if it has none) and its full digest."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """A list assembled so far. Immutable: pending requests keep theirs.

    Args:
        sound: whether it began at the beginning and every page was readable.
        too_large: whether it outgrew the limits; its items are dropped then.
        ttl_ms: the longest time for which a page of it may be cached, as far as pages say.
        hidden: what the client was not shown of it.
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

    def outdated(self) -> Assembly:
        return self if self == _START else _UNMATCHED


_START = Assembly()
_UNMATCHED = Assembly(sound=False)


class Lister:
    """Follows one list method."""

    def __init__(self, member: str, limits: Limits) -> None:
        self._member = member
        self._limits = limits
        self.latest: Assembly | None = None

    def request(self, params: Mapping[str, Any]) -> Assembly:
        """Return what a request with these parameters continues."""
        cursor = params.get("cursor")
        if cursor is None:
            return _START
        expected = None if self.latest is None else self.latest.next_cursor
        if self.latest is not None and type(expected) is type(cursor) and expected == cursor:
            return self.latest
        return _UNMATCHED

    def result(
        self, base: Assembly, result: Mapping[str, Any], *, size_bytes: int, hidden: Iterable[HiddenTool] = ()
    ) -> Assembly:
        page = result.get(self._member)
        grown = replace(
            base,
            next_cursor=result.get("nextCursor"),
            size_bytes=base.size_bytes + size_bytes,
            ttl_ms=_longest(base.ttl_ms, result.get("ttlMs")),
            hidden=(*base.hidden, *hidden)[: self._limits.tools_max + 1],
        )
        if not isinstance(page, list):
            self.latest = replace(grown, sound=False)
        elif base.too_large or grown.size_bytes > self._limits.record_bytes_max:
            self.latest = replace(grown, items=(), hidden=(), too_large=True)
        else:
            # One entry over the limit is kept: enough for the registry to reject the list by name.
            self.latest = replace(grown, items=(base.items + tuple(page))[: self._limits.tools_max + 1])
        return self.latest

    def outdate(self) -> None:
        """Note that the server announced a change: a page that continues the old list belongs to no known list."""
        if self.latest is not None:
            self.latest = replace(_UNMATCHED, next_cursor=self.latest.next_cursor)

    def unreadable(self, result: Any) -> Assembly:
        """Return the list after an unsound page; ``result`` is what a lenient reader made of it."""
        cursor = result.get("nextCursor") if isinstance(result, dict) else None
        self.latest = replace(_UNMATCHED, next_cursor=cursor)
        return self.latest


def _longest(known: int | None, stated: Any) -> int | None:
    if isinstance(stated, bool) or not isinstance(stated, int) or not 0 <= stated <= _TTL_MS_MAX:
        return known
    return max(known or 0, stated)


class _Listing(NamedTuple):
    """The entries of a list, as far as its pages are known, by name.

    Args:
        exchange: in which it reaches the client.
        changes: how many changes the server had announced.
        settles: the doubts that it resolves; ``None`` if it is not whole.
    """

    exchange: int
    tools: dict[str, tuple[dict[str, Any], ...]]
    changes: int
    settles: int | None
    snapshot: Snapshot | None


class Offered:
    """Follows the lists that one client was given.

    A name keeps its definitions until a later list has others, whatever lists come in between: the client may have
    kept them too. A name is *withdrawn* if the server announced a change and the next whole list lacks it. What an
    unreadable list said is in doubt until a later list was read from beginning to end.

    A list counts once the client was given it. Until then, if somebody says when that is (``deferred``), what came
    before it counts, and beside that whatever it offers: the client may have read it already.
    """

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self.deferred = False
        """Whether ``delivered`` says when the client has a list."""
        self.doubts = 0
        """How often something unreadable came that may have been a list."""
        self.snapshot: Snapshot | None = None
        """The latest snapshot, accepted or not; ``None`` from an announced change until the next snapshot."""
        self._settled = 0
        self._changes = 0
        self._whole = 0
        """The number of the last change that a whole list followed."""
        self._listed: dict[str, int] = {}
        """The number of the last change before each name was listed, as long as there was any."""
        self._tools: OrderedDict[str, tuple[dict[str, Any], ...]] = OrderedDict()
        self._on_the_way: list[_Listing] = []

    @property
    def in_doubt(self) -> bool:
        """Whether the client may have seen a list that is unknown here."""
        return self._settled < self.doubts

    def of(self, name: str) -> tuple[dict[str, Any], ...]:
        """Return the definitions of a tool that the client was given last: several if one list had several."""
        return self._tools.get(name, ())

    def on_the_way(self, name: str) -> list[dict[str, Any]]:
        """Return the definitions of a tool in lists that the client may have, but need not have yet."""
        return [tool for listing in self._on_the_way for tool in listing.tools.get(name, ())]

    def take(
        self, items: Iterable[Any], *, settles: int | None = None, exchange: int = 0, snapshot: Snapshot | None = None
    ) -> None:
        """Take in the entries of a list, as far as its pages are known.

        Args:
            settles: the doubts that it resolves; ``None`` if it is not whole.
            snapshot: the snapshot that was made of it.
        """
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
        """Note that the client was given the lists that came in an exchange."""
        for listing in [each for each in self._on_the_way if each.exchange == exchange]:
            self._on_the_way.remove(listing)
            self._show(listing)

    def awaits_delivery(self, exchange: int) -> bool:
        return any(listing.exchange == exchange for listing in self._on_the_way)

    def cut_off(self, exchange: int) -> None:
        """Note that an exchange ended: the client may never get the lists in it, or may have read them."""
        self._on_the_way = [
            each._replace(exchange=_CUT_OFF) if each.exchange == exchange else each for each in self._on_the_way
        ]

    def outdate(self) -> None:
        self._changes += 1
        self.snapshot = None

    def is_withdrawn(self, name: str) -> bool:
        """Tell whether a tool was listed and the server has since changed its list to one without it."""
        return self._listed.get(name, self._whole) < self._whole

    def doubt(self) -> None:
        """Note that inspecting the server failed: until the next whole list its tools are unknown."""
        self.doubts += 1

    def _show(self, listing: _Listing) -> None:
        for name, tools in listing.tools.items():
            self._tools[name] = tools
            self._tools.move_to_end(name)
            self._listed[name] = listing.changes
        while len(self._tools) > NAMES_MAX:
            name, _ = self._tools.popitem(last=False)
            del self._listed[name]
        if listing.changes == self._changes and listing.snapshot is not None:
            self.snapshot = listing.snapshot
        if listing.settles is not None:
            self._settled = max(self._settled, listing.settles)
            self._whole = max(self._whole, listing.changes)
            self._on_the_way = [each for each in self._on_the_way if each.exchange != _CUT_OFF]
