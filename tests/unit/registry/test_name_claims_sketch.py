"""Sketches of names: what two servers have in common."""

from __future__ import annotations

import pytest

from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.registry.name_claims import name_sketch, share_names

MOST = DEFAULT_LIMITS.name_sketch_max


def names(*numbers: int) -> list[str]:
    return [f"tool_{number}" for number in numbers]


def test_a_sketch_is_bounded_and_has_an_order_of_its_own() -> None:
    many = names(*range(500))
    assert len(name_sketch(many)) == MOST
    assert name_sketch(many) == name_sketch(reversed(many))


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        (range(4), range(5), True),
        (range(2), range(8), True),
        (range(2), range(9), False),
        (range(4), range(3, 8), False),
        (range(4), range(4, 8), False),
        (range(1), range(1), True),
        (range(0), range(3), False),
        (range(0), range(0), False),
    ],
    ids=["one more", "a quarter", "less", "one of eight", "none", "the only one", "none offered", "nothing at all"],
)
def test_names_are_shared_where_a_quarter_of_all_is_in_both(one: range, other: range, shared: bool) -> None:
    first, second = name_sketch(names(*one)), name_sketch(names(*other))
    assert share_names(first, second) is share_names(second, first) is shared


@pytest.mark.parametrize(("added", "shared"), [(40, True), (900, False)])
def test_of_more_names_the_share_is_estimated(added: int, shared: bool) -> None:
    """A release that adds 40 tools to 100 is one product; one hundred among a thousand are not the same."""
    old = name_sketch(names(*range(100)))
    assert share_names(old, name_sketch(names(*range(100 + added)))) is shared
