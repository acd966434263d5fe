"""A policy tried out before it is set: which tools and which calls it would have refused.

Verdicts and rulings are those that the stream and an enforcing proxy compute. Pins count as they are now. A call whose
definition is unknown gets the tool's verdict, as in a proxy.
"""

from __future__ import annotations

from dataclasses import dataclass

from assay_stream.bindings.rulings import Ruling, VerdictTable
from assay_stream.bindings.server import ServerBindings
from assay_stream.model.control_facts import Policy
from assay_stream.model.record import Origin
from assay_stream.registry.ledger import verdict_key, verdicts_of
from assay_stream.report.pins import Row, tools_offered_now
from assay_stream.schemes.hangar import Action

_NOT_OFFERED = ""
"""Stands for all tools that are neither offered nor pinned: made-up names must not fill the memory."""


@dataclass(slots=True)
class _Calls:
    all: int = 0
    refused: int = 0
    denied: int = 0
    """Of the refused: calls that were denied when they were made."""


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
        self._calls: dict[str, _Calls] = {}

    def take(self, tool: str, full_digest: str | None, decision: str | None, count: int) -> None:
        """Count calls on the server that have these in common.

        Args:
            full_digest: of the definition that the calls were bound to, ``None`` if unbound.
        """
        if self.planned.tool_name not in (None, tool):
            return
        calls = self._calls.setdefault(tool if tool in self._names else _NOT_OFFERED, _Calls())
        calls.all += count
        known = self.server.tools
        definition = None if full_digest is None else known.get((True, full_digest)) or known.get((False, full_digest))
        ruling = self._then.rule(self.planned.server_id, tool, definition)
        if ruling.action is Action.BLOCK:
            calls.refused += count
            calls.denied += count if decision == "deny" else 0

    def rows(self) -> list[Row]:
        """Return a row for each tool, refused ones first."""
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
