"""Schemas that their generator wrote anew: one change where nothing differs but what generators decide.

Only changes that concern no named parameter may be folded: the dialect, whether unnamed parameters are allowed, shared
parts that were inlined or extracted, another form of the same, and whether null may be sent for optional values.
Words are never folded, and a single change of any other kind keeps all of them apart: nothing hides behind this.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from assay_stream.drift.change import Change, Path
from assay_stream.drift.codes import CODES
from assay_stream.work import WorkExhaustedError

_UNNAMED = frozenset(("additional_properties_opened", "additional_properties_closed"))
_SAME = frozenset(("schema_restated", "bounds_restated", "schema_dialect_changed"))
_FORMS = _UNNAMED | _SAME | {"schema_definition_added", "schema_definition_removed", "null_allowed", "null_refused"}
_DEFAULTS = frozenset(("default_added", "default_removed"))
_WORDS = ("parameter_description_", "parameter_title_")
_ANNOTATIONS = frozenset(("title", "description", "default", "examples", "deprecated", "$comment"))
_NULL = {"type": "null"}
_CODE = "schema_regenerated"

Schema = dict[str, Any]


def folded(path: Path, changes: Iterator[Change]) -> Iterator[Change]:
    """Yield the changes of one schema, with all generator decisions folded into one where nothing else changed.

    Args:
        path: of the schema.

    Raises:
        WorkExhaustedError: as ``changes`` does; changes found before are yielded first.
    """
    forms: list[Change] = []
    is_foldable = True
    try:
        for change in changes:
            if change.code.startswith(_WORDS):
                yield change
            elif is_foldable and _is_form(change):
                forms.append(change)
            else:
                yield from forms
                forms.clear()
                is_foldable = False
                yield change
    except WorkExhaustedError:
        yield from forms
        raise
    codes = {change.code for change in forms}
    if codes & _UNNAMED or (len(codes) > 1 and codes - _SAME):
        yield Change(_CODE, str(path), None, None, CODES[_CODE].direction)
    else:
        yield from forms


def _is_form(change: Change) -> bool:
    if change.code in _DEFAULTS:
        return change.before is None and change.after is None  # The default is null.
    if change.code in _UNNAMED:
        # Where a schema says what unnamed parameters are, they are no longer unnamed.
        return all(side is None or isinstance(side, bool) or side == {} for side in (change.before, change.after))
    return change.code in _FORMS


def without_null(before: Schema, after: Schema) -> tuple[tuple[str, Schema], tuple[str, Schema]]:
    """Return how each of two schemas allows null, ``""`` where it does not, and the rest of it.

    Where both do it in the same form, or neither does, they are returned unchanged. A default of null goes with
    the null where the other schema has none.
    """
    (form, was), (other, now) = _null_of(before), _null_of(after)
    if form == other or not all(each or _refuses_null(side) for each, side in ((form, before), (other, after))):
        return ("", before), ("", after)
    if not other and "default" not in now:
        was = _without_null_default(was)
    if not form and "default" not in was:
        now = _without_null_default(now)
    return (form, was), (other, now)


def _null_of(schema: Schema) -> tuple[str, Schema]:
    for keyword in ("anyOf", "oneOf"):
        members = schema.get(keyword)
        if isinstance(members, list) and len(members) == 2 and _NULL in members:
            inner = members[members[0] == _NULL]
            beside = {name: value for name, value in schema.items() if name != keyword}
            if isinstance(inner, dict) and inner != _NULL and inner.keys() & beside.keys() <= _ANNOTATIONS:
                return keyword, inner | beside
    kinds = schema.get("type")
    if isinstance(kinds, list) and "null" in kinds and len(kinds) > 1:
        others = [kind for kind in kinds if kind != "null"]
        rest = schema | {"type": others[0] if len(others) == 1 else others}
        if isinstance(schema.get("enum"), list):
            rest["enum"] = [each for each in schema["enum"] if each is not None]
        return "type", rest
    return "", schema


def _refuses_null(schema: Schema) -> bool:
    """Return True if a schema that allows null in neither form states types or refers to a schema that does."""
    return ("type" in schema or "$ref" in schema) and not schema.keys() & {"anyOf", "oneOf"}


def _without_null_default(schema: Schema) -> Schema:
    return {name: value for name, value in schema.items() if name != "default" or value is not None}
