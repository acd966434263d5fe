"""Compare two definitions: by meaning, each top-level field by what it holds, and place by place, for a person to read.

* Annotations: a hint that is absent means its default (MCP 2025-06-18, ``ToolAnnotations``). Hints are the server's own
  claims: a new claim shows what the server asserts, not what the tool does.
* Arguments are matched by name, whatever their order (MCP 2025-06-18, ``PromptArgument``).
* Metadata: a change of the Handshake contract is only detected here; the contract's own rules define its meaning. A
  host renders the user interface that ``ui`` names, so its content and permitted hosts are more than metadata (MCP
  Apps, SEP-1865; ``ui/resourceUri`` is its earlier spelling).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from itertools import chain, groupby, islice
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from assay_stream.canonical.digest import canonicalize
from assay_stream.drift.change import ABSENT, CODES, Change, Path, at_least, changed, paired, sorted_names
from assay_stream.drift.equality import Values, same
from assay_stream.drift.json_schema import compare_schemas
from assay_stream.drift.values import compare_texts
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.text.word_diff import Piece, marked, shortened, word_diff
from assay_stream.work import Work, WorkExhaustedError

HINTS: Mapping[str, tuple[bool, str, str]] = {
    "readOnlyHint": (False, "read_only", "read_only"),
    "destructiveHint": (True, "destructive", "non_destructive"),
    "idempotentHint": (False, "idempotent", "idempotent"),
    "openWorldHint": (True, "open_world", "closed_world"),
}
"""Default of each hint, what it says where it is true, and what one claims who states the opposite of the default."""


def compare_annotations(path: Path, before: Any, after: Any, values: Values) -> Iterator[Change]:
    """Yield the changes between two objects of annotations."""
    was, now = ({} if side is ABSENT else side for side in (before, after))
    if not isinstance(was, dict) or not isinstance(now, dict):
        yield changed("field_changed", path, before, after, values)
    else:
        yield from at_least("annotation_changed", _hints(path, was, now, values), path, before, after, values)


def _hints(path: Path, was: dict[str, Any], now: dict[str, Any], values: Values) -> Iterator[Change]:
    for name, place, old, new in paired(path, was, now, values):
        if values.same(old, new):
            continue
        if name == "title":
            yield from compare_texts("title", place, old, new, values)
            continue
        is_hint = name in HINTS and all(side is ABSENT or isinstance(side, bool) for side in (old, new))
        yield changed(_hint_code(name, old, new) if is_hint else "annotation_changed", place, old, new, values)


def _hint_code(name: str, before: Any, after: Any) -> str:
    default, word, claim = HINTS[name]
    if before is not ABSENT and after is not ABSENT:
        return f"{word}_set" if after else f"{word}_unset"
    stated, un = (after, "") if before is ABSENT else (before, "un")
    return f"hint_default_{un}stated" if stated == default else f"{claim}_{un}claimed"


def compare_arguments(path: Path, before: Any, after: Any, values: Values) -> Iterator[Change]:
    """Yield the changes between two lists of arguments."""
    was, now = _by_name(before), _by_name(after)
    if was is None or now is None:
        yield changed("field_changed", path, before, after, values)
        return
    found = chain.from_iterable(
        _argument(place, old, new, values) for _, place, old, new in paired(path, was, now, values)
    )
    yield from at_least("arguments_reordered", found, path, before, after, values)


def _argument(path: Path, was: Any, now: Any, values: Values) -> Iterator[Change]:
    if was is ABSENT or now is ABSENT:
        which = "required" if _is_required(was if now is ABSENT else now) else "optional"
        yield changed(f"parameter_{'removed' if now is ABSENT else 'added'}_{which}", path, was, now, values)
        return
    if _is_required(was) is not _is_required(now):
        code = f"parameter_made_{'required' if _is_required(now) else 'optional'}"
        yield changed(code, path, _is_required(was), _is_required(now), values)
    for name, place, old, new in paired(path, was, now, values):
        if name in ("description", "title"):
            yield from compare_texts(f"parameter_{name}", place, old, new, values)
        elif not values.same(old, new) and (name != "required" or _is_required(was) is _is_required(now)):
            yield changed("field_changed", place, old, new, values)


def _is_required(argument: dict[str, Any]) -> bool:
    return argument.get("required") is True


def _by_name(arguments: Any) -> dict[str, dict[str, Any]] | None:
    """Return the arguments by name, ``None`` if they are not in this form or a name is repeated."""
    listed = [] if arguments is ABSENT else arguments
    if not isinstance(listed, list):
        return None
    named = {each["name"]: each for each in listed if isinstance(each, dict) and isinstance(each.get("name"), str)}
    return named if len(named) == len(listed) else None


def compare_meta(path: Path, before: Any, after: Any, values: Values) -> Iterator[Change]:
    """Yield the changes between two objects of metadata, one for each member."""
    was, now = ({} if side is ABSENT else side for side in (before, after))
    if not isinstance(was, dict) or not isinstance(now, dict) or not (was or now):
        yield changed("meta_changed", path, before, after, values)
        return
    for name, place, old, new in paired(path, was, now, values):
        if not values.same(old, new):
            is_shown = name.partition("/")[0] == "ui"
            code = "contract_changed" if name == "handshake" else f"{'ui_resource' if is_shown else 'meta'}_changed"
            yield changed(code, place, old, new, values)


Compare = Callable[[Path, Any, Any, Values], Iterator[Change]]

_DEFINITION_UNITS = 100
_SEPARATORS = re.compile(r"[-_./ ]")


def compare_definitions(before: Mapping[str, Any], after: Mapping[str, Any], work: Work | None = None) -> list[Change]:
    """Return the changes between two definitions, ordered by path and code.

    Definitions that differ in their canonical form have at least one change; equal ones have none. Where two
    definitions take more work than one definition may, the last change is ``comparison_cut_short``.

    Args:
        before: a tool, prompt or resource template as received.
        after: the same one later.
        work: the budget of the record; ``None`` for one of its own.

    Raises:
        InputError: if one of them cannot be canonicalised.
        WorkExhaustedError: if ``work`` holds less than these two take.
    """
    budget = Work(DEFAULT_LIMITS.definition_work_units_max) if work is None else work
    part = budget.part(DEFAULT_LIMITS.definition_work_units_max)
    found: list[Change] = []
    is_cut = False
    try:
        for change in _compare(before, after, Values(part)):
            found.append(change)  # noqa: PERF402 -- those before the budget ends count
    except WorkExhaustedError:
        is_cut = budget.left >= DEFAULT_LIMITS.definition_work_units_max
        if not is_cut:
            raise
    finally:
        budget.spend(part.spent)
    changes = list(islice(_ordered(found), DEFAULT_LIMITS.changes_max + 1))
    if not is_cut and len(changes) <= DEFAULT_LIMITS.changes_max:
        return changes
    return [*changes[: DEFAULT_LIMITS.changes_max], not_compared()]


def _ordered(changes: list[Change]) -> Iterator[Change]:
    place_of = attrgetter("path", "code")
    for _, alike in groupby(sorted(changes, key=place_of), key=place_of):
        several = list(alike)
        if len(several) > 1:
            several.sort(key=lambda change: (canonicalize(change.before), canonicalize(change.after)))
        yield from several


def _compare(before: Mapping[str, Any], after: Mapping[str, Any], values: Values) -> Iterator[Change]:
    values.work.spend(_DEFINITION_UNITS)
    root = Path("$")
    names = sorted_names(values, before, after)
    # Fields that have a meaning go first: what no standard names must not use up what they need.
    for name in sorted(names, key=lambda name: _RANKS.get(name, len(_RANKS))):
        sides = before.get(name, ABSENT), after.get(name, ABSENT)
        if not values.same(*sides):
            yield from _FIELDS.get(name, _by_code("field_changed"))(root.member(name), *sides, values)


def not_compared() -> Change:
    """Return the change for two definitions that differ in an unknown way."""
    return Change("comparison_cut_short", "$", None, None, CODES["comparison_cut_short"].direction)


def differing_fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the names of the top-level fields that differ, sorted."""
    names = before.keys() | after.keys()
    return sorted(name for name in names if not same(before.get(name, ABSENT), after.get(name, ABSENT)))


def _compare_names(path: Path, before: Any, after: Any, values: Values) -> Iterator[Change]:
    names = [_SEPARATORS.sub("", side).lower() for side in (before, after) if isinstance(side, str) and side.isascii()]
    code = "name_respelt" if len(names) == 2 and names[0] == names[1] else "name_changed"
    yield changed(code, path, before, after, values)


def _by_code(code: str) -> Compare:
    def compare(path: Path, before: Any, after: Any, values: Values) -> Iterator[Change]:
        yield changed(code, path, before, after, values)

    return compare


_FIELDS: Mapping[str, Compare] = {
    "name": _compare_names,
    "description": partial(compare_texts, "description"),
    "title": partial(compare_texts, "title"),
    "instructions": partial(compare_texts, "instructions"),
    "inputSchema": compare_schemas,
    "input_schema": compare_schemas,
    "outputSchema": compare_schemas,
    "output_schema": compare_schemas,
    "annotations": compare_annotations,
    "arguments": compare_arguments,
    "execution": _by_code("execution_changed"),
    "icons": _by_code("icons_changed"),
    "mimeType": _by_code("mime_type_changed"),
    "_meta": compare_meta,
}
"""The fields of a definition with a comparison of their own; any other one is ``field_changed``."""

_RANKS = {name: rank for rank, name in enumerate(_FIELDS)}

_PLACES_MAX = 200
_RENDERED_MAX = 10_000
"""Places whose paths are rendered for sorting; in a definition with more, the rest is only counted."""

_FIRST = ("name", "title", "description", "annotations", "inputSchema", "outputSchema")
_RANK: Mapping[str | int, int] = {name: number for number, name in enumerate(_FIRST)}
_LACKING = object()
"""Marks a place missing from one definition."""


class Leaf(NamedTuple):
    """The value at one place: a string verbatim, anything else as JSON."""

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
            one, other = (
                dict(enumerate(side)) if isinstance(side, list) else {} if side is _LACKING else side
                for side in (was, now)
            )
            for name in sorted({**one, **other}, key=_place_rank)[::-1]:
                place = path.item(name) if isinstance(name, int) else path.member(name)
                waiting.append((place, one.get(name, _LACKING), other.get(name, _LACKING)))


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
    return _place_rank(top), path


def _place_rank(name: str | int) -> int:
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
