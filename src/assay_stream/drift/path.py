"""Where a change is: a chain of steps that becomes text only when there is something to report."""

from __future__ import annotations

from assay_stream.canonical.digest import sha256_of
from assay_stream.drift.change import member
from assay_stream.limits import DEFAULT_LIMITS


class Path:
    """One place of a definition.

    Args:
        text: its path from the definition's root: ``$.inputSchema``.
    """

    __slots__ = ("_is_name", "_parent", "_step", "_text")

    def __init__(self, text: str) -> None:
        self._parent: Path | None = None
        self._step = ""
        self._is_name = False
        self._text: str | None = text

    @classmethod
    def of(cls, path: Path | str) -> Path:
        """Return the path of this text, or the path itself.

        Args:
            path: a path or its text.
        """
        return cls(path) if isinstance(path, str) else path

    def keyword(self, name: str) -> Path:
        """Return the path of a member whose name is known to be plain.

        Args:
            name: a keyword of JSON Schema or of the Model Context Protocol.
        """
        return self._next(f".{name}", is_name=False)

    def member(self, name: str) -> Path:
        """Return the path of a member of any name.

        Args:
            name: as the server chose it.
        """
        return self._next(name, is_name=True)

    def item(self, index: int) -> Path:
        """Return the path of an item of a list.

        Args:
            index: counted from zero.
        """
        return self._next(f"[{index}]", is_name=False)

    def _next(self, step: str, *, is_name: bool) -> Path:
        path = Path.__new__(Path)
        path._parent, path._step, path._is_name, path._text = self, step, is_name, None
        return path

    def __str__(self) -> str:
        """Return the text of the path; a long one is cut, with a mark that tells it from others."""
        chain: list[Path] = []
        node: Path | None = self
        while node is not None and node._text is None:
            chain.append(node)
            node = node._parent
        text = "" if node is None or node._text is None else node._text
        for node in reversed(chain):
            text = _cut(member(text, node._step) if node._is_name else text + node._step)
            node._text = text
        return text


def _cut(text: str) -> str:
    chars_max = DEFAULT_LIMITS.path_chars_max
    return text if len(text) <= chars_max else f"{text[:chars_max]}… (cut: {sha256_of(text.encode())})"
