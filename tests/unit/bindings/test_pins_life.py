"""The life of a pin: the table is total, and each of its lines is what an operator would expect."""

from __future__ import annotations

import itertools

import pytest

from assay_stream.bindings.controls import Controls
from assay_stream.bindings.pins import NO_PINS, TRANSITIONS, PinState, PinStep, pin_states, pins_in_force
from assay_stream.model.control_facts import Pin, PinAct
from tests.support.facts import a_pin

Act = tuple[PinAct, str | None]

REACHED_BY: dict[PinState, list[Act]] = {
    PinState.UNDECIDED: [],
    PinState.APPROVED: [("set", "a")],
    PinState.REJECTED: [("reject", "a")],
    PinState.SUPERSEDED: [("set", "a"), ("set", "b")],
    PinState.WITHDRAWN: [("set", "a"), ("remove", "a")],
}
"""Acts after which value ``a`` is in each state."""

MADE_BY: dict[PinStep, Act] = {
    PinStep.SET: ("set", "a"),
    PinStep.SET_ANOTHER: ("set", "c"),
    PinStep.REJECT: ("reject", "a"),
    PinStep.REMOVE: ("remove", "a"),
    PinStep.REMOVE_PIN: ("remove", None),
}
"""The act that is each step for value ``a``."""

WANTED = {
    PinState.UNDECIDED: ("approved", "undecided", "rejected", "withdrawn", "undecided"),
    PinState.APPROVED: ("approved", "superseded", "rejected", "withdrawn", "withdrawn"),
    PinState.REJECTED: ("approved", "rejected", "rejected", "withdrawn", "rejected"),
    PinState.SUPERSEDED: ("approved", "superseded", "rejected", "withdrawn", "superseded"),
    PinState.WITHDRAWN: ("approved", "withdrawn", "rejected", "withdrawn", "withdrawn"),
}
"""State after each step, in the order of ``PinStep``: written down here a second time, by hand."""

LINES = [
    (state, step, PinState(after))
    for state, afters in WANTED.items()
    for step, after in zip(PinStep, afters, strict=True)
]


def acts(*given: Act, scheme: str = "assay.v1") -> list[Pin]:
    return [
        a_pin(value, act=act, time_us=number, offset=number, scheme=scheme) for number, (act, value) in enumerate(given)
    ]


def test_the_table_is_total() -> None:
    assert set(TRANSITIONS) == set(itertools.product(PinState, PinStep))


@pytest.mark.parametrize(("state", "step", "after"), LINES, ids=[f"{one}-{two}" for one, two, _ in LINES])
def test_each_line_of_the_table_as_a_scenario(state: PinState, step: PinStep, after: PinState) -> None:
    history = REACHED_BY[state]
    assert pin_states(acts(*history)).get(("assay.v1", "a"), PinState.UNDECIDED) is state
    states = pin_states(acts(*history, MADE_BY[step]))
    assert states.get(("assay.v1", "a"), PinState.UNDECIDED) is after


def test_a_scheme_has_one_approved_value() -> None:
    pins = pins_in_force(acts(("set", "a"), ("set", "b")))
    assert (pins.approved, pins.rejected) == ({"assay.v1": "b"}, {})


def test_setting_another_value_takes_no_rejection_back() -> None:
    pins = pins_in_force(acts(("reject", "x"), ("reject", "w"), ("set", "a"), ("set", "b")))
    assert (pins.approved, pins.rejected) == ({"assay.v1": "b"}, {"assay.v1": ("w", "x")})


def test_removing_the_pin_brings_no_earlier_value_back() -> None:
    """After set, set and remove there is no pin: the first value is not in force again."""
    assert pins_in_force(acts(("set", "a"), ("set", "b"), ("remove", None))) == NO_PINS


def test_schemes_do_not_touch_each_other() -> None:
    other = [a_pin("x", act="set", time_us=9, offset=9, scheme="hangar.v2")]
    pins = pins_in_force(acts(("set", "a")) + other)
    assert pins.approved == {"assay.v1": "a", "hangar.v2": "x"}


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_the_later_act_wins_whatever_the_order_of_arrival(order: tuple[int, ...]) -> None:
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
    assert pins_in_force(acts(("set", "a")))
    assert pins_in_force(acts(("reject", "a")))
    assert not pins_in_force(acts(("set", "a"), ("remove", "a")))
