"""Lines of a page for a terminal: what they say, and how they are to look."""

from typing import Literal, NamedTuple

Style = Literal["", "title", "dim", "grave", "warn", "mark", "gone", "come"]


class LineSpan(NamedTuple):
    """A piece of a line.

    Args:
        text: safe to print to a terminal.
    """

    text: str
    style: Style = ""


class PageLine(NamedTuple):
    """One line, which may be wrapped.

    Args:
        gutter: prefix of it, and of each line it is wrapped into.
        spans: its content.
        wraps: whether it may be wrapped; False for text to be copied.
    """

    gutter: str
    spans: tuple[LineSpan, ...]
    wraps: bool = True
