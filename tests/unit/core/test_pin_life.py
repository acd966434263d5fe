"""The life of a pin: what becomes of a value by each act of an operator."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from assay_stream.core.control_facts import Pin
from assay_stream.core.pin_life import TRANSITIONS, PinState, PinStep, pin_states, pins_in_force
from tests.support.facts import a_pin


def test_the_table_is_total() -> None:
    """Every state has an answer to every step."""
    assert set(TRANSITIONS) == set(product(PinState, PinStep))


@pytest.mark.parametrize("state", list(PinState))
def test_to_set_a_value_approves_it_from_every_state(state: PinState) -> None:
    """The later decision counts: even a rejected value can be approved."""
    assert TRANSITIONS[state, PinStep.SET] is PinState.APPROVED
    assert TRANSITIONS[state, PinStep.REJECT] is PinState.REJECTED


def test_another_value_supersedes_the_approved_one_alone() -> None:
    """A rejection stands beside whatever is pinned."""
    assert TRANSITIONS[PinState.APPROVED, PinStep.SET_ANOTHER] is PinState.SUPERSEDED
    assert TRANSITIONS[PinState.REJECTED, PinStep.SET_ANOTHER] is PinState.REJECTED


@pytest.mark.parametrize(
    ("acts", "approved", "rejected"),
    [
        ([], {}, {}),
        ([a_pin("x", time_us=1, offset=0)], {"assay.v1": "x"}, {}),
        ([a_pin("x", time_us=1, offset=0), a_pin("y", time_us=2, offset=1)], {"assay.v1": "y"}, {}),
        ([a_pin("x", time_us=1, offset=0), a_pin(None, time_us=2, offset=1)], {}, {}),
        (
            [a_pin("x", time_us=1, offset=0), a_pin("y", time_us=2, offset=1, act="reject")],
            {"assay.v1": "x"},
            {"assay.v1": ("y",)},
        ),
        (
            [a_pin("x", time_us=1, offset=0, act="reject"), a_pin(None, time_us=2, offset=1)],
            {},
            {"assay.v1": ("x",)},
        ),
        (
            [a_pin("x", time_us=1, offset=0, act="reject"), a_pin("x", time_us=2, offset=1, act="remove")],
            {},
            {},
        ),
        ([a_pin("x", time_us=1, offset=0, act="reject"), a_pin("x", time_us=2, offset=1)], {"assay.v1": "x"}, {}),
        (
            [a_pin("x", time_us=1, offset=0), a_pin("z", time_us=2, offset=1, scheme="assay.p60")],
            {"assay.v1": "x", "assay.p60": "z"},
            {},
        ),
    ],
    ids=[
        "nothing",
        "set",
        "replaced",
        "removed",
        "another rejected",
        "removal keeps a rejection",
        "taken back",
        "reconsidered",
        "two schemes",
    ],
)
def test_what_acts_add_up_to(
    acts: list[Pin], approved: dict[str, str], rejected: dict[str, tuple[str, ...]]
) -> None:
    """One approved value per scheme, and every rejected one."""
    in_force = pins_in_force(acts)
    assert (dict(in_force.approved), dict(in_force.rejected)) == (approved, rejected)
    assert bool(in_force) is bool(approved or rejected)


def test_every_value_ever_named_has_a_state() -> None:
    """Superseded and withdrawn values are not forgotten: history is told from them."""
    acts = [a_pin("x", time_us=1, offset=0), a_pin("y", time_us=2, offset=1), a_pin(None, time_us=3, offset=2)]
    assert pin_states(acts) == {
        ("assay.v1", "x"): PinState.SUPERSEDED,
        ("assay.v1", "y"): PinState.WITHDRAWN,
    }


def test_acts_on_different_values_of_different_schemes_do_not_meet() -> None:
    """The order of acts under different schemes changes nothing."""
    acts = [
        a_pin("x", time_us=1, offset=0),
        a_pin("y", time_us=2, offset=1, scheme="assay.p60"),
        a_pin("z", time_us=3, offset=2, scheme="hangar.v2", act="reject"),
    ]
    assert len({str(sorted(pin_states(order).items())) for order in permutations(acts)}) == 1
