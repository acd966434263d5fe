"""Pins: what operators decided about a tool, checked against what was observed, and what a proxy does with a call.

1. The later act on a value wins, by event time and then by origin, whatever the order of arrival.
2. Of several pins the one that says most is the result. A match means that two values are equal and nothing else.
3. A pinned tool that is offered in a form without a value under its pin is a mismatch: being unreadable must not be a
   way around a pin.

The stream's verdict covers the whole fleet and arrives a moment after a change. The definition that the proxy itself
passed to its client is checked against the same pins at once, and takes precedence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import orjson

from assay_stream.errors import InputError, IntegrityError
from assay_stream.model.control_facts import Pin
from assay_stream.model.evidence import PinResult, PinStatus
from assay_stream.schemes.fingerprint import SCHEMES, Fingerprint
from assay_stream.schemes.hangar import Action, DigestPolicy, MismatchAction, PinComparison, UnknownPolicy

_TO_POLICY = {
    PinStatus.UNPINNED: PinComparison.UNKNOWN,
    PinStatus.UNOBSERVED: PinComparison.UNKNOWN,
    PinStatus.MATCH: PinComparison.MATCH,
    PinStatus.MISMATCH: PinComparison.MISMATCH,
    PinStatus.REJECTED: PinComparison.MISMATCH,
}


UNPINNED = PinResult(status=PinStatus.UNPINNED)
_WEIGHT = {status: weight for weight, status in enumerate(PinStatus)}


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
    worst = max(results, key=lambda result: (_WEIGHT[result.status], result.observed is not None))
    if policy is None:
        return worst
    action = policy.action(_TO_POLICY[worst.status])
    if worst.status is PinStatus.MISMATCH and worst.observed is None:
        # Neither a match nor told apart from one: the graver of the policy's two answers.
        action = max(action, policy.action(PinComparison.UNKNOWN), key=list(Action).index)
    return replace(worst, enforcement=policy.enforcement.value, action=action)


class PinState(StrEnum):
    """A decision on a value that stands. One that was superseded or withdrawn leaves the value undecided."""

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
    """Return the decisions on a tool that stand after some acts, by scheme and value."""
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


_ORDER = (Action.ALLOW, Action.WARN, Action.BLOCK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The stream's verdict on one tool, or on the tools of a server that have none of their own.

    Args:
        action: the policy's action for the tool as the fleet sees it.
        result: the worst pin result among the tool's definitions.
    """

    action: Action
    result: PinResult
    pins: PinsInForce
    policy: DigestPolicy | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    action: Action
    reason_code: str
    result: PinResult | None = None


UNREADABLE = Fingerprint(full="", schemes={}, errors=dict.fromkeys(SCHEMES, "unreadable"), fields={})
"""A definition given to a client that has no value under any scheme."""

WITHDRAWN = Fingerprint(full="", schemes={}, errors=dict.fromkeys(SCHEMES, "withdrawn"), fields={})
"""A definition given to a client before the server changed its list to one without it."""

NO_VERDICT = Ruling(action=Action.ALLOW, reason_code="no_verdict")


class VerdictTable:
    """The current state of the verdict topic, by server and tool."""

    def __init__(self) -> None:
        self._verdicts: dict[tuple[str, str | None], Verdict] = {}

    def __len__(self) -> int:
        return len(self._verdicts)

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Apply one record of the verdict topic.

        Raises:
            IntegrityError: ``foreign_verdict`` if another writer has written to the topic.
        """
        try:
            place = orjson.loads(key or b"")
            if not isinstance(place, list):
                raise TypeError
            server_id, tool_name = place
            if not isinstance(server_id, str) or not (tool_name is None or isinstance(tool_name, str)):
                raise TypeError
            if value is None:
                self._verdicts.pop((server_id, tool_name), None)
            else:
                self._verdicts[server_id, tool_name] = _read(orjson.loads(value))
        except (ValueError, KeyError, TypeError, AttributeError, InputError):
            raise IntegrityError(
                "foreign_verdict", "the verdict topic holds a record that is not ours: find out who writes to it"
            ) from None

    def rule(self, server_id: str, tool_name: str, definition: Fingerprint | None) -> Ruling:
        """Return what to do with a call.

        The definition that the client was given takes precedence over what the fleet sees. If it has no value under
        a pin's scheme it counts as a mismatch, because the approved definition had one.
        """
        own = self._verdicts.get((server_id, tool_name))
        verdict = own or self._verdicts.get((server_id, None))
        if verdict is None:
            return NO_VERDICT
        if definition is None and own is not None:
            return _ruling(verdict.action, verdict.result)
        result = check_pins(verdict.pins, definition, policy=verdict.policy)
        action = result.action or Action.ALLOW
        if result.status is PinStatus.MISMATCH and definition is WITHDRAWN:
            return _ruling(action, replace(result, status=PinStatus.UNOBSERVED))
        if result.status is PinStatus.MISMATCH and result.observed is None:
            return Ruling(action=action, reason_code="definition_not_digestible", result=result)
        return _ruling(action, result)


def gravity(action: Action) -> int:
    """Return how restrictive an action is, to choose the most restrictive of several."""
    return _ORDER.index(action)


def _ruling(action: Action, result: PinResult) -> Ruling:
    return Ruling(action=action, reason_code=f"definition_{result.status.value}", result=result)


def _read(content: Mapping[str, Any]) -> Verdict:
    action, policy = Action(content["action"]), content.get("policy")
    if policy is not None:
        enforcement, unknown = MismatchAction(policy["enforcement"]), UnknownPolicy.parse(policy["unknown"])
        policy = DigestPolicy(enforcement=enforcement, unknown=unknown)
    optional = {name: content.get(name) for name in ("scheme", "expected", "observed", "enforcement")}
    rejected = {scheme: tuple(values) for scheme, values in content.get("rejected", {}).items()}
    return Verdict(
        action=action,
        result=PinResult(status=PinStatus(content["status"]), action=action, **optional),
        pins=PinsInForce(approved=dict(content.get("pins", {})), rejected=rejected),
        policy=policy,
    )
