"""Comparisons of single fields, called from a path as text and on a budget of their own."""

from collections.abc import Callable, Iterator
from typing import Any

from assay_stream.drift.change import Change, Path
from assay_stream.drift.equality import Values
from assay_stream.model.fields import ChangeDirection

_OPPOSITE = {ChangeDirection.WIDENS: ChangeDirection.NARROWS, ChangeDirection.NARROWS: ChangeDirection.WIDENS}


def mirrored(direction: ChangeDirection) -> ChangeDirection:
    """Return the direction of the way back."""
    return _OPPOSITE.get(direction, direction)


def on_its_own(
    compare: Callable[[Path, Any, Any, Values], Iterator[Change]],
) -> Callable[[str, Any, Any], list[Change]]:
    return lambda path, before, after: list(compare(Path(path), before, after, Values()))
