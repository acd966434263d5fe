"""Compare two definitions place by place, for a person to read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from assay_stream.canonical.digest import canonicalize
from assay_stream.drift.change import Path
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.text.word_diff import Piece, marked, shortened, word_diff
from assay_stream.work import Work

_PLACES_MAX = 200
_RENDERED_MAX = 10_000
"""Places whose paths are rendered for sorting; in a definition with more, the rest is only counted."""

_FIRST = ("name", "title", "description", "annotations", "inputSchema", "outputSchema")
_RANK: Mapping[str | int, int] = {name: number for number, name in enumerate(_FIRST)}
_LACKING = object()
"""Marks a place missing from one definition."""


class Leaf(NamedTuple):
    """The value at one place.

    Args:
        text: a string verbatim, anything else as JSON.
    """

    text: str
    is_string: bool


Words = tuple[int, str]
"""Some words of a text, and where they start in it as its reader sees it."""

_NO_WORDS: Final[Mapping[str, Sequence[Words]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceDiff:
    """One place that differs.

    Args:
        path: from the definition's root.
        what: ``added``, ``changed`` or ``removed``.
        pieces: old and new, word by word.
    """

    path: str
    what: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionDiff:
    """The differences between two definitions.

    Args:
        places: the places that differ: name, title, description, annotations and schemas first.
        same: number of equal places.
        left_out: number of differing places not among ``places``.
    """

    places: tuple[PlaceDiff, ...]
    same: int
    left_out: int


def definition_diff(
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    *,
    words: Mapping[str, Sequence[Words]] = _NO_WORDS,
    full: bool = False,
    work: Work | None = None,
) -> DefinitionDiff:
    """Return the differences between two definitions; if only one is given, all of it was added or removed.

    Args:
        before: the older definition, ``None`` where there was none.
        after: the newer one, ``None`` where there is none.
        words: by path of the newer one, words to be marked.
        full: keep long texts in full, and fifty times as many differences.
        work: the budget for comparing by words; texts that exceed it are shown as replaced.
    """
    work = Work(DEFAULT_LIMITS.definition_work_units_max) if work is None else work
    same = different = 0
    differing: list[tuple[str, Leaf | None, Leaf | None]] = []
    for path, was, now in _walk(*(_LACKING if side is None else side for side in (before, after))):
        if was == now:
            same += 1
        else:
            different += 1
            if different <= _RENDERED_MAX:
                differing.append((str(path), was, now))
    ordered = nsmallest(_RENDERED_MAX if full else _PLACES_MAX, differing, key=_order)
    places = tuple(_place(*each, words.get(each[0], ()), full, work) for each in ordered)
    return DefinitionDiff(places=places, same=same, left_out=different - len(ordered))


def _walk(before: Any, after: Any) -> Iterator[tuple[Path, Leaf | None, Leaf | None]]:
    waiting = [(Path("$"), before, after)]
    while waiting:
        path, was, now = waiting.pop()
        kinds = {_kind(side) for side in (was, now) if side is not _LACKING}
        if len(kinds) > 1:
            waiting += [(path, _LACKING, now), (path, was, _LACKING)]
        elif kinds == {"leaf"}:
            yield path, _leaf(was), _leaf(now)
        else:
            one, other = (_parts(side) for side in (was, now))
            for name in sorted({**one, **other}, key=_rank)[::-1]:
                place = path.item(name) if isinstance(name, int) else path.member(name)
                waiting.append((place, one.get(name, _LACKING), other.get(name, _LACKING)))


def _parts(value: Any) -> Mapping[Any, Any]:
    return dict(enumerate(value)) if isinstance(value, list) else {} if value is _LACKING else value


def _kind(value: Any) -> str:
    if isinstance(value, Mapping) and value:
        return "object"
    return "list" if isinstance(value, list) and any(isinstance(item, dict | list) for item in value) else "leaf"


def _leaf(value: Any) -> Leaf | None:
    if value is _LACKING:
        return None
    return Leaf(value, True) if isinstance(value, str) else Leaf(json.dumps(value, ensure_ascii=False), False)


def _order(place: tuple[str, Leaf | None, Leaf | None]) -> tuple[int, str]:
    path = place[0]
    top = path.removeprefix("$").lstrip(".").partition(".")[0].partition("[")[0]
    return _rank(top), path


def _rank(name: str | int) -> int:
    return _RANK.get(name, len(_RANK))


def _place(path: str, was: Leaf | None, now: Leaf | None, words: Sequence[Words], full: bool, work: Work) -> PlaceDiff:
    if was is None or now is None:
        what, leaf = ("added", now) if was is None else ("removed", was)
        text = leaf.text if leaf is not None else ""
        pieces = [Piece("come" if was is None else "gone", text or '""')]
    elif was.is_string and now.is_string:
        what, pieces = "changed", word_diff(was.text, now.text, work)
        if work.is_exhausted:
            pieces.insert(0, Piece("note", "too costly to compare word by word"))
    else:
        # As JSON, so that "1" and 1 are told apart.
        what, pieces = "changed", [Piece("gone", _json(was)), Piece("come", _json(now))]
    if words and now is not None and now.is_string and (was is None or was.is_string):
        pieces = list(marked(pieces, list(_spans(now.text, words))))
    return PlaceDiff(path=path, what=what, pieces=tuple(shortened(pieces, full=full)))


def _spans(text: str, words: Iterable[Words]) -> Iterator[tuple[int, int]]:
    for start, said in words:
        # Where hidden characters stand before them, words start later than a reader sees.
        at = start if text.startswith(said, start) else text.find(said)
        if at >= 0:
            yield at, at + len(said)


def _json(leaf: Leaf) -> str:
    return canonicalize(leaf.text).decode() if leaf.is_string else leaf.text
