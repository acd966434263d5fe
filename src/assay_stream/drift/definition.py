"""Compare two definitions by meaning, each top-level field by what it holds.

* Annotations: a hint that is absent means its default (MCP 2025-06-18, ``ToolAnnotations``). Hints are the server's own
  claims: a new claim shows what the server asserts, not what the tool does.
* Arguments are matched by name, whatever their order (MCP 2025-06-18, ``PromptArgument``).
* Metadata: a change of the Handshake contract is only detected here; the contract's own rules define its meaning. A
  host renders the user interface that ``ui`` names, so its content and permitted hosts are more than metadata (MCP
  Apps, SEP-1865; ``ui/resourceUri`` is its earlier spelling).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any

from assay_stream.canonical.digest import canonicalize
from assay_stream.drift.change import ABSENT, CODES, Change, Path, changed, sorted_names
from assay_stream.drift.equality import Values, same
from assay_stream.drift.json_schema import compare_schemas
from assay_stream.drift.text import compare_texts
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.work import Work, WorkExhaustedError

DEFAULTS: Mapping[str, bool] = {
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}
"""Default of each hint."""

_HARMLESS = {"readOnlyHint": "read_only", "idempotentHint": "idempotent"}
_HARMFUL = {"destructiveHint": ("destructive", "non_destructive"), "openWorldHint": ("open_world", "closed_world")}


def compare_annotations(path: Path | str, before: Any, after: Any, values: Values | None = None) -> Iterator[Change]:
    """Yield the changes between two objects of annotations."""
    path, values = Path.of(path), Values() if values is None else values
    was, now = ({} if side is ABSENT else side for side in (before, after))
    if not isinstance(was, dict) or not isinstance(now, dict):
        yield changed("field_changed", path, before, after, values)
        return
    found = False
    for name in sorted_names(values, was, now):
        sides = was.get(name, ABSENT), now.get(name, ABSENT)
        for change in _compare_member(name, path.member(name), *sides, values):
            found = True
            yield change
    if not found:
        yield changed("annotation_changed", path, before, after, values)


def _compare_member(name: str, path: Path, before: Any, after: Any, values: Values) -> Iterator[Change]:
    if values.same(before, after):
        return
    if name == "title":
        yield from compare_texts("title", path, before, after, values)
        return
    is_hint = name in DEFAULTS and all(side is ABSENT or isinstance(side, bool) for side in (before, after))
    code = _hint_code(name, before, after) if is_hint else "annotation_changed"
    yield changed(code, path, before, after, values)


def _hint_code(name: str, before: Any, after: Any) -> str:
    default = DEFAULTS[name]
    if before is ABSENT or after is ABSENT:
        stated, came = (after, True) if before is ABSENT else (before, False)
        if stated == default:
            return "hint_default_stated" if came else "hint_default_unstated"
        claim = _HARMLESS[name] if name in _HARMLESS else _HARMFUL[name][1]
        return f"{claim}_claimed" if came else f"{claim}_unclaimed"
    word = _HARMLESS[name] if name in _HARMLESS else _HARMFUL[name][0]
    return f"{word}_set" if after else f"{word}_unset"


def compare_arguments(path: Path | str, before: Any, after: Any, values: Values | None = None) -> Iterator[Change]:
    """Yield the changes between two lists of arguments."""
    path, values = Path.of(path), Values() if values is None else values
    was, now = _by_name(before), _by_name(after)
    if was is None or now is None:
        yield changed("field_changed", path, before, after, values)
        return
    found = False
    for name in sorted_names(values, was, now):
        for change in _compare_argument(path.member(name), was.get(name), now.get(name), values):
            found = True
            yield change
    if not found:
        yield changed("arguments_reordered", path, before, after, values)


def _compare_argument(
    path: Path, was: dict[str, Any] | None, now: dict[str, Any] | None, values: Values
) -> Iterator[Change]:
    if was is None or now is None:
        which = "required" if _is_required(was if now is None else now) else "optional"
        come_or_gone = "removed" if now is None else "added"
        yield changed(
            f"parameter_{come_or_gone}_{which}",
            path,
            ABSENT if was is None else was,
            ABSENT if now is None else now,
            values,
        )
        return
    if _is_required(was) is not _is_required(now):
        code = f"parameter_made_{'required' if _is_required(now) else 'optional'}"
        yield changed(code, path, _is_required(was), _is_required(now), values)
    for name in sorted_names(values, was, now):
        old, new = was.get(name, ABSENT), now.get(name, ABSENT)
        if name in ("description", "title"):
            yield from compare_texts(f"parameter_{name}", path.keyword(name), old, new, values)
        elif not values.same(old, new) and (name != "required" or _is_required(was) is _is_required(now)):
            yield changed("field_changed", path.member(name), old, new, values)


def _is_required(argument: dict[str, Any] | None) -> bool:
    return argument is not None and argument.get("required") is True


def _by_name(arguments: Any) -> dict[str, dict[str, Any]] | None:
    """Return the arguments by name, ``None`` if they are not in this form or a name is repeated."""
    listed = [] if arguments is ABSENT else arguments
    if not isinstance(listed, list):
        return None
    named = {each["name"]: each for each in listed if isinstance(each, dict) and isinstance(each.get("name"), str)}
    return named if len(named) == len(listed) else None


_SEPARATORS = re.compile(r"[-_./ ]")
_CONTRACT = "handshake"
_USER_INTERFACE = "ui"


def compare_meta(path: Path | str, before: Any, after: Any, values: Values | None = None) -> Iterator[Change]:
    """Yield the changes between two objects of metadata, one for each member."""
    path, values = Path.of(path), Values() if values is None else values
    was, now = ({} if side is ABSENT else side for side in (before, after))
    if not isinstance(was, dict) or not isinstance(now, dict) or not (was or now):
        yield changed("meta_changed", path, before, after, values)
        return
    for name in sorted_names(values, was, now):
        old, new = was.get(name, ABSENT), now.get(name, ABSENT)
        if not values.same(old, new):
            yield changed(_meta_code(name), path.member(name), old, new, values)


def _meta_code(name: str) -> str:
    if name == _CONTRACT:
        return "contract_changed"
    return "ui_resource_changed" if name.partition("/")[0] == _USER_INTERFACE else "meta_changed"


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
