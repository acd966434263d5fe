"""Triage: acts of people on an alert, from control records. Each act is written as a record of the alert at once.

1. Acknowledged, an alert is quiet until its severity rises, it closes, or it recurs after it closed.
2. A manually closed alert reopens when its condition clears and recurs, or when severity rises.
3. A manually reopened alert stays open until its condition clears again or it is closed manually.
4. An assignment and a comment change nothing else. An act that changes nothing is not written.
"""

from __future__ import annotations

from dataclasses import replace

from assay_stream.alerts.life_cycle import Suppressions, tick, write_again
from assay_stream.alerts.rules import AlertRules
from assay_stream.alerts.state import was_applied, with_origin, without
from assay_stream.model.alert import Activity
from assay_stream.model.alert_state import AlertState, Triage
from assay_stream.model.finding_topic import AlertAct
from assay_stream.model.record import Output

CLOSED_BY_HAND = "closed"
"""End reason of a manually closed alert."""


def apply_act(
    state: AlertState, act: AlertAct, rules: AlertRules, suppressions: Suppressions = ()
) -> tuple[AlertState, list[Output]]:
    """Apply a person's act on an alert, and return the new state and the records to write."""
    if was_applied(state, act.origin, is_end=True):
        return state, []
    state, outputs = tick(state, act.time_us, rules, suppressions)
    new = replace(state, applied=with_origin(state, act.origin, is_end=True))
    if not new.raised or not _changes(new, act):
        return new, outputs
    said: Triage = {**(new.triage or {}), "act": act.act, "by": act.author, "comment": act.reason}
    match act.act:
        case "acknowledge":
            said["acknowledged_by"] = act.author
        case "assign":
            said["assigned_to"] = act.assignee or act.author
        case "close":
            said = (without(said, "acknowledged_by", "reopened") or {}) | {"closed": True}
            ended_us = max(act.time_us, new.last_us)
            new = replace(new, closed=True, resolved_us=ended_us, resolved_by=CLOSED_BY_HAND)
        case "reopen":
            said = (without(said, "closed") or {}) | {"reopened": True}
            new = replace(new, closed=False, resolved_us=None, resolved_by=None)
        case "comment":
            pass
    activity = Activity.CLOSE if new.closed else Activity.UPDATE
    new, written = write_again(replace(new, triage=said), act.time_us, rules, suppressions, activity)
    return new, outputs + written


def _changes(state: AlertState, act: AlertAct) -> bool:
    said = state.triage or {}
    match act.act:
        case "acknowledge":
            return not state.closed and said.get("acknowledged_by") != act.author
        case "assign":
            return said.get("assigned_to") != (act.assignee or act.author)
        case "close":
            return not state.closed
        case "reopen":
            return state.closed
        case "comment":
            return True
