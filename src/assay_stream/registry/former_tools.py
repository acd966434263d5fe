"""The last definitions of names that no list which is kept names any more.

Observations are folded away to bound the state. A tool that comes back long after must still be compared with what
it was, so the registry keeps one definition of each such name: as a fact, so that a restart knows the same, and
within a bound, the earliest going first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from assay_stream.model.definition_facts import FormerTool


class FormerTools:
    """The former tools of one server."""

    def __init__(self) -> None:
        self._by_name: dict[str, FormerTool] = {}
        self._uses: Counter[tuple[bool, str]] = Counter()
        self._size = 0

    def __contains__(self, tool_name: str) -> bool:
        return tool_name in self._by_name

    def __iter__(self) -> Iterator[FormerTool]:
        return iter(self._by_name.values())

    def get(self, tool_name: str) -> FormerTool | None:
        return self._by_name.get(tool_name)

    def uses(self, place: tuple[bool, str]) -> bool:
        """Tell whether a definition is that of a former tool."""
        return place in self._uses

    def keep(self, tool: FormerTool) -> None:
        self.drop(tool.tool_name)
        self._by_name[tool.tool_name] = tool
        self._uses[tool.place] += 1
        self._size += tool.size

    def drop(self, tool_name: str) -> None:
        tool = self._by_name.pop(tool_name, None)
        if tool is not None:
            self._size -= tool.size
            self._uses[tool.place] -= 1
            if not self._uses[tool.place]:
                del self._uses[tool.place]

    def surplus(self, tools_max: int, bytes_max: int) -> Iterator[FormerTool]:
        """Yield what is beyond a bound, the earliest first, for the caller to drop."""
        count, size = len(self._by_name), self._size
        if count <= tools_max and size <= bytes_max:
            return
        for tool in sorted(self._by_name.values(), key=lambda one: (one.time_us, one.tool_name)):
            if count <= tools_max and size <= bytes_max:
                return
            count, size = count - 1, size - tool.size
            yield tool
