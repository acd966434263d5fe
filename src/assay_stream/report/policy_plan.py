"""A policy tried out before it is set: which tools and which calls it would have refused.

Verdicts and rulings are those that the stream and an enforcing proxy compute. Pins count as they stand now. A call
whose definition is unknown is ruled on as the tool's verdict says, as a proxy does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from assay_stream.bindings.rulings import Ruling, VerdictTable
from assay_stream.bindings.server import ServerBindings
from assay_stream.model.cloudevents import time_us_of
from assay_stream.model.control_facts import Policy
from assay_stream.model.record import Origin
from assay_stream.registry.verdicts import verdict_key, verdicts_of
from assay_stream.report.pins import tools_offered_now
from assay_stream.report.rows import Row
from assay_stream.schemes.fingerprint import Fingerprint
from assay_stream.schemes.hangar import Action
from assay_stream.verify.evidence import Recorded

_NOT_OFFERED = ""
"""Stands for all tools that are neither offered nor pinned: made-up names must not fill the memory."""
_NO_ORIGIN = Origin(topic="", partition=0, offset=0)


@dataclass(slots=True)
class _Calls:
    all: int = 0
    refused: int = 0
    denied: int = 0
    """Of the refused: calls that were denied when they were made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPolicy:
    """A policy to try out, as of ``now_us``; without an ``enforcement`` the one in force is taken back."""

    server_id: str
    tool_name: str | None
    enforcement: str | None
    unknown: str | None
    now_us: int

    def fact(self) -> Policy:
        return Policy(
            server_id=self.server_id,
            tool_name=self.tool_name,
            enforcement=self.enforcement,
            unknown=self.unknown,
            author="plan",
            reason="plan",
            origin=_NO_ORIGIN,
            time_us=self.now_us,
        )


@dataclass(slots=True)
class PolicyPlan:
    """What a policy would change on a server.

    Args:
        server: everything known of it. The policy is applied to it: nothing else may use it any more.
        since_us: event time of the earliest call that counts, inclusive, microseconds since the epoch.
    """

    planned: PlannedPolicy
    server: ServerBindings
    since_us: int
    _now: VerdictTable = field(init=False)
    _then: VerdictTable = field(init=False)
    _calls: dict[str, _Calls] = field(init=False, default_factory=dict)
    _names: frozenset[str] = field(init=False)
    knows_tool: bool = field(init=False)
    """Whether the tool that the policy is for is offered or pinned."""

    def __post_init__(self) -> None:
        self._now = self._table()
        self.server.controls.apply(self.planned.fact())
        self._then = self._table()
        known = {*tools_offered_now(self.server), *self.server.controls.pins}
        self.knows_tool = self.planned.tool_name in (None, *known)
        self._names = frozenset(known if self.planned.tool_name is None else {self.planned.tool_name})

    def take(self, evidence: Recorded) -> None:
        """Count one call, if it is on the server (and of the tool, if the policy is for one) and not too old.

        Raises:
            InputError: ``bad_time``, where the evidence was altered.
        """
        tool, planned = evidence.text("tool"), self.planned
        if tool is None or evidence.text("server_id") != planned.server_id:
            return
        if planned.tool_name not in (None, tool) or time_us_of(str(evidence.content.get("time"))) < self.since_us:
            return
        calls = self._calls.setdefault(tool if tool in self._names else _NOT_OFFERED, _Calls())
        calls.all += 1
        if self._then.rule(planned.server_id, tool, self._definition(evidence)).action is Action.BLOCK:
            calls.refused += 1
            calls.denied += evidence.text("decision") == "deny"

    def rows(self) -> list[Row]:
        """Return a row for each tool, those that would be refused first."""
        names = sorted(self._names)
        if _NOT_OFFERED in self._calls:
            names.append(_NOT_OFFERED)
        return sorted((self._row(name) for name in names), key=lambda row: row["planned"] != Action.BLOCK.value)

    def _row(self, name: str) -> Row:
        calls, then = self._calls.get(name, _Calls()), self._rule(self._then, name)
        result = then.result
        return {
            "server_id": self.planned.server_id,
            "tool_name": name or None,
            "comparison": "unpinned" if result is None else result.status.value,
            "now": self._rule(self._now, name).action.value,
            "planned": then.action.value,
            "scheme": None if result is None else result.scheme,
            "expected": None if result is None else result.expected,
            "observed": None if result is None else result.observed,
            "calls": calls.all,
            "refused": calls.refused,
            "denied": calls.denied,
        }

    def _table(self) -> VerdictTable:
        table = VerdictTable()
        for name, value in verdicts_of(self.planned.server_id, self.server).items():
            table.apply(verdict_key(self.planned.server_id, name), value)
        return table

    def _rule(self, table: VerdictTable, name: str) -> Ruling:
        return table.rule(self.planned.server_id, name, None)

    def _definition(self, evidence: Recorded) -> Fingerprint | None:
        """Return the definition that a call was bound to, ``None`` where it was to none, or it is forgotten."""
        binding = evidence.binding
        if not isinstance(binding, dict):
            return None
        full = binding.get("full_digest")
        return self.server.tools.get((binding.get("server_scoped") is True, full)) if isinstance(full, str) else None
