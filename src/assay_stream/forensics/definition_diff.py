"""Two definitions held against each other place by place, for a person to read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from assay_stream.core.digest import canonicalize
from assay_stream.core.meaning.change import member
from assay_stream.forensics.word_diff import Piece, shortened, word_diff

_PLACES_MAX = 200
_FIRST = ("name", "title", "description", "annotations", "inputSchema", "outputSchema")
_RANK = {name: number for number, name in enumerate(_FIRST)}


class Leaf(NamedTuple):
    """What stands at one place.

    Args:
        text: a string as it is, anything else as JSON.
        is_string: whether it is a string.
    """

    text: str
    is_string: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceDiff:
    """One place that differs.

    Args:
        path: where, from the definition's root.
        what: whether it changed, came or went.
        pieces: old and new, word by word.
    """

    path: str
    what: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionDiff:
    """What differs between two definitions.

    Args:
        places: the places that differ: name, title, description, annotations and schemas first.
        same: how many places are the same.
        left_out: how many differing places are not among ``places``.
    """

    places: tuple[PlaceDiff, ...]
    same: int
    left_out: int


def definition_diff(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, *, full: bool = False
) -> DefinitionDiff:
    """Return what differs between two definitions; of one alone all of it came, or went.

    Args:
        before: the older definition, ``None`` where there was none.
        after: the newer one, ``None`` where there is none.
        full: whether everything that differs is kept, however much.
    """
    was = {} if before is None else dict(_leaves(before, "$"))
    now = {} if after is None else dict(_leaves(after, "$"))
    paths = sorted({**was, **now}, key=_order)
    differing = [path for path in paths if was.get(path) != now.get(path)]
    kept = differing if full else differing[:_PLACES_MAX]
    return DefinitionDiff(
        places=tuple(_place(path, was.get(path), now.get(path), full) for path in kept),
        same=len(paths) - len(differing),
        left_out=len(differing) - len(kept),
    )


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Leaf]]:
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _leaves(item, member(path, name))
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    elif isinstance(value, str):
        yield path, Leaf(value, True)
    else:
        yield path, Leaf(json.dumps(value, ensure_ascii=False), False)


def _order(path: str) -> tuple[int, str]:
    top = path.removeprefix("$").lstrip(".").partition(".")[0].partition("[")[0]
    return _RANK.get(top, len(_RANK)), path


def _place(path: str, was: Leaf | None, now: Leaf | None, full: bool) -> PlaceDiff:
    if was is None or now is None:
        what, leaf = ("came", now) if was is None else ("went", was)
        text = leaf.text if leaf is not None else ""
        pieces = [Piece("come" if was is None else "gone", text or '""')]
    elif was.is_string and now.is_string:
        what, pieces = "changed", word_diff(was.text, now.text)
    else:
        # As JSON, so that "1" and 1 are told apart.
        what, pieces = "changed", [Piece("gone", _json(was)), Piece("come", _json(now))]
    return PlaceDiff(path=path, what=what, pieces=tuple(shortened(pieces, full=full)))


def _json(leaf: Leaf) -> str:
    return canonicalize(leaf.text).decode() if leaf.is_string else leaf.text
