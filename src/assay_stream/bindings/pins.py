"""Pins: what operators decided about a tool, checked against what was observed.

1. The later act on a value wins, by event time and then by origin, whatever the order of arrival.
2. Of several pins the one that says most is the result. A match means that two values are equal and nothing else.
3. A pinned tool that is offered in a form without a value under its pin is a mismatch: being unreadable must not be a
   way around a pin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from assay_stream.model.control_facts import Pin
from assay_stream.model.evidence import PinResult, PinStatus
from assay_stream.schemes.fingerprint import Fingerprint
from assay_stream.schemes.hangar import Action, DigestPolicy, PinComparison

_TO_POLICY = {
    PinStatus.UNPINNED: PinComparison.UNKNOWN,
    PinStatus.UNOBSERVED: PinComparison.UNKNOWN,
    PinStatus.MATCH: PinComparison.MATCH,
    PinStatus.MISMATCH: PinComparison.MISMATCH,
    PinStatus.REJECTED: PinComparison.MISMATCH,
}


UNPINNED = PinResult(status=PinStatus.UNPINNED)
STATUS_WEIGHT = {status: weight for weight, status in enumerate(PinStatus)}
ACTION_WEIGHT = {action: weight for weight, action in enumerate(Action)}
"""How restrictive each is, to choose the most restrictive of several."""


def check_pins(
    pins: PinsInForce, observed: Fingerprint | None, *, listed: bool = False, policy: DigestPolicy | None = None
) -> PinResult:
    """Check a definition against the pins in force, and the result against the policy in force.

    Args:
        observed: the fingerprint in force, ``None`` where no definition was.
        listed: whether the tool is offered, although its definition is ambiguous.
        policy: the digest policy in force, ``None`` where none is set.
    """
    results = [UNPINNED]
    for scheme, expected in sorted(pins.approved.items()):
        value = None if observed is None else observed.schemes.get(scheme)
        if observed is not None and observed.has_value(scheme, expected):
            value = expected
        if value is None:
            unreadable = listed if observed is None else scheme in observed.errors
            status = PinStatus.MISMATCH if unreadable else PinStatus.UNOBSERVED
        else:
            status = PinStatus.MATCH if value == expected else PinStatus.MISMATCH
        results.append(PinResult(status=status, scheme=scheme, expected=expected, observed=value))
    for scheme, values in sorted(pins.rejected.items()):
        results.extend(
            PinResult(status=PinStatus.REJECTED, scheme=scheme, expected=pins.approved.get(scheme), observed=value)
            for value in sorted(values)
            if observed is not None and observed.has_value(scheme, value)
        )
    worst = max(results, key=lambda result: (STATUS_WEIGHT[result.status], result.observed is not None))
    if policy is None:
        return worst
    action = policy.action(_TO_POLICY[worst.status])
    if worst.status is PinStatus.MISMATCH and worst.observed is None:
        # Neither a match nor a known mismatch: the more severe of the policy's two answers.
        action = max(action, policy.action(PinComparison.UNKNOWN), key=ACTION_WEIGHT.__getitem__)
    return replace(worst, enforcement=policy.enforcement.value, action=action)


class PinState(StrEnum):
    """A decision on a value that is in force. A superseded or withdrawn one leaves the value undecided."""

    APPROVED = "approved"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class PinsInForce:
    """What operators decided about a tool, as of some time.

    Args:
        approved: scheme to the one value that the tool must have.
        rejected: scheme to the values that it must not have, sorted.
    """

    approved: Mapping[str, str]
    rejected: Mapping[str, tuple[str, ...]]

    def __bool__(self) -> bool:
        return bool(self.approved or self.rejected)


def pin_states(acts: Iterable[Pin]) -> dict[tuple[str, str], PinState]:
    """Return the decisions on a tool that are in force after some acts, by scheme and value."""
    states: dict[tuple[str, str], PinState] = {}
    for pin in acts:
        if pin.act == "set" or pin.value is None:
            # The scheme's pin goes: another value takes its place, or none does. A rejection stays.
            states = {
                place: state for place, state in states.items() if place[0] != pin.scheme or state is PinState.REJECTED
            }
        if pin.value is not None:
            states.pop((pin.scheme, pin.value), None)
            if pin.act != "remove":
                states[pin.scheme, pin.value] = PinState.APPROVED if pin.act == "set" else PinState.REJECTED
    return states


def pins_in_force(acts: Iterable[Pin]) -> PinsInForce:
    states = pin_states(acts)
    rejected: dict[str, tuple[str, ...]] = {}
    for (scheme, value), state in sorted(states.items()):
        if state is PinState.REJECTED:
            rejected[scheme] = (*rejected.get(scheme, ()), value)
    approved = {scheme: value for (scheme, value), state in states.items() if state is PinState.APPROVED}
    return PinsInForce(approved=approved, rejected=rejected)


NO_PINS = PinsInForce(approved={}, rejected={})
