"""Two objects of tool annotations: hints that came, went or flipped.

A hint that is absent means its default (Model Context Protocol, 2025-06-18, schema ``ToolAnnotations``). Hints are
the server's own claims: that one came true says what the server says, not what the tool does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from assay_stream.drift.change import ABSENT, Change
from assay_stream.drift.equality import Values
from assay_stream.drift.path import Path
from assay_stream.drift.text import compare_texts
from assay_stream.drift.values import changed, sorted_names

DEFAULTS: Mapping[str, bool] = {
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}
"""What the absence of each hint means."""

_HARMLESS = {"readOnlyHint": "read_only", "idempotentHint": "idempotent"}
_HARMFUL = {
    "destructiveHint": ("destructive", "non_destructive"),
    "openWorldHint": ("open_world", "closed_world"),
}


def compare_annotations(path: Path | str, before: Any, after: Any, values: Values | None = None) -> Iterator[Change]:
    """Yield the changes between two objects of annotations.

    Args:
        path: where they stand.
        before: the annotations before, ``ABSENT`` where there were none.
        after: the annotations after, in the same way.
        values: of the comparison, those of a new one without it.
    """
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
