"""What values a JSON Schema allows at one place: types, lists of values, bounds, patterns, formats and defaults.

Each function looks at some keywords of one schema, before and after, and leaves nested schemas alone.
Source: JSON Schema draft 2020-12, Validation, sections 6 and 9.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from assay_stream.core.digest import canonicalize
from assay_stream.core.meaning.change import ABSENT, Change, bounded_pair
from assay_stream.core.meaning.codes import CODES

Schema = Mapping[str, Any]

_TYPE_NAMES = frozenset(("null", "boolean", "object", "array", "number", "string", "integer"))
_COUNTS = (
    ("minLength", True), ("maxLength", False), ("minItems", True), ("maxItems", False),
    ("minProperties", True), ("maxProperties", False),
)  # fmt: skip
_LOWER = ("minimum", "exclusiveMinimum")
_UPPER = ("maximum", "exclusiveMaximum")


def same(before: Any, after: Any) -> bool:
    """Tell whether two JSON values are equal; other than for Python, ``true`` is not 1.

    Args:
        before: a JSON value or ``ABSENT``.
        after: another one.
    """
    if before is after:
        return True
    if isinstance(before, bool) is not isinstance(after, bool) or before != after:
        return False
    return not isinstance(before, dict | list) or canonicalize(before) == canonicalize(after)


def changed(code: str, path: str, before: Any, after: Any) -> Change:
    """Return a change of this code, with its values bounded.

    Args:
        code: a key of ``CODES``.
        path: where.
        before: the value before, or ``ABSENT``.
        after: the value after, or ``ABSENT``.
    """
    return Change(code, path, *bounded_pair(before, after), CODES[code].direction)


def compare_values(path: str, before: Schema, after: Schema) -> Iterator[Change]:
    """Yield the changes of what one place of a schema allows, nested schemas left alone.

    Args:
        path: of the schema.
        before: the schema before.
        after: the schema after.
    """
    names = _TELLING & (before.keys() | after.keys())
    if all(same(before.get(name, ABSENT), after.get(name, ABSENT)) for name in names):
        return
    for compare in _COMPARISONS:
        yield from compare(path, before, after)


def _compare_types(path: str, before: Schema, after: Schema) -> Iterator[Change]:
    sides = before.get("type", ABSENT), after.get("type", ABSENT)
    stated = [_stated_types(side) for side in sides]
    if (ABSENT not in sides) and None in stated:
        if not same(*sides):
            yield changed("schema_keyword_changed", f"{path}.type", *sides)
        return
    was, now = _types(before), _types(after)
    if was == now:
        return
    if was is None or now is None:
        code = "type_constrained" if was is None else "type_unconstrained"
    elif was < now:
        code = "type_widened"
    else:
        code = "type_narrowed" if now < was else "type_changed"
    yield changed(code, f"{path}.type", *sides)


def _stated_types(stated: Any) -> frozenset[str] | None:
    names = [stated] if isinstance(stated, str) else stated
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return None
    found = frozenset(names)
    if not found <= _TYPE_NAMES:
        return None
    return found | {"integer"} if "number" in found else found


def _types(schema: Schema) -> frozenset[str] | None:
    """Return the types allowed, told by ``type``, by listed values or by all alternatives; ``None`` for any."""
    if "type" in schema:
        return _stated_types(schema["type"])
    values = _listed(schema)
    if values is not None:
        return _stated_types([_type_of(value) for value in values.values()])
    for keyword in ("anyOf", "oneOf"):
        alternatives = schema.get(keyword)
        if isinstance(alternatives, list) and alternatives:
            kinds = [_types(each) if isinstance(each, dict) and "type" in each else None for each in alternatives]
            if all(kind is not None for kind in kinds):
                return frozenset().union(*(kind for kind in kinds if kind is not None))
    return None


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _listed(schema: Schema) -> dict[bytes, Any] | None:
    """Return the values that ``enum`` or ``const`` allows, by canonical form; ``None`` where neither is stated."""
    values = schema.get("enum", ABSENT)
    if values is ABSENT and "const" in schema:
        values = [schema["const"]]
    return {canonicalize(value): value for value in values} if isinstance(values, list) else None


def _compare_listed(path: str, before: Schema, after: Schema) -> Iterator[Change]:
    for keyword in ("enum", "const"):
        if keyword == "enum" and any("enum" in s and not isinstance(s["enum"], list) for s in (before, after)):
            if not same(before.get("enum", ABSENT), after.get("enum", ABSENT)):
                yield changed(
                    "schema_keyword_changed",
                    f"{path}.enum",
                    before.get("enum", ABSENT),
                    after.get("enum", ABSENT),
                )
            return
    was, now = _listed(before), _listed(after)
    word = "enum" if "enum" in before or "enum" in after else "const"
    sides = [side.get("enum", side.get("const", ABSENT)) for side in (before, after)]
    if was is None or now is None:
        if was is not now:
            yield changed(f"{word}_{'introduced' if was is None else 'dropped'}", f"{path}.{word}", *sides)
    elif was.keys() != now.keys():
        if word == "const":
            code = "const_changed"
        elif was.keys() < now.keys():
            code = "enum_values_added"
        else:
            code = "enum_values_removed" if now.keys() < was.keys() else "enum_changed"
        yield changed(code, f"{path}.{word}", *sides)


def _compare_bounds(path: str, before: Schema, after: Schema) -> Iterator[Change]:
    of_integers = all(_types(side) == frozenset(("integer",)) for side in (before, after))
    for keywords, is_lower in ((_LOWER, True), (_UPPER, False)):
        yield from _compare_bound(path, before, after, keywords, is_lower, of_integers)
    for keyword, is_lower in _COUNTS:
        yield from _compare_bound(path, before, after, (keyword,), is_lower, False)
    yield from _compare_multiple(path, before, after)


def _compare_bound(
    path: str, before: Schema, after: Schema, keywords: tuple[str, ...], is_lower: bool, of_integers: bool
) -> Iterator[Change]:
    if not any(name in before or name in after for name in keywords):
        return
    stated = [{name: side[name] for name in keywords if name in side} for side in (before, after)]
    differing = [name for name in keywords if not same(*(side.get(name, ABSENT) for side in stated))]
    if not differing:
        return
    where = f"{path}.{differing[0]}"
    values = stated if len(differing) > 1 else [side.get(differing[0], ABSENT) for side in stated]
    if not all(_is_number(number) for side in stated for number in side.values()):
        yield changed("schema_keyword_changed", where, *values)
        return
    was, now = (_tightness(side, is_lower, of_integers) for side in stated)
    code = "bounds_restated" if was == now else ("bounds_tightened" if was < now else "bounds_loosened")
    yield changed(code, where, *values)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _tightness(stated: Mapping[str, Any], is_lower: bool, of_integers: bool) -> tuple[float, bool]:
    """Return how tight the tightest of some bounds is: the greater the tighter."""
    counts = any(name[:3] in ("min", "max") and name not in (*_LOWER, *_UPPER) for name in stated)
    tightest: tuple[float, bool] = (-math.inf, False)
    for name, number in stated.items():
        value, is_open = (number if is_lower else -number), name.startswith("exclusive")
        if of_integers:
            value, is_open = (math.floor(value) + 1 if is_open else math.ceil(value)), False
        tightest = max(tightest, (value, is_open))
    # No count is below zero, so such a bound asks for nothing.
    return (-math.inf, False) if counts and is_lower and tightest[0] <= 0 else tightest


def _compare_multiple(path: str, before: Schema, after: Schema) -> Iterator[Change]:
    was, now = before.get("multipleOf", ABSENT), after.get("multipleOf", ABSENT)
    if same(was, now):
        return
    if was is ABSENT or now is ABSENT:
        code = "bounds_tightened" if was is ABSENT else "bounds_loosened"
    elif not _is_number(was) or not _is_number(now) or was <= 0 or now <= 0:
        code = "schema_keyword_changed"
    elif now % was == 0:
        code = "bounds_tightened"
    else:
        code = "bounds_loosened" if was % now == 0 else "bounds_changed"
    yield changed(code, f"{path}.multipleOf", was, now)


def _compare_forms(path: str, before: Schema, after: Schema) -> Iterator[Change]:
    for keyword in ("pattern", "format"):
        was, now = before.get(keyword, ABSENT), after.get(keyword, ABSENT)
        if same(was, now):
            continue
        if was is ABSENT or now is ABSENT:
            code = f"{keyword}_{'introduced' if was is ABSENT else 'dropped'}"
        else:
            code = f"{keyword}_changed"
        yield changed(code, f"{path}.{keyword}", was, now)


def _compare_default(path: str, before: Schema, after: Schema) -> Iterator[Change]:
    was, now = before.get("default", ABSENT), after.get("default", ABSENT)
    if same(was, now):
        return
    if was is ABSENT or now is ABSENT:
        code = "default_added" if was is ABSENT else "default_removed"
    else:
        code = "default_number_changed" if _is_number(was) and _is_number(now) else "default_changed"
    yield changed(code, f"{path}.default", was, now)


_COMPARISONS: tuple[Callable[[str, Schema, Schema], Iterator[Change]], ...] = (
    _compare_types,
    _compare_listed,
    _compare_bounds,
    _compare_forms,
    _compare_default,
)

VALUE_KEYWORDS = frozenset(
    ("type", "enum", "const", "pattern", "format", "default", "multipleOf", *_LOWER, *_UPPER)
) | {name for name, _ in _COUNTS}
"""The keywords that ``compare_values`` looks at."""

_TELLING = VALUE_KEYWORDS | {"anyOf", "oneOf"}
"""These, and those that tell types where ``type`` is not stated."""
