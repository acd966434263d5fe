"""The last definitions of names that no list which is kept names any more.

Observations are folded away to bound the state. A tool that comes back long after must still be compared with what
it was, so the registry keeps one definition of each such name: as a fact, so that a restart knows the same, and
within a bound, the earliest going first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from assay_stream.model.control_facts import FactKey


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerTool:
    """The last definition known under a name.

    Args:
        server_id: the server.
        tool_name: the name.
        server_scoped: whether its digests cover the server's id.
        full: full digest of the definition.
        size: length of the definition, packed.
        time_us: event time of the list that was folded away with it, microseconds since the epoch.
    """

    server_id: str
    tool_name: str
    server_scoped: bool
    full: str
    size: int
    time_us: int

    @property
    def place(self) -> tuple[bool, str]:
        """What the definition is kept under."""
        return self.server_scoped, self.full

    def key(self) -> FactKey:
        return ("former_tool", self.server_id, self.tool_name)

    def value_json(self) -> dict[str, Any]:
        return {
            "server_scoped": self.server_scoped,
            "full": self.full,
            "size": self.size,
            "time_us": self.time_us,
        }


def read_former_tool(key: FactKey, value: dict[str, Any]) -> FormerTool:
    """Return the former tool that a key and a value hold.

    Args:
        key: key of the fact.
        value: its value.
    """
    _, server_id, tool_name = key
    return FormerTool(
        server_id=str(server_id),
        tool_name=str(tool_name),
        server_scoped=bool(value["server_scoped"]),
        full=str(value["full"]),
        size=int(value["size"]),
        time_us=int(value["time_us"]),
    )


class FormerTools:
    """The former tools of one server."""

    def __init__(self) -> None:
        self._by_name: dict[str, FormerTool] = {}
        self._uses: Counter[tuple[bool, str]] = Counter()
        self._size = 0

    def __contains__(self, tool_name: str) -> bool:
        return tool_name in self._by_name

    def get(self, tool_name: str) -> FormerTool | None:
        """Return what is kept of a name.

        Args:
            tool_name: the name.
        """
        return self._by_name.get(tool_name)

    def uses(self, place: tuple[bool, str]) -> bool:
        """Tell whether a definition is that of a former tool.

        Args:
            place: whether it is server-scoped, and its full digest.
        """
        return place in self._uses

    def keep(self, tool: FormerTool) -> None:
        """Keep a former tool, in place of what was kept of its name.

        Args:
            tool: the tool.
        """
        self.drop(tool.tool_name)
        self._by_name[tool.tool_name] = tool
        self._uses[tool.place] += 1
        self._size += tool.size

    def drop(self, tool_name: str) -> None:
        """Forget what is kept of a name, if anything is.

        Args:
            tool_name: the name.
        """
        tool = self._by_name.pop(tool_name, None)
        if tool is not None:
            self._size -= tool.size
            self._uses[tool.place] -= 1
            if not self._uses[tool.place]:
                del self._uses[tool.place]

    def surplus(self, tools_max: int, bytes_max: int) -> Iterator[FormerTool]:
        """Yield what is beyond a bound, the earliest first; the caller drops it.

        Args:
            tools_max: how many may be kept.
            bytes_max: how long their definitions may be together, packed.
        """
        count, size = len(self._by_name), self._size
        if count <= tools_max and size <= bytes_max:
            return
        for tool in sorted(self._by_name.values(), key=lambda one: (one.time_us, one.tool_name)):
            if count <= tools_max and size <= bytes_max:
                return
            count, size = count - 1, size - tool.size
            yield tool
