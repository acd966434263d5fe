"""Lines of a page for a terminal: what they say, and how they are to look."""

from typing import Literal, NamedTuple

Style = Literal["", "title", "dim", "grave", "warn", "mark", "gone", "come"]


class LineSpan(NamedTuple):
    """A piece of a line.

    Args:
        text: what a terminal may be given.
        style: how it is to look.
    """

    text: str
    style: Style = ""


class PageLine(NamedTuple):
    """One line, which may be wrapped.

    Args:
        gutter: what stands before it, and before each line it is wrapped into.
        spans: what it says.
        wraps: whether it may be wrapped: what is to be copied may not.
    """

    gutter: str
    spans: tuple[LineSpan, ...]
    wraps: bool = True
