"""Compare two definitions by meaning, each top-level field by what it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any

from assay_stream.canonical.digest import canonicalize
from assay_stream.drift.change import ABSENT, Change, Path, changed, sorted_names
from assay_stream.drift.codes import CODES
from assay_stream.drift.equality import Values, same
from assay_stream.drift.fields import compare_annotations, compare_arguments, compare_meta
from assay_stream.drift.json_schema import compare_schemas
from assay_stream.drift.text import compare_texts
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.work import Work, WorkExhaustedError

Compare = Callable[[Path, Any, Any, Values], Iterator[Change]]

_DEFINITION_UNITS = 100


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
    found = _Found()
    is_cut = False
    try:
        _compare(before, after, Values(part), found)
    except WorkExhaustedError:
        is_cut = budget.left >= DEFAULT_LIMITS.definition_work_units_max
        if not is_cut:
            raise
    finally:
        budget.spend(part.spent)
    changes = found.told()
    return [*changes, not_compared()] if is_cut or found.is_cut else changes


class _Found:
    """The changes of one comparison: the first in order, up to the limit."""

    def __init__(self) -> None:
        self._changes: list[Change] = []
        self.is_cut = False

    def add(self, change: Change) -> None:
        self._changes.append(change)
        if len(self._changes) >= 2 * DEFAULT_LIMITS.changes_max:
            self.told()

    def told(self) -> list[Change]:
        """Return the changes to report."""
        self._changes.sort(key=_place_of)
        ordered = []
        for _, alike in groupby(self._changes, key=_place_of):
            several = list(alike)
            ordered.extend(several if len(several) == 1 else sorted(several, key=_values_of))
        self.is_cut = self.is_cut or len(ordered) > DEFAULT_LIMITS.changes_max
        self._changes = ordered[: DEFAULT_LIMITS.changes_max]
        return self._changes


def _compare(before: Mapping[str, Any], after: Mapping[str, Any], values: Values, found: _Found) -> None:
    values.work.spend(_DEFINITION_UNITS)
    root = Path("$")
    names = sorted_names(values, before, after)
    # Fields that have a meaning go first: what no standard names must not use up what they need.
    for name in sorted(names, key=_rank):
        sides = before.get(name, ABSENT), after.get(name, ABSENT)
        if not values.same(*sides):
            for change in _FIELDS.get(name, _by_code("field_changed"))(root.member(name), *sides, values):
                found.add(change)


def not_compared() -> Change:
    """Return the change for two definitions that differ in an unknown way."""
    return Change("comparison_cut_short", "$", None, None, CODES["comparison_cut_short"].direction)


def differing_fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the names of the top-level fields that differ, sorted."""
    names = before.keys() | after.keys()
    return sorted(name for name in names if not same(before.get(name, ABSENT), after.get(name, ABSENT)))


def _place_of(change: Change) -> tuple[str, str]:
    return change.path, change.code


def _values_of(change: Change) -> tuple[bytes, bytes]:
    return canonicalize(change.before), canonicalize(change.after)


def _text(subject: str) -> Compare:
    def compare(path: Path, before: Any, after: Any, values: Values) -> Iterator[Change]:
        return compare_texts(subject, path, before, after, values)

    return compare


def _by_code(code: str) -> Compare:
    def compare(path: Path, before: Any, after: Any, values: Values) -> Iterator[Change]:
        yield changed(code, path, before, after, values)

    return compare


_FIELDS: Mapping[str, Compare] = {
    "name": _by_code("name_changed"),
    "description": _text("description"),
    "title": _text("title"),
    "instructions": _text("instructions"),
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


def _rank(name: str) -> int:
    return _RANKS.get(name, len(_RANKS))
