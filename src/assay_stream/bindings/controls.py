"""What operators decided about one server: pins, policies and keys, as of any time, and what a proxy does by them.

1. The later act on a value wins, by event time and then by origin, whatever the order of arrival.
2. Of several pins the one that says most is the result. A match means that two values are equal and nothing else.
3. A pinned tool that is offered in a form without a value under its pin is a mismatch: being unreadable must not be a
   way around a pin.

The as-of contract is the timelines' (``bindings.timeline``): at any time, everything set at or before it counts
(inclusive); of two at the same time the later origin wins. Arrival order never matters. For a control record itself,
everything up to its own position counts: of many with the same time, each is answerable only for its own change.

The stream's verdict covers the whole fleet and arrives a moment after a change. The definition that the proxy itself
passed to its client is checked against the same pins at once, and takes precedence.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import attrgetter
from typing import Any, TypeVar

import orjson

from assay_stream.errors import InputError, IntegrityError
from assay_stream.model.control import (
    AnyControlFact,
    Checked,
    ControlFact,
    Discovery,
    FirstUse,
    KeyDecision,
    Pin,
    PinResult,
    PinStatus,
    Policy,
    Signatures,
)
from assay_stream.model.record import Origin, Position
from assay_stream.model.wire import FactKey, origin_of_key
from assay_stream.schemes.fingerprint import SCHEMES, Fingerprint
from assay_stream.schemes.hangar import Action, DigestPolicy

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
    action = Action.ALLOW if worst.status is PinStatus.MATCH else policy.on_mismatch
    if worst.status in (PinStatus.UNPINNED, PinStatus.UNOBSERVED):
        action = policy.on_unknown
    elif worst.status is PinStatus.MISMATCH and worst.observed is None:
        # Neither a match nor a known mismatch: the more severe of the policy's two answers.
        action = max(policy.on_mismatch, policy.on_unknown, key=ACTION_WEIGHT.__getitem__)
    return replace(worst, enforcement=policy.enforcement, action=action)


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


_Fact = TypeVar("_Fact", bound=ControlFact)

When = int | Position
"""A time, microseconds since the epoch, with everything set at it; or a position, with everything up to it."""

_position_of = attrgetter("position")
_LAST_ORIGIN = Origin(topic="\U0010ffff", partition=2**63, offset=2**63)
"""Later than the origin of any record."""


@dataclass(slots=True, eq=False)
class Controls:
    pins: dict[str, list[Pin]] = field(default_factory=dict)
    policies: dict[str | None, list[Policy]] = field(default_factory=dict)
    """By tool; those of the whole server under ``None``."""
    key_decisions: list[KeyDecision] = field(default_factory=list)
    discoveries: dict[str, list[Discovery]] = field(default_factory=dict)
    first_uses: dict[tuple[str, str], FirstUse] = field(default_factory=dict)
    signatures: dict[str, Signatures] = field(default_factory=dict)
    checked: dict[tuple[str, str], Checked] = field(default_factory=dict)
    _positions: list[Position] = field(default_factory=list)
    _first_use_positions: list[Position] = field(default_factory=list)
    _latest_pins: dict[str, PinsInForce] = field(default_factory=dict)
    """Cached result of all acts on a tool."""

    def __bool__(self) -> bool:
        return bool(self._positions or self.signatures)

    @property
    def is_decided(self) -> bool:
        """Whether an operator has decided anything about the server, or a key was discovered for it."""
        return bool(self._positions)

    def apply(self, fact: AnyControlFact) -> None:
        match fact:
            case Pin():
                self._add(self.pins.setdefault(fact.tool_name, []), fact)
                self._latest_pins.pop(fact.tool_name, None)
            case Policy():
                self._add(self.policies.setdefault(fact.tool_name, []), fact)
            case KeyDecision():
                self._add(self.key_decisions, fact)
            case Discovery():
                self._add(self.discoveries.setdefault(fact.domain, []), fact)
            case Signatures():
                self.signatures[fact.digest] = fact
            case Checked():
                self.checked[fact.signatures, fact.fingerprint] = fact
            case FirstUse():
                self._remove_first_use(fact.domain, fact.tool_name)
                self.first_uses[fact.domain, fact.tool_name] = fact
                insort(self._first_use_positions, fact.position)

    def forget(self, key: FactKey) -> None:
        kind, _, *rest = key
        if kind == "signatures":
            self.signatures.pop(str(rest[0]), None)
        elif kind == "checked":
            self.checked.pop((str(rest[0]), str(rest[1])), None)
        elif kind == "first_use":
            self._remove_first_use(str(rest[0]), str(rest[1]))
        elif kind == "discovery":
            domain, origin = str(rest[0]), origin_of_key(rest[1:])
            history = self.discoveries.get(domain, [])
            for found in [each for each in history if each.origin == origin]:
                history.remove(found)
                self._positions.remove(found.position)
            if not history:
                self.discoveries.pop(domain, None)

    def positions_between(self, first: Position, end: Position | None) -> Sequence[Position]:
        """Return the positions of control facts from ``first``, inclusive, to ``end``, exclusive, in order."""
        start = bisect_left(self._positions, first)
        stop = len(self._positions) if end is None else bisect_left(self._positions, end)
        return self._positions[start:stop]

    def epoch(self, when: When) -> int:
        """Return the number of control facts and first uses that count: while it is the same, no answer changes."""
        last = position_of(when)
        return bisect_right(self._positions, last) + bisect_right(self._first_use_positions, last)

    def pins_as_of(self, tool_name: str, when: When) -> PinsInForce:
        acts = self.pins.get(tool_name)
        if not acts:
            return NO_PINS
        counting = _until(acts, when)
        if len(counting) < len(acts):
            return pins_in_force(counting)
        latest = self._latest_pins.get(tool_name)
        if latest is None:
            latest = self._latest_pins[tool_name] = pins_in_force(acts)
        return latest

    def policy_as_of(self, tool_name: str, when: When) -> DigestPolicy | None:
        """Return the digest policy of a tool: its own, else its server's."""
        own = self.own_policy_as_of(tool_name, when)
        return self.own_policy_as_of(None, when) if own is None else own

    def own_policy_as_of(self, tool_name: str | None, when: When) -> DigestPolicy | None:
        """Return the digest policy set for a tool by name, or with ``None`` for the whole server."""
        acts = _until(self.policies.get(tool_name, ()), when)
        return digest_policy(acts[-1]) if acts else None

    def policies_as_of(self, when: When) -> list[Policy]:
        """Return the policies in force, the server's first, then by tool."""
        acts_of = (_until(acts, when) for _, acts in sorted(self.policies.items(), key=lambda item: item[0] or ""))
        return [acts[-1] for acts in acts_of if acts and acts[-1].enforcement]

    def key_acts_as_of(self, when: When) -> Sequence[KeyDecision]:
        return _until(self.key_decisions, when)

    def discoveries_as_of(self, domain: str, when: When) -> Sequence[Discovery]:
        return _until(self.discoveries.get(domain, ()), when)

    def first_use_as_of(self, domain: str, tool_name: str, when: When) -> FirstUse | None:
        first = self.first_uses.get((domain, tool_name))
        return first if first is not None and first.position <= position_of(when) else None

    def first_uses_from(self, since: Position) -> list[tuple[tuple[str, str], FirstUse]]:
        if not self._first_use_positions or self._first_use_positions[-1] < since:
            return []
        return sorted((place, use) for place, use in self.first_uses.items() if use.position >= since)

    def key_documents(self) -> dict[str, Discovery]:
        """Return one discovery for each key ever observed: fingerprint to the discovery."""
        return {
            found.fingerprint: found
            for of_domain in self.discoveries.values()
            for found in of_domain
            if found.fingerprint is not None
        }

    def _add(self, history: list[_Fact], fact: _Fact) -> None:
        if any(known.origin == fact.origin for known in history):
            return
        insort(history, fact, key=_position_of)
        insort(self._positions, fact.position)

    def _remove_first_use(self, domain: str, tool_name: str) -> None:
        known = self.first_uses.pop((domain, tool_name), None)
        if known is not None:
            self._first_use_positions.remove(known.position)


def digest_policy(policy: Policy) -> DigestPolicy | None:
    """Return a policy fact as MCP Hangar's policy, ``None`` where it revokes one."""
    if policy.enforcement is None or policy.unknown is None:
        return None
    return DigestPolicy(enforcement=policy.enforcement, unknown=policy.unknown)


def position_of(when: When) -> Position:
    return (when, _LAST_ORIGIN) if isinstance(when, int) else when


def _until(history: Sequence[_Fact], when: When) -> Sequence[_Fact]:
    last = position_of(when)
    if history and history[-1].position <= last:
        return history
    return history[: bisect_right(history, last, key=_position_of)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The stream's verdict on one tool, or on the tools of a server that have none of their own.

    Args:
        result: the worst pin result among the tool's definitions, with the policy's action as the fleet sees it.
    """

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

    def server_ids(self) -> set[str]:
        return {server_id for server_id, _ in self._verdicts}

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
            return _ruling(verdict.result)
        result = check_pins(verdict.pins, definition, policy=verdict.policy)
        if result.status is PinStatus.MISMATCH and definition is WITHDRAWN:
            return _ruling(replace(result, status=PinStatus.UNOBSERVED))
        if result.status is PinStatus.MISMATCH and result.observed is None:
            return replace(_ruling(result), reason_code="definition_not_digestible")
        return _ruling(result)


def _ruling(result: PinResult) -> Ruling:
    action = result.action or Action.ALLOW
    return Ruling(action=action, reason_code=f"definition_{result.status.value}", result=result)


def _read(content: Mapping[str, Any]) -> Verdict:
    action, policy = Action(content["action"]), content.get("policy")
    optional = {name: content.get(name) for name in ("scheme", "expected", "observed", "enforcement")}
    rejected = {scheme: tuple(values) for scheme, values in content.get("rejected", {}).items()}
    return Verdict(
        result=PinResult(status=PinStatus(content["status"]), action=action, **optional),
        pins=PinsInForce(approved=dict(content.get("pins", {})), rejected=rejected),
        policy=None if policy is None else DigestPolicy(enforcement=policy["enforcement"], unknown=policy["unknown"]),
    )
