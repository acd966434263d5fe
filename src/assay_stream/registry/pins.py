"""Pins held against what was observed, and what the policy makes of the result.

The result says how two values stand to each other. A match is no verdict on the tool.
"""

from __future__ import annotations

from dataclasses import replace

from assay_stream.model.evidence import PinResult, PinStatus
from assay_stream.registry.pin_life import PinsInForce
from assay_stream.schemes.fingerprint import Fingerprint
from assay_stream.schemes.hangar import Action, DigestPolicy, Status

_TO_POLICY = {
    PinStatus.UNPINNED: Status.UNKNOWN,
    PinStatus.UNOBSERVED: Status.UNKNOWN,
    PinStatus.MATCH: Status.MATCH,
    PinStatus.MISMATCH: Status.MISMATCH,
    PinStatus.REJECTED: Status.MISMATCH,
}


UNPINNED = PinResult(status=PinStatus.UNPINNED)
_WEIGHT = {status: weight for weight, status in enumerate(PinStatus)}


def check_pins(
    pins: PinsInForce,
    observed: Fingerprint | None,
    *,
    listed: bool = False,
    policy: DigestPolicy | None = None,
) -> PinResult:
    """Hold a definition against the pins in force, and the result against the policy in force.

    A pinned tool that is offered in a form which has no value under its pin is a mismatch: to be unreadable must
    not be a way around a pin.

    Args:
        observed: the fingerprint in force, ``None`` where no definition was.
        listed: whether the tool is offered, although its definition cannot be told.
        policy: the digest policy in force, ``None`` where nobody set one.
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
    gravest = max(results, key=lambda result: (_WEIGHT[result.status], result.observed is not None))
    if policy is None:
        return gravest
    action = policy.action(_TO_POLICY[gravest.status])
    if gravest.status is PinStatus.MISMATCH and gravest.observed is None:
        # Neither a match nor told apart from one: the graver of the policy's two answers.
        action = max(action, policy.action(Status.UNKNOWN), key=list(Action).index)
    return replace(gravest, enforcement=policy.enforcement.value, action=action)
