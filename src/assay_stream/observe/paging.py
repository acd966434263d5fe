"""Lists put together from their pages, as MCP pages them.

A request without a cursor starts a list; a request whose cursor the last page gave continues it. The empty
string is a cursor. Pages of a server are not consistent with each other, so a list is what its pages said, no
more. Whatever cannot be matched is of unknown completeness, never complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from assay_stream.limits import Limits
from assay_stream.observe.events import Completeness


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """What is put together so far. Immutable: requests under way keep theirs.

    Args:
        items: the entries of all pages.
        next_cursor: the cursor that continues it, ``None`` at the end.
        sound: whether it began at the beginning and every page was readable.
        too_large: whether it outgrew the limits; its items are let go then.
        size_bytes: bytes of the messages it came in.
    """

    items: tuple[Any, ...] = ()
    next_cursor: Any = None
    sound: bool = True
    too_large: bool = False
    size_bytes: int = 0

    @property
    def completeness(self) -> Completeness:
        """How much of the server's list this is."""
        if not self.sound:
            return "unknown"
        return "complete" if self.next_cursor is None else "partial"

    def outdated(self) -> Assembly:
        """Return what is left of it when the server announces that its list changed."""
        return self if self == _START else _UNMATCHED


_START = Assembly()
_UNMATCHED = Assembly(sound=False)


class Lister:
    """Follows one list method.

    Args:
        member: the member of the result that holds the entries.
        limits: bounds on what is put together.
    """

    def __init__(self, member: str, limits: Limits) -> None:
        self._member = member
        self._limits = limits
        self.latest: Assembly | None = None

    def request(self, params: Mapping[str, Any]) -> Assembly:
        """Return what a request continues.

        Args:
            params: the request's parameters.
        """
        cursor = params.get("cursor")
        if cursor is None:
            return _START
        if self.latest is not None and _same(self.latest.next_cursor, cursor):
            return self.latest
        return _UNMATCHED

    def result(self, base: Assembly, result: Mapping[str, Any], *, size_bytes: int) -> Assembly:
        """Return the list with one page more.

        Args:
            base: what the request continued.
            result: the result; a page whose entries are no array makes the list unsound.
            size_bytes: bytes of the message.
        """
        page = result.get(self._member)
        grown = replace(base, next_cursor=result.get("nextCursor"), size_bytes=base.size_bytes + size_bytes)
        if not isinstance(page, list):
            self.latest = replace(grown, sound=False)
        elif base.too_large or grown.size_bytes > self._limits.record_bytes_max:
            self.latest = replace(grown, items=(), too_large=True)
        else:
            # One entry over the limit is kept: enough for the registry to refuse the list by name.
            items = (base.items + tuple(page))[: self._limits.tools_max + 1]
            self.latest = replace(grown, items=items)
        return self.latest

    def outdate(self) -> None:
        """Note that the server announced a change: a page that continues what came before is of no known list."""
        if self.latest is not None:
            self.latest = replace(_UNMATCHED, next_cursor=self.latest.next_cursor)

    def unreadable(self, result: Any) -> Assembly:
        """Return the list after a page that could not be read soundly: nothing is known of the rest.

        Args:
            result: what a forgiving reader made of the result.
        """
        cursor = result.get("nextCursor") if isinstance(result, dict) else None
        self.latest = replace(_UNMATCHED, next_cursor=cursor)
        return self.latest


def _same(expected: Any, cursor: Any) -> bool:
    return expected is not None and type(expected) is type(cursor) and bool(expected == cursor)
