"""Laws of canonical JSON: the fast path is the reference, order means nothing, and nothing else escapes."""

import json
import random
from typing import Any

import rfc8785
from hypothesis import example, given, strategies as st

from assay_stream.canonical.decode import decode_json
from assay_stream.canonical.digest import Digest, canonicalize, jcs_digest
from assay_stream.drift.equality import Values
from assay_stream.errors import InputError

CODES = {"not_canonicalizable", "lone_surrogate", "too_deep"}

# Where byte order, code point order and UTF-16 order part: astral characters against U+E000..U+FFFF.
ODD_KEYS = st.sampled_from(
    ["\U0001f600", "\U00010000", "\ue000", "\uff3a", "\ufb33", "\u20ac", "\x7f", "\x00", "é", ""]
)
KEYS = st.text(max_size=4) | st.text(st.characters(codec="ascii"), max_size=4) | ODD_KEYS
NUMBERS = st.one_of(
    st.integers(-(2**53) - 2, -(2**53) + 2),
    st.integers(2**53 - 2, 2**53 + 2),
    st.integers(-(10**30), 10**30),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
)
TEXTS = st.text() | st.text(st.characters(max_codepoint=0xA0), max_size=10)
LEAVES = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    LEAVES, lambda children: st.lists(children, max_size=5) | st.dictionaries(KEYS, children, max_size=6), max_leaves=20
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | TEXTS,
    lambda children: (
        st.lists(children, max_size=5)
        | st.dictionaries(st.text(st.characters(codec="ascii"), max_size=4), children, max_size=6)
    ),
    max_leaves=20,
)
ANYTHING = st.recursive(
    LEAVES
    | st.floats()
    | st.binary()
    | st.complex_numbers()
    | st.integers(10**308, 10**320)
    | st.text(st.characters(categories=["Cs"]), min_size=1, max_size=2)
    | st.sampled_from([object(), Ellipsis, int, Digest("0" * 64), frozenset({1}), range(3), 10**4000]),
    lambda children: (
        st.lists(children, max_size=4)
        | st.tuples(children, children)
        | st.sets(st.integers(), max_size=2)
        | st.dictionaries(
            st.text(st.characters(), max_size=3) | st.integers() | st.none() | st.tuples(st.integers()),
            children,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def _as_doubles(value: Any) -> Any:
    """The value as a JavaScript reader has it: every number a double."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, list):
        return [_as_doubles(item) for item in value]
    return {name: _as_doubles(item) for name, item in value.items()}


def _shuffled(value: Any, order: random.Random) -> Any:
    if isinstance(value, dict):
        names = list(value)
        order.shuffle(names)
        return {name: _shuffled(value[name], order) for name in names}
    if isinstance(value, list):
        return [_shuffled(item, order) for item in value]
    return value


def _outcome(value: Any) -> bytes | str:
    try:
        return canonicalize(value)
    except InputError as error:
        return error.code


@given(VALUES | PLAIN)
@example({"\U0001f600": 1, "\uff3a": 2})
@example({"\x7f": 1, "\x00": 2, "": 3})
@example([2**53, 2**53 + 1, -(2**53) - 1, 10**21, -0.0])
def test_canonical_form_is_the_reference(value: Any) -> None:
    assert canonicalize(value) == rfc8785.dumps(_as_doubles(value))


@given(VALUES, st.integers(0, 2**32))
def test_key_order_changes_nothing(value: Any, seed: int) -> None:
    shuffled = _shuffled(value, random.Random(seed))
    assert canonicalize(shuffled) == canonicalize(value)
    assert jcs_digest(shuffled) == jcs_digest(value)


@given(st.dictionaries(KEYS, VALUES, max_size=6), st.integers())
def test_key_order_changes_neither_equality_nor_its_cost(value: dict[str, Any], seed: int) -> None:
    """A worker that looks at less than another one must not find more within the same budget."""
    shuffled = _shuffled(value, random.Random(seed))
    compared, looked_at = Values(), Values()
    assert compared.same(value, shuffled)
    assert looked_at.class_of(value) is looked_at.class_of(shuffled)
    assert compared.work.spent == looked_at.work.spent


@given(VALUES)
def test_canonical_form_is_a_fixed_point(value: Any) -> None:
    raw = canonicalize(value)
    assert canonicalize(decode_json(raw)) == raw


@given(VALUES)
def test_spelling_changes_nothing(value: Any) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=True)
    assert canonicalize(decode_json(text.encode())) == canonicalize(value)


@given(ANYTHING)
def test_nothing_else_escapes(value: Any) -> None:
    outcome = _outcome(value)
    if isinstance(outcome, bytes):
        assert canonicalize(decode_json(outcome)) == outcome
    else:
        assert outcome in CODES


@given(LEAVES | st.floats(), st.integers(100, 3_000), st.booleans())
def test_nothing_else_escapes_from_deep_values(leaf: Any, depth: int, lists: bool) -> None:
    value = leaf
    for _ in range(depth):
        value = [value] if lists else {"a": value}
    outcome = _outcome(value)
    assert isinstance(outcome, bytes) or outcome in CODES
