"""Lines out of a stream of bytes, within bounded memory."""

from __future__ import annotations

from collections.abc import Iterator


class LineSplitter:
    """Cuts a stream into lines.

    Args:
        line_bytes_max: longest line kept; a longer one is given as ``None``.
    """

    def __init__(self, line_bytes_max: int) -> None:
        self._line_bytes_max = line_bytes_max
        self._parts: list[bytes] = []
        self._size_bytes = 0
        self._broken = False

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """Yield the lines that end in these bytes, without their line feeds; ``None`` for one not kept.

        Args:
            data: the next bytes of the stream.
        """
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._add(end)
            yield self._take()
        self._add(rest)

    def lose(self) -> None:
        """Note that bytes of the stream were not seen: the line under way cannot be known."""
        self._parts.clear()
        self._broken = True

    def end(self) -> Iterator[bytes | None]:
        """Yield the last line if it has no line feed."""
        if self._broken or self._parts:
            yield self._take()

    def _add(self, part: bytes) -> None:
        self._size_bytes += len(part)
        if self._size_bytes > self._line_bytes_max:
            self.lose()
        elif part and not self._broken:
            self._parts.append(part)

    def _take(self) -> bytes | None:
        line = None if self._broken else b"".join(self._parts)
        self._parts.clear()
        self._size_bytes = 0
        self._broken = False
        return line
