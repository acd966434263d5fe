"""Two lists of a prompt's arguments: by name, whatever their order (MCP 2025-06-18, ``PromptArgument``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from assay_stream.drift.change import ABSENT, Change
from assay_stream.drift.equality import Values
from assay_stream.drift.path import Path
from assay_stream.drift.text import compare_texts
from assay_stream.drift.values import changed, sorted_names


def compare_arguments(path: Path | str, before: Any, after: Any, values: Values | None = None) -> Iterator[Change]:
    """Yield the changes between two lists of arguments.

    Args:
        path: where they stand.
        before: the arguments before, ``ABSENT`` where there were none.
        after: the arguments after, in the same way.
        values: of the comparison, those of a new one without it.
    """
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
    """Return the arguments by name, ``None`` where they have no such form or one name stands twice."""
    listed = [] if arguments is ABSENT else arguments
    if not isinstance(listed, list):
        return None
    named = {each["name"]: each for each in listed if isinstance(each, dict) and isinstance(each.get("name"), str)}
    return named if len(named) == len(listed) else None
