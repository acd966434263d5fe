"""The life of a pin: what becomes of one value of a tool, under one scheme, by each act of an operator.

The table is the whole rule. The later act wins, by event time and then by origin, whatever the order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from assay_stream.model.control_facts import Pin


class PinState(StrEnum):
    """Where one value of a tool stands."""

    UNDECIDED = "undecided"
    APPROVED = "approved"
    REJECTED = "rejected"
    SUPERSEDED = "superseded"
    WITHDRAWN = "withdrawn"


class PinStep(StrEnum):
    """What an act means to one value."""

    SET = "set"
    SET_ANOTHER = "set_another"
    REJECT = "reject"
    REMOVE = "remove"
    REMOVE_PIN = "remove_pin"


TRANSITIONS: Mapping[tuple[PinState, PinStep], PinState] = MappingProxyType(
    {
        (PinState.UNDECIDED, PinStep.SET): PinState.APPROVED,
        (PinState.UNDECIDED, PinStep.SET_ANOTHER): PinState.UNDECIDED,
        (PinState.UNDECIDED, PinStep.REJECT): PinState.REJECTED,
        (PinState.UNDECIDED, PinStep.REMOVE): PinState.WITHDRAWN,
        (PinState.UNDECIDED, PinStep.REMOVE_PIN): PinState.UNDECIDED,
        (PinState.APPROVED, PinStep.SET): PinState.APPROVED,
        (PinState.APPROVED, PinStep.SET_ANOTHER): PinState.SUPERSEDED,
        (PinState.APPROVED, PinStep.REJECT): PinState.REJECTED,
        (PinState.APPROVED, PinStep.REMOVE): PinState.WITHDRAWN,
        (PinState.APPROVED, PinStep.REMOVE_PIN): PinState.WITHDRAWN,
        (PinState.REJECTED, PinStep.SET): PinState.APPROVED,
        (PinState.REJECTED, PinStep.SET_ANOTHER): PinState.REJECTED,
        (PinState.REJECTED, PinStep.REJECT): PinState.REJECTED,
        (PinState.REJECTED, PinStep.REMOVE): PinState.WITHDRAWN,
        (PinState.REJECTED, PinStep.REMOVE_PIN): PinState.REJECTED,
        (PinState.SUPERSEDED, PinStep.SET): PinState.APPROVED,
        (PinState.SUPERSEDED, PinStep.SET_ANOTHER): PinState.SUPERSEDED,
        (PinState.SUPERSEDED, PinStep.REJECT): PinState.REJECTED,
        (PinState.SUPERSEDED, PinStep.REMOVE): PinState.WITHDRAWN,
        (PinState.SUPERSEDED, PinStep.REMOVE_PIN): PinState.SUPERSEDED,
        (PinState.WITHDRAWN, PinStep.SET): PinState.APPROVED,
        (PinState.WITHDRAWN, PinStep.SET_ANOTHER): PinState.WITHDRAWN,
        (PinState.WITHDRAWN, PinStep.REJECT): PinState.REJECTED,
        (PinState.WITHDRAWN, PinStep.REMOVE): PinState.WITHDRAWN,
        (PinState.WITHDRAWN, PinStep.REMOVE_PIN): PinState.WITHDRAWN,
    }
)
"""What becomes of a value in each state by each step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinsInForce:
    """What operators decided about a tool, as it stands at some time.

    Args:
        approved: scheme to the one value that the tool must have.
        rejected: scheme to the values that it must not have, sorted.
    """

    approved: Mapping[str, str]
    rejected: Mapping[str, tuple[str, ...]]

    def __bool__(self) -> bool:
        return bool(self.approved or self.rejected)


def pin_states(acts: Iterable[Pin]) -> dict[tuple[str, str], PinState]:
    """Return where every value of a tool stands after some acts: by scheme and value."""
    states: dict[tuple[str, str], PinState] = {}
    for pin in acts:
        if pin.value is not None:
            states.setdefault((pin.scheme, pin.value), PinState.UNDECIDED)
        for place, state in states.items():
            if place[0] == pin.scheme:
                step = _step(pin, place[1])
                states[place] = state if step is None else TRANSITIONS[state, step]
    return states


def pins_in_force(acts: Iterable[Pin]) -> PinsInForce:
    """Return what some acts add up to."""
    states = pin_states(acts)
    rejected: dict[str, tuple[str, ...]] = {}
    for (scheme, value), state in sorted(states.items()):
        if state is PinState.REJECTED:
            rejected[scheme] = (*rejected.get(scheme, ()), value)
    approved = {scheme: value for (scheme, value), state in states.items() if state is PinState.APPROVED}
    return PinsInForce(approved=approved, rejected=rejected)


NO_PINS = PinsInForce(approved={}, rejected={})


def _step(pin: Pin, value: str) -> PinStep | None:
    """Return what an act means to a value of its scheme, ``None`` where nothing."""
    if pin.act == "set":
        return PinStep.SET if pin.value == value else PinStep.SET_ANOTHER
    if pin.act == "remove" and pin.value is None:
        return PinStep.REMOVE_PIN
    if pin.value != value:
        return None
    return PinStep.REJECT if pin.act == "reject" else PinStep.REMOVE
