"""Operators' decisions, their tools and keys, how they compare, and what a policy would have refused.

Verdicts and rulings are those that the stream and an enforcing proxy compute. Pins count as they are now. A call whose
definition is unknown gets the tool's verdict, as in a proxy.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from assay_stream.bindings.controls import PinState, VerdictTable, check_pins, pin_states
from assay_stream.bindings.server import ServerBindings
from assay_stream.bindings.state import Bindings
from assay_stream.bindings.timeline import AFTER_ALL_US
from assay_stream.errors import InputError
from assay_stream.model.control import ALERT_TYPE, PIN_REJECT_TYPE, PIN_SET_TYPE, KeyDecision, Pin, Policy
from assay_stream.model.facts import Seen
from assay_stream.model.record import Origin
from assay_stream.registry.step import verdict_key, verdicts_of
from assay_stream.schemes.fingerprint import Fingerprint, PinEntry
from assay_stream.schemes.hangar import Action
from assay_stream.text.times import time_text

Row = dict[str, Any]
OperatorDecision = Pin | Policy | KeyDecision


def present(row: Row) -> Row:
    return {name: value for name, value in row.items() if value is not None}


def decision_row(fact: OperatorDecision) -> Row:
    return {"author": fact.author, "reason": fact.reason, "since": time_text(fact.time_us)}


Decision = tuple[str, Mapping[str, Any]]
"""Event type and data of a decision, without author and reason."""

AlertAct = Literal["acknowledge", "assign", "comment", "close", "reopen"]
DefinitionAct = Literal["approve", "reject"]
PIN_TYPES: Mapping[DefinitionAct, str] = {"approve": PIN_SET_TYPE, "reject": PIN_REJECT_TYPE}

DEFAULT_SCHEME = "assay.p60"
"""What a tool is pinned under by default: it covers the output schema and the annotations too."""


def alert_decision(act: AlertAct, *, server_id: str, uid: str, assignee: str | None = None) -> Decision:
    """Build a decision on an alert; ``uid`` is the full uid."""
    return ALERT_TYPE + act, present({"server_id": server_id, "alert": uid, "assignee": assignee})


def definition_decisions(
    act: DefinitionAct, *, server_id: str, tool_name: str, values: Mapping[str, str]
) -> list[Decision]:
    """Return one decision for each value of a definition.

    Args:
        values: by scheme, from ``values_of_print``.
    """
    return [
        (PIN_TYPES[act], {"server_id": server_id, "tool_name": tool_name, "scheme": scheme, "value": value})
        for scheme, value in values.items()
    ]


def values_of_print(
    printed: Mapping[str, str], tool_name: str, *, pinned: Iterable[str], schemes: Iterable[str] = ()
) -> dict[str, str]:
    """Return the values of a definition to decide on, by scheme.

    Args:
        printed: its value under every scheme, as the registry printed it for its server.
        pinned: the schemes under which the tool has an approved value.
        schemes: empty for those under which the tool is already pinned, else the default one, since
            approving a change under one scheme only would leave the others to differ.

    Raises:
        InputError: ``scheme_not_available``.
    """
    values: dict[str, str] = {}
    for scheme in list(schemes) or sorted(pinned) or (DEFAULT_SCHEME,):
        if scheme not in printed:
            raise InputError(
                "scheme_not_available",
                f"the definition has no value under {scheme}: choose another with --scheme",
                path=tool_name,
            )
        values[scheme] = printed[scheme]
    return values


_DIGITS_MIN = 6
"""Digits by which a digest can be named."""


class DefinitionInForce(NamedTuple):
    """A definition of a tool in force, and its observers."""

    fingerprint: Fingerprint
    observers: tuple[str, ...]


def offered_now(server: ServerBindings, tool_name: str) -> list[DefinitionInForce]:
    """Return the distinct definitions of a tool in force, by full digest."""
    found: dict[str, tuple[Fingerprint, list[str]]] = {}
    for observer_id, seen in sorted(_latest(server)):
        catalogue = server.catalogue_of(seen)
        full = catalogue.tools.get(tool_name)
        if full is not None:
            found.setdefault(full, (server.fingerprint_of(catalogue, full), []))[1].append(observer_id)
    return [DefinitionInForce(print_, tuple(observers)) for _, (print_, observers) in sorted(found.items())]


def tools_offered_now(server: ServerBindings) -> list[str]:
    return sorted({name for _, seen in _latest(server) for name in server.catalogue_of(seen).tools})


def knows_tool(server: ServerBindings, tool_name: str) -> bool:
    """Return True if a kept list, or a decision, names the tool."""
    controls = server.controls
    decided = {*controls.policies, *(fact.tool_name for fact in controls.key_decisions)}
    listed = (name for each in server.catalogues.values() for name in (*each.tools, *each.ambiguous))
    return tool_name in controls.pins or tool_name in decided or tool_name in listed


def pin_rows(bindings: Bindings, *, server_id: str | None, tool_name: str | None) -> Iterator[Row]:
    """Yield one row for each pin in force, with how each definition in force compares; ``None`` selects all."""
    for name, server in _servers(bindings, server_id):
        for tool in sorted(server.controls.pins):
            if tool_name not in (None, tool):
                continue
            for scheme, value, state, last in pins_in_force(server.controls.pins[tool]):
                yield {
                    "server_id": name,
                    "tool_name": tool,
                    "scheme": scheme,
                    "value": value,
                    "state": state.value,
                    "comparison": _comparison(server, tool),
                    **decision_row(last),
                }


def pins_in_force(acts: Sequence[Pin]) -> Iterator[tuple[str, str, PinState, Pin]]:
    """Yield scheme, value and state of each approved or rejected pin, and its last decision."""
    for (scheme, value), state in sorted(pin_states(acts).items()):
        yield scheme, value, state, [act for act in acts if (act.scheme, act.value) == (scheme, value)][-1]


def history_rows(bindings: Bindings, *, server_id: str | None, tool_name: str | None) -> list[Row]:
    """Return every decision of operators, oldest first, superseded ones included; ``None`` selects all."""
    facts: list[OperatorDecision] = []
    for _, server in _servers(bindings, server_id):
        controls = server.controls
        facts += [act for acts in controls.pins.values() for act in acts]
        facts += [act for acts in controls.policies.values() for act in acts]
        facts += controls.key_decisions
    facts.sort(key=lambda fact: fact.position)
    return [_history_row(fact) for fact in facts if tool_name is None or fact.tool_name in (tool_name, None)]


def approved_entries(bindings: Bindings, *, server_id: str | None) -> list[PinEntry]:
    return [
        PinEntry(name, tool, scheme, value, _upstream(server.controls.pins[tool], scheme, value))
        for name, server in _servers(bindings, server_id)
        for tool in sorted(server.controls.pins)
        for scheme, value in sorted(server.controls.pins_as_of(tool, AFTER_ALL_US).approved.items())
    ]


def _upstream(acts: Iterable[Pin], scheme: str, value: str) -> str | None:
    """Return what the last approval of a value binds it to."""
    approvals = [act for act in acts if act.act == "set" and (act.scheme, act.value) == (scheme, value)]
    return approvals[-1].upstream if approvals else None


def full_digest_of(server: ServerBindings, scheme: str, value: str) -> str | None:
    """Return the full digest of the definition with a value under a scheme, if it was ever observed."""
    return next((print_.full for print_ in server.tools.values() if print_.has_value(scheme, value)), None)


def values_to_decide(
    server: ServerBindings, tool_name: str, *, full: str | None, schemes: Sequence[str]
) -> dict[str, str]:
    """Return the values of one definition of a tool by scheme.

    Args:
        full: full digest of the definition or its first six digits or more, ``None`` means the one in force.
        schemes: as for ``values_of_print``.

    Raises:
        InputError: ``tool_not_observed``, ``definition_ambiguous``, ``ambiguous_digest`` or ``scheme_not_available``.
    """
    print_ = _definition(server, tool_name, full)
    pinned = server.controls.pins_as_of(tool_name, AFTER_ALL_US).approved
    return values_of_print(print_.schemes, tool_name, pinned=pinned, schemes=schemes)


def offers_rejected(server: ServerBindings, tool_name: str) -> bool:
    """Return True if the definition in force of a tool was rejected under any scheme.

    Raises:
        InputError: ``tool_not_observed``, ``definition_ambiguous``.
    """
    print_ = _definition(server, tool_name, None)
    rejected = server.controls.pins_as_of(tool_name, AFTER_ALL_US).rejected
    return any(print_.has_value(scheme, value) for scheme, values in rejected.items() for value in values)


def server_of(bindings: Bindings, server_id: str) -> ServerBindings:
    """Return the bindings of a server.

    Raises:
        InputError: ``server_not_known``.
    """
    server = bindings.find(server_id)
    if server is None:
        raise InputError("server_not_known", "no snapshot and no decision names this server: check --server-id")
    return server


def _definition(server: ServerBindings, tool_name: str, full: str | None) -> Fingerprint:
    if full is not None:
        bare = full.lower().removeprefix("sha256:").rstrip("…")
        found = {
            digest: print_
            for (_, digest), print_ in server.tools.items()
            if len(bare) >= _DIGITS_MIN and digest.removeprefix("sha256:").startswith(bare)
        }
        if len(found) > 1:
            raise InputError("ambiguous_digest", f"give more digits of the full digest: {', '.join(sorted(found))}")
        if not found:
            raise InputError(
                "tool_not_observed",
                "the server never offered a definition with this full digest: see `tools list --json`",
            )
        return next(iter(found.values()))
    offered = offered_now(server, tool_name)
    if not offered:
        raise InputError(
            "tool_not_observed",
            "no list in force has this tool: wait for one, or set it with `pins import`",
            path=tool_name,
        )
    if len(offered) > 1:
        digests = "; ".join(f"{found.fingerprint.full} seen by {len(found.observers)}" for found in offered)
        raise InputError(
            "definition_ambiguous",
            f"the tool has several definitions in force, choose with --digest: {digests}",
            path=tool_name,
        )
    return offered[0].fingerprint


def _comparison(server: ServerBindings, tool_name: str) -> str:
    pins = server.controls.pins_as_of(tool_name, AFTER_ALL_US)
    found = tuple(offered.fingerprint for offered in offered_now(server, tool_name))
    return ",".join(sorted({check_pins(pins, print_).status.value for print_ in found or (None,)}))


def _latest(server: ServerBindings) -> Iterator[tuple[str, Seen]]:
    for observer_id, timeline in server.observers.items():
        seen = timeline.as_of(AFTER_ALL_US)
        if seen is not None and server.in_force(seen, AFTER_ALL_US):
            yield observer_id, seen


def _servers(bindings: Bindings, server_id: str | None) -> Iterator[tuple[str, ServerBindings]]:
    for name, server in sorted(bindings.servers.items()):
        if server_id in (None, name):
            yield name, server


def _history_row(fact: OperatorDecision) -> Row:
    row: Row = {"time": time_text(fact.time_us), "server_id": fact.server_id}
    match fact:
        case Pin():
            row |= {"change": f"pin.{fact.act}", "tool_name": fact.tool_name, "scheme": fact.scheme}
            row |= {"value": fact.value, "upstream": fact.upstream}
        case Policy():
            row |= {"change": "policy.set" if fact.enforcement else "policy.remove", "tool_name": fact.tool_name}
            if fact.enforcement:
                row |= {"enforcement": fact.enforcement, "unknown": fact.unknown}
                row["value"] = f"{fact.enforcement}, unknown {fact.unknown}"
        case KeyDecision():
            row |= {"change": f"key.{fact.act}", "tool_name": fact.tool_name, "domain": fact.domain}
            row |= {"fingerprint": fact.fingerprint, "value": fact.fingerprint}
    return present(row | {"author": fact.author, "reason": fact.reason, "origin": fact.origin.as_json()})


def policy_rows(bindings: Bindings, *, server_id: str | None) -> Iterator[Row]:
    """Yield one row for each policy in force on a server, or on all servers."""
    for name, server in _servers(bindings, server_id):
        for policy in server.controls.policies_as_of(AFTER_ALL_US):
            yield {
                "server_id": name,
                "tool_name": policy.tool_name or "*",
                "enforcement": policy.enforcement,
                "unknown": policy.unknown,
                **decision_row(policy),
            }


def key_rows(bindings: Bindings, *, server_id: str | None) -> Iterator[Row]:
    """Yield one row for each observation of a key, each first use, and each decision on a key."""
    for name, server in _servers(bindings, server_id):
        controls = server.controls
        for domain, history in sorted(controls.discoveries.items()):
            for found in history:
                yield {
                    "server_id": name,
                    "domain": domain,
                    "what": found.status,
                    "fingerprint": found.fingerprint or "-",
                    "revoked": list(found.revoked),
                    "since": time_text(found.time_us),
                }
        for (domain, tool), use in sorted(controls.first_uses.items()):
            yield {
                "server_id": name,
                "domain": domain,
                "tool_name": tool,
                "what": "first_use",
                "fingerprint": use.fingerprint,
                "since": time_text(use.time_us),
            }
        for decision in controls.key_decisions:
            yield {
                "server_id": name,
                "domain": decision.domain or "*",
                "tool_name": decision.tool_name or "*",
                "what": f"{decision.act}ed" if decision.act == "accept" else "revoked",
                "fingerprint": decision.fingerprint,
                **decision_row(decision),
            }


_NOT_OFFERED = ""
"""Stands for all tools that are neither offered nor pinned: made-up names must not fill the memory."""


def planned_policy(
    *, server_id: str, tool_name: str | None, enforcement: str | None, unknown: str | None, now_us: int
) -> Policy:
    """Return a policy to try out, as of ``now_us``; without ``enforcement``, the policy in force is removed."""
    return Policy(
        server_id=server_id,
        tool_name=tool_name,
        enforcement=enforcement,
        unknown=unknown,
        author="plan",
        reason="plan",
        origin=Origin(topic="", partition=0, offset=0),
        time_us=now_us,
    )


class PolicyPlan:
    """What a policy would change on a server.

    Args:
        server: modified by applying the policy to it; do not use it elsewhere.
    """

    def __init__(self, planned: Policy, server: ServerBindings) -> None:
        self.planned, self.server = planned, server
        self._now = self._table()
        server.controls.apply(planned)
        self._then = self._table()
        known = {*tools_offered_now(server), *server.controls.pins}
        self.knows_tool = planned.tool_name in (None, *known)
        """Whether the tool that the policy is for is offered or pinned."""
        self._names = frozenset(known if planned.tool_name is None else {planned.tool_name})
        self._calls: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """By tool: all calls, those refused, and of these the ones that were denied when they were made."""

    def take(self, tool: str, full_digest: str | None, decision: str | None, count: int) -> None:
        """Count calls on the server that have these in common.

        Args:
            full_digest: of the definition that the calls were bound to, ``None`` if unbound.
        """
        if self.planned.tool_name not in (None, tool):
            return
        calls = self._calls[tool if tool in self._names else _NOT_OFFERED]
        calls["calls"] += count
        definition = None if full_digest is None else self.server.fingerprint(full_digest)
        ruling = self._then.rule(self.planned.server_id, tool, definition)
        if ruling.action is Action.BLOCK:
            calls["refused"] += count
            calls["denied"] += count if decision == "deny" else 0

    def rows(self) -> list[Row]:
        """Return a row for each tool, refused ones first."""
        names = sorted(self._names)
        if _NOT_OFFERED in self._calls:
            names.append(_NOT_OFFERED)
        return sorted((self._row(name) for name in names), key=lambda row: row["planned"] != Action.BLOCK.value)

    def _row(self, name: str) -> Row:
        calls = self._calls.get(name, Counter[str]())
        then, now = (table.rule(self.planned.server_id, name, None) for table in (self._then, self._now))
        result = then.result
        return {
            "server_id": self.planned.server_id,
            "tool_name": name or None,
            "comparison": "unpinned" if result is None else result.status.value,
            "now": now.action.value,
            "planned": then.action.value,
            "scheme": None if result is None else result.scheme,
            "expected": None if result is None else result.expected,
            "observed": None if result is None else result.observed,
            **{what: calls[what] for what in ("calls", "refused", "denied")},
        }

    def _table(self) -> VerdictTable:
        table = VerdictTable()
        for name, value in verdicts_of(self.planned.server_id, self.server).items():
            table.apply(verdict_key(self.planned.server_id, name), value)
        return table
