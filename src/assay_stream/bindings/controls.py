"""What operators decided about one server, and what was observed of its signing keys, as of any time.

The as-of contract is the timelines' (``bindings.timeline``): at any time, everything set at or before it counts
(inclusive); of two at the same time the later origin wins. Arrival order never matters. For a control record itself,
everything up to its own position counts: of many with the same time, each is answerable only for its own change.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from functools import cache
from operator import attrgetter
from typing import TypeVar

from assay_stream.bindings.pins import NO_PINS, PinsInForce, pins_in_force
from assay_stream.model.control_facts import (
    AnyControlFact,
    Checked,
    ControlFact,
    Discovery,
    FirstUse,
    KeyDecision,
    Pin,
    Policy,
    Signatures,
)
from assay_stream.model.record import Origin, Position
from assay_stream.model.wire import FactKey, origin_of_key
from assay_stream.schemes.hangar import DigestPolicy, MismatchAction, UnknownPolicy

_Fact = TypeVar("_Fact", bound=ControlFact)

When = int | Position
"""A time, microseconds since the epoch, with everything set at it; or a position, with everything up to it."""

_position_of = attrgetter("position")
_LAST_ORIGIN = Origin(topic="\U0010ffff", partition=2**63, offset=2**63)
"""Later than the origin of any record."""


class Controls:
    __slots__ = (
        "_first_use_positions",
        "_latest_pins",
        "_positions",
        "checked",
        "discoveries",
        "first_uses",
        "key_decisions",
        "pins",
        "policies",
        "signatures",
    )

    def __init__(self) -> None:
        self.pins: dict[str, list[Pin]] = {}
        self.policies: list[Policy] = []
        self.key_decisions: list[KeyDecision] = []
        self.discoveries: dict[str, list[Discovery]] = {}
        self.first_uses: dict[tuple[str, str], FirstUse] = {}
        self.signatures: dict[str, Signatures] = {}
        self.checked: dict[tuple[str, str], Checked] = {}
        self._positions: list[Position] = []
        self._first_use_positions: list[Position] = []
        self._latest_pins: dict[str, PinsInForce] = {}
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
                self._add(self.policies, fact)
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
            self._remove_discovery(str(rest[0]), origin_of_key(rest[1:]))

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
        for policy in reversed(_until(self.policies, when)):
            if policy.tool_name == tool_name:
                return digest_policy(policy)
        return None

    def policies_as_of(self, when: When) -> list[Policy]:
        """Return the policies in force, the server's first, then by tool."""
        latest = {policy.tool_name: policy for policy in _until(self.policies, when)}
        return [policy for _, policy in sorted(latest.items(), key=lambda item: item[0] or "") if policy.enforcement]

    def key_acts_as_of(self, when: When) -> Sequence[KeyDecision]:
        """Return the operators' decisions on keys, oldest first."""
        return _until(self.key_decisions, when)

    def discoveries_as_of(self, domain: str, when: When) -> Sequence[Discovery]:
        """Return the discoveries at a domain, oldest first."""
        return _until(self.discoveries.get(domain, ()), when)

    def first_use_as_of(self, domain: str, tool_name: str, when: When) -> FirstUse | None:
        first = self.first_uses.get((domain, tool_name))
        return first if first is not None and first.position <= position_of(when) else None

    def first_uses_from(self, since: Position) -> list[tuple[tuple[str, str], FirstUse]]:
        """Return the first uses at or after a position, with domain and tool, sorted."""
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

    def _remove_discovery(self, domain: str, origin: Origin) -> None:
        history = self.discoveries.get(domain, [])
        for found in history:
            if found.origin == origin:
                history.remove(found)
                self._positions.remove(found.position)
                break
        if not history:
            self.discoveries.pop(domain, None)


def digest_policy(policy: Policy) -> DigestPolicy | None:
    """Return a policy fact as MCP Hangar's policy, ``None`` where it revokes one."""
    if policy.enforcement is None or policy.unknown is None:
        return None
    return _digest_policy(policy.enforcement, policy.unknown)


@cache
def _digest_policy(enforcement: str, unknown: str) -> DigestPolicy:
    return DigestPolicy(enforcement=MismatchAction(enforcement), unknown=UnknownPolicy.parse(unknown))


def position_of(when: When) -> Position:
    """Return the last position that counts."""
    return (when, _LAST_ORIGIN) if isinstance(when, int) else when


def _until(history: Sequence[_Fact], when: When) -> Sequence[_Fact]:
    last = position_of(when)
    if history and history[-1].position <= last:
        return history
    return history[: bisect_right(history, last, key=_position_of)]
