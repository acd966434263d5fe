"""The life of a pin: what is decided on a value after each act."""

from __future__ import annotations

import itertools

import pytest

from assay_stream.bindings.controls import Controls
from assay_stream.bindings.pins import NO_PINS, pin_states, pins_in_force
from assay_stream.model.control_facts import Pin, PinAct
from tests.support.facts import a_pin

Act = tuple[PinAct, str | None]

HISTORIES: dict[str, list[Act]] = {
    "undecided": [],
    "approved": [("set", "a")],
    "rejected": [("reject", "a")],
    "superseded": [("set", "a"), ("set", "b")],
    "withdrawn": [("set", "a"), ("remove", "a")],
}
"""Acts after which value ``a`` is in each state. The last two leave it as undecided as the first."""

NEXT: list[Act] = [("set", "a"), ("set", "c"), ("reject", "a"), ("remove", "a"), ("remove", None)]
WANTED = {
    "undecided": ("approved", None, "rejected", None, None),
    "approved": ("approved", None, "rejected", None, None),
    "rejected": ("approved", "rejected", "rejected", None, "rejected"),
    "superseded": ("approved", None, "rejected", None, None),
    "withdrawn": ("approved", None, "rejected", None, None),
}
"""What is decided on ``a`` after each of ``NEXT``, written down by hand."""

LINES = [(state, act, after) for state, afters in WANTED.items() for act, after in zip(NEXT, afters, strict=True)]


def acts(*given: Act, scheme: str = "assay.v1") -> list[Pin]:
    """Acts one second apart, in the order of the log."""
    return [
        a_pin(value, act=act, time_us=number, offset=number, scheme=scheme) for number, (act, value) in enumerate(given)
    ]


@pytest.mark.parametrize(("state", "act", "after"), LINES)
def test_a_value_after_one_more_act(state: str, act: Act, after: str | None) -> None:
    """A value brought into a state by acts is decided, after one more act, as an operator would expect."""
    history = HISTORIES[state]
    before = state if state in ("approved", "rejected") else None
    assert pin_states(acts(*history)).get(("assay.v1", "a")) == before
    assert pin_states(acts(*history, act)).get(("assay.v1", "a")) == after


def test_a_scheme_has_one_approved_value() -> None:
    """Another value takes the place of the one before."""
    pins = pins_in_force(acts(("set", "a"), ("set", "b")))
    assert (pins.approved, pins.rejected) == ({"assay.v1": "b"}, {})


def test_setting_another_value_takes_no_rejection_back() -> None:
    """What was rejected stays rejected whatever is approved beside it."""
    pins = pins_in_force(acts(("reject", "x"), ("reject", "w"), ("set", "a"), ("set", "b")))
    assert (pins.approved, pins.rejected) == ({"assay.v1": "b"}, {"assay.v1": ("w", "x")})


def test_removing_the_pin_brings_no_earlier_value_back() -> None:
    """After set, set and remove there is no pin: the first value is not in force again."""
    assert pins_in_force(acts(("set", "a"), ("set", "b"), ("remove", None))) == NO_PINS


def test_schemes_do_not_touch_each_other() -> None:
    """An act under one scheme leaves the values of another."""
    other = [a_pin("x", act="set", time_us=9, offset=9, scheme="hangar.v2")]
    pins = pins_in_force(acts(("set", "a")) + other)
    assert pins.approved == {"assay.v1": "a", "hangar.v2": "x"}


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_the_later_act_wins_whatever_the_order_of_arrival(order: tuple[int, ...]) -> None:
    """Four acts read in any order give what they give in the order of their times, ties by origin."""
    history = [
        a_pin("a", act="set", time_us=1, offset=0),
        a_pin("b", act="reject", time_us=2, offset=1),
        a_pin("b", act="set", time_us=2, offset=2),
        a_pin("a", act="reject", time_us=3, offset=3),
    ]
    controls = Controls()
    for index in order:
        controls.apply(history[index])
    assert controls.pins_as_of("t", 1).approved == {"assay.v1": "a"}
    assert controls.pins_as_of("t", 2).approved == {"assay.v1": "b"}
    assert controls.pins_as_of("t", 3) == pins_in_force(history)
    assert controls.pins_as_of("t", 3).rejected == {"assay.v1": ("a",)}


def test_pins_in_force_are_something_only_where_a_decision_stands() -> None:
    """A value that is withdrawn or superseded is no decision any more."""
    assert pins_in_force(acts(("set", "a")))
    assert pins_in_force(acts(("reject", "a")))
    assert not pins_in_force(acts(("set", "a"), ("remove", "a")))
