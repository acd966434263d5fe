"""Hypothesis generators of JSON values, schemas and definitions that look like real ones."""

from typing import Any

from hypothesis import strategies as st

WORDS = st.sampled_from(
    ["Reads", "a", "file", "from", "disk", "“disk”", "DISK", "timezone", "timezones", "\u200b", "-"]
)
TEXTS = st.lists(WORDS, max_size=5).map(" ".join)
NAMES = st.sampled_from(["path", "mode", "a.b", "ключ", "", "x" * 200])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.sampled_from([0.5, 1.0, 1e300]), st.text(max_size=5)
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=8,
)
TYPES = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"])
BOUNDS = st.one_of(st.integers(-3, 3), st.sampled_from([0.5, 1.0, -0.5]))

_LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "type": st.one_of(TYPES, st.lists(TYPES, min_size=1, max_size=2, unique=True)),
    "enum": st.lists(SCALARS, max_size=3),
    "const": SCALARS,
    "default": SCALARS,
    "title": TEXTS,
    "description": TEXTS,
    "minimum": BOUNDS,
    "maximum": BOUNDS,
    "exclusiveMinimum": BOUNDS,
    "exclusiveMaximum": BOUNDS,
    "minLength": st.integers(0, 3),
    "maxItems": st.integers(0, 3),
    "multipleOf": st.sampled_from([1, 2, 3, 4, 0.5, 0]),
    "pattern": st.sampled_from(["^a", "^b"]),
    "format": st.sampled_from(["uri", "date"]),
    "uniqueItems": st.booleans(),
    "required": st.lists(NAMES, max_size=2),
    "$ref": st.sampled_from(["#", "#/$defs/path", "#/$defs/mode", "#/properties/path", "#/nowhere", "other.json"]),
    "$schema": st.sampled_from(["a", "b"]),
    "x-note": JSON,
}


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    parts: dict[str, st.SearchStrategy[Any]] = {
        "properties": st.dictionaries(NAMES, inner, max_size=3),
        "$defs": st.dictionaries(NAMES, inner, max_size=2),
        "items": st.one_of(inner, st.lists(inner, max_size=2)),
        "prefixItems": st.lists(inner, max_size=2),
        "additionalProperties": inner,
        "anyOf": st.lists(inner, max_size=3),
        "oneOf": st.lists(inner, max_size=2),
        "allOf": st.lists(inner, max_size=2),
        "not": inner,
    }
    return st.fixed_dictionaries({}, optional=_LEAVES | parts)


SCHEMAS = st.recursive(st.one_of(st.booleans(), st.fixed_dictionaries({}, optional=_LEAVES)), _nested, max_leaves=6)
HINTS = st.fixed_dictionaries(
    {},
    optional={
        "readOnlyHint": st.one_of(st.booleans(), st.none()),
        "destructiveHint": st.booleans(),
        "idempotentHint": st.booleans(),
        "openWorldHint": st.booleans(),
        "title": TEXTS,
        "x": SCALARS,
    },
)
ARGUMENTS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["a", "b"])}, optional={"required": st.booleans(), "description": TEXTS}
    ),
    max_size=3,
)
DEFINITIONS = st.fixed_dictionaries(
    {"name": st.just("t")},
    optional={
        "description": TEXTS,
        "title": TEXTS,
        "inputSchema": SCHEMAS,
        "outputSchema": SCHEMAS,
        "annotations": st.one_of(HINTS, st.none()),
        "_meta": st.one_of(st.dictionaries(st.sampled_from(["handshake", "x"]), JSON, max_size=2), JSON),
        "arguments": st.one_of(ARGUMENTS, JSON),
        "execution": JSON,
        "anything": JSON,
    },
)


def mixed(one: Any, other: Any, choose: Any) -> Any:
    """Two values made one, member by member: much like the first, unlike it here and there."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = [name for name in {**one, **other} if name in one or choose.random() < 0.3]
        kept = [name for name in names if choose.random() > 0.1]
        return {name: mixed(one.get(name, other.get(name)), other.get(name, one.get(name)), choose) for name in kept}
    return other if choose.random() < 0.3 else one


PAIRS = st.builds(
    lambda one, other, choose: (one, {**mixed(one, other, choose), "name": "t"}),
    DEFINITIONS,
    DEFINITIONS,
    st.randoms(use_true_random=False),
)
"""A definition, and one that came of it."""


def shuffled(value: Any, choose: Any) -> Any:
    """The same value with the members of every object in another order."""
    if isinstance(value, dict):
        return {name: shuffled(value[name], choose) for name in choose.sample(list(value), len(value))}
    return [shuffled(each, choose) for each in value] if isinstance(value, list) else value
