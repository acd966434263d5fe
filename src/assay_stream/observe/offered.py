"""What the client of a connection was told about tools: the last definitions of each name, and doubts on them.

A name keeps its definitions until a later list has others, whatever lists come in between: the client may have
kept them too. A name is *withdrawn* where the server announced a change and the next whole list lacks it. What a
list said that could not be read is in doubt until a later one was read from its beginning to its end.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

NAMES_MAX = 20_000
"""Names that are remembered, four times the longest list that is accepted. The one told longest ago goes first."""


class Offered:
    """Follows the lists that one client was given."""

    def __init__(self) -> None:
        self.doubts = 0
        """How often something was said that could not be read and may have been a list."""
        self._settled = 0
        self._changes = 0
        self._whole = 0
        """The number of the last change that a whole list followed."""
        self._listed: dict[str, int] = {}
        """The number of the last change before each name was listed, as long as there was any."""
        self._tools: OrderedDict[str, tuple[dict[str, Any], ...]] = OrderedDict()

    @property
    def in_doubt(self) -> bool:
        """Whether the client may have been told what is not known here."""
        return self._settled < self.doubts

    def of(self, name: str) -> tuple[dict[str, Any], ...]:
        """Return the definitions that the client was given last under a name: several where one list had several.

        Args:
            name: the tool.
        """
        return self._tools.get(name, ())

    def take(self, items: Iterable[Any]) -> None:
        """Take in a list, as far as its pages are known.

        Args:
            items: the entries of all its pages.
        """
        by_name: dict[str, list[dict[str, Any]]] = {}
        for item in items:
            if isinstance(item, dict) and isinstance(item.get("name"), str):
                by_name.setdefault(item["name"], []).append(item)
        for name, tools in by_name.items():
            self._tools[name] = tuple(tools)
            self._tools.move_to_end(name)
            self._listed[name] = self._changes
        while len(self._tools) > NAMES_MAX:
            name, _ = self._tools.popitem(last=False)
            del self._listed[name]

    def outdate(self) -> None:
        """Note that the server announced that its tools changed."""
        self._changes += 1

    def whole(self) -> None:
        """Note that the list taken in last was a whole one."""
        self._whole = self._changes

    def is_withdrawn(self, name: str) -> bool:
        """Tell whether a tool was listed, and the server changed its list since to one without it.

        Args:
            name: the tool.
        """
        return self._listed.get(name, self._whole) < self._whole

    def doubt(self) -> None:
        """Note that something was said that could not be read."""
        self.doubts += 1

    def settle(self, doubts: int) -> None:
        """Note that a list was read from beginning to end, and that doubts from before it was asked for are over.

        Args:
            doubts: how many there were when it was asked for.
        """
        self._settled = max(self._settled, doubts)
