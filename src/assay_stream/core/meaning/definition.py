"""Two definitions by meaning: each top-level field by what it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from assay_stream.core.digest import canonicalize
from assay_stream.core.limits import DEFAULT_LIMITS
from assay_stream.core.meaning.annotations import compare_annotations
from assay_stream.core.meaning.arguments import compare_arguments
from assay_stream.core.meaning.change import ABSENT, Change, member
from assay_stream.core.meaning.contract import compare_meta
from assay_stream.core.meaning.json_schema import compare_schemas
from assay_stream.core.meaning.text import compare_texts
from assay_stream.core.meaning.values import changed, same
from assay_stream.core.work import Work, WorkExhaustedError

Compare = Callable[[str, Any, Any], Iterator[Change]]

_BYTES_PER_UNIT = 10
"""Bytes of canonical form that are written and compared for one unit of work."""


def compare_definitions(
    before: Mapping[str, Any], after: Mapping[str, Any], work: Work | None = None
) -> list[Change]:
    """Return what changed between two definitions, in the order of paths and codes.

    Definitions that differ in their canonical form have at least one change; equal ones have none. Where two
    definitions take more work than one definition may, the last change is ``comparison_cut_short``.

    Args:
        before: a tool, prompt or resource template as received.
        after: the same one later.
        work: the budget of the record, one of its own without it.

    Raises:
        InputError: where one of them cannot be canonicalised.
        WorkExhaustedError: where ``work`` holds less than these two take.
    """
    budget = Work(DEFAULT_LIMITS.definition_work_units_max) if work is None else work
    part = budget.part(DEFAULT_LIMITS.definition_work_units_max)
    found: list[Change] = []
    is_cut = False
    try:
        _compare(before, after, part, found)
    except WorkExhaustedError:
        if budget.left < DEFAULT_LIMITS.definition_work_units_max:
            budget.spend(part.spent)
            raise
        is_cut = True
    budget.spend(part.spent)
    found.sort(key=_order)
    changes_max = DEFAULT_LIMITS.changes_max
    if is_cut or len(found) > changes_max:
        found[changes_max:] = [not_compared()]
    return found


def _compare(before: Mapping[str, Any], after: Mapping[str, Any], work: Work, found: list[Change]) -> None:
    was, now = canonicalize(before), canonicalize(after)
    work.spend((len(was) + len(now)) // _BYTES_PER_UNIT)
    if was == now:
        return
    for name in differing_fields(before, after):
        compare = _FIELDS.get(name, _by_code("field_changed"))
        found.extend(compare(member("$", name), before.get(name, ABSENT), after.get(name, ABSENT)))


def not_compared() -> Change:
    """Return the change that says that two definitions differ, and that it was not told how."""
    return changed("comparison_cut_short", "$", ABSENT, ABSENT)


def differing_fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the names of the top-level fields that differ, sorted.

    Args:
        before: a definition.
        after: another one.
    """
    names = before.keys() | after.keys()
    return sorted(name for name in names if not same(before.get(name, ABSENT), after.get(name, ABSENT)))


def _order(change: Change) -> tuple[str, str, bytes, bytes]:
    return change.path, change.code, canonicalize(change.before), canonicalize(change.after)


def _text(subject: str) -> Compare:
    def compare(path: str, before: Any, after: Any) -> Iterator[Change]:
        return compare_texts(subject, path, before, after)

    return compare


def _by_code(code: str) -> Compare:
    def compare(path: str, before: Any, after: Any) -> Iterator[Change]:
        yield changed(code, path, before, after)

    return compare


_FIELDS: Mapping[str, Compare] = {
    "name": _by_code("name_changed"),
    "description": _text("description"),
    "title": _text("title"),
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
"""The fields of a definition that have a meaning of their own; any other one is ``field_changed``."""
