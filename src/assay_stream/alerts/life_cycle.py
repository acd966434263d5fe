"""The life cycle of an alert: findings with the same identity make one alert, which is updated and closed.

Rules:

1. A finding counts once; the input record that it names identifies it.
2. What the fleet has shown before raises no alert by itself. It is counted, and appears in the alert once there is one.
3. An alert is written when it is created, when its severity rises, when it reopens, at round counts (1, 2, 5, 10, 20,
   50, ...), and otherwise once per update interval if anything was counted.
4. While its condition lasts, it is written again once per repeat interval, so that one missed record hides nothing for
   good. A condition that does not last (a call, a removal) is over once a repeat interval passes without a new finding.
5. It closes at once when an operator has decided, and when no observer sees its condition any more and this has held
   for the settling time; flapping makes one alert with a count. An approved definition does not reopen it by being
   shown again. Reasons that joined it (``alerts.reasons``) keep it open.
6. A suppressed alert is written as well, with that status and the rule's name. It is written at once when
   no rule covers it any more and everything written before was suppressed.
7. One that is over is forgotten ``forget_us`` after its last event: its end, a finding or a record. If it is found
   again, it is a new alert with the same uid.
8. An acknowledged alert is written again only when its severity rises or it closes (``alerts.triage``). A manually
   closed one stays closed until its condition has cleared and recurred.

Everything is a function of the alert's own state, of findings, and of the time that arrives with them. ``tick`` writes
what the next finding would have triggered, in due order, so how often time arrives does not change what is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from assay_stream.alerts.reasons import over_us
from assay_stream.alerts.rules import AlertRules, Pacing
from assay_stream.alerts.state import (
    DECIDED,
    FURTHER_OBSERVERS,
    counted,
    is_acknowledged,
    is_closed_by_hand,
    was_applied,
    with_origin,
    without,
)
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.alert import Activity, AlertStatus, alert_record
from assay_stream.model.alert_state import UNNAMED_OBSERVER, AlertState
from assay_stream.model.finding import Finding
from assay_stream.model.finding_topic import Resolution
from assay_stream.model.kinds import KINDS
from assay_stream.model.record import Output
from assay_stream.model.suppression import SuppressionRule, covering_rule

_NOT_SEEN_AGAIN = "not_seen_again"

Suppressions = Sequence[SuppressionRule]
_Result = tuple[AlertState, list[Output]]


def apply_finding(
    state: AlertState | None, finding: Finding, rules: AlertRules, suppressions: Suppressions = ()
) -> _Result:
    """Count a finding on its alert, and return the new state and the records to write."""
    if state is not None and was_applied(state, finding.origin):
        return state, []
    outputs: list[Output] = []
    if state is not None:
        state, outputs = tick(state, finding.time_us, rules, suppressions)
    new = counted(state, finding, rules.severity(finding))
    if not new.raised or new.closed:
        return new, outputs
    if state is None or not state.raised:
        activity, is_due = Activity.CREATE, True
    else:
        activity = Activity.UPDATE
        is_due = (
            state.closed
            or new.severity_id > state.severity_id
            or (not new.reported and covering(new, suppressions, finding.time_us) is None)
        )
        if is_due:
            new = replace(new, triage=without(new.triage, "acknowledged_by"))
        elif not is_acknowledged(new):
            is_due = is_round(new.count) or finding.time_us >= new.written_us + rules.pacing.update_interval_us
    if not is_due:
        return new, outputs
    new, output = _written(new, activity, finding.time_us, rules, suppressions)
    return new, [*outputs, output]


def apply_resolution(
    state: AlertState, resolution: Resolution, rules: AlertRules, suppressions: Suppressions = ()
) -> _Result:
    """Record that an alert's condition has ended, for one observer or for all."""
    if was_applied(state, resolution.origin, is_end=True):
        return state, []
    state, outputs = tick(state, resolution.time_us, rules, suppressions)
    gone = {resolution.observer_id}
    if resolution.everywhere:
        gone |= {UNNAMED_OBSERVER, FURTHER_OBSERVERS}
    active = () if resolution.observer_id is None else tuple(name for name in state.active if name not in gone)
    new = replace(state, applied=with_origin(state, resolution.origin, is_end=True), active=active)
    if resolution.reason == DECIDED:
        new = replace(new, resolved_by=DECIDED)
    if not active and is_closed_by_hand(new):
        # What a person closed is over: if it comes back, it is news.
        new = replace(new, triage=without(new.triage, "closed"))
    if not active and new.resolved_us is None:
        # Clocks differ: nothing ends before it was last seen.
        since_us = max(resolution.time_us, state.last_us)
        new = replace(new, resolved_us=since_us, resolved_by=resolution.reason)
    if resolution.reason == DECIDED and settles_at_once(new):
        new, closing = tick(new, max(resolution.time_us, over_us(new) or 0), rules, suppressions)
        outputs += closing
    return new, outputs


def settles_at_once(state: AlertState) -> bool:
    """Return True if an ended alert closes at once: an operator's decision needs no settling time."""
    return state.resolved_by == DECIDED


def tick(state: AlertState, now_us: int, rules: AlertRules, suppressions: Suppressions = ()) -> _Result:
    """Write what is due, in order: deferred counts, repetitions, closings."""
    outputs: list[Output] = []
    while (due := _next_due(state, rules.pacing)) is not None and due.at_us <= now_us:
        if due.what == "close":
            since_us = state.last_us if state.resolved_us is None else over_us(state) or state.last_us
            reason = _NOT_SEEN_AGAIN if state.resolved_us is None else state.resolved_by
            ended = replace(state, closed=True, resolved_us=since_us, resolved_by=reason)
            state, output = _written(ended, Activity.CLOSE, since_us, rules, suppressions)
        elif due.what == "update":
            activity = Activity.UPDATE if state.written_count else Activity.CREATE
            state, output = _written(state, activity, due.at_us, rules, suppressions)
        else:
            interval_us = rules.pacing.repeat_interval_us
            missed = (now_us - due.at_us) // interval_us
            if missed < DEFAULT_LIMITS.repeats_made_up_max:
                missed = 0
            repeated = replace(state, repeats=state.repeats + 1 + missed)
            at_us = due.at_us + missed * interval_us
            state, output = _written(repeated, Activity.UPDATE, at_us, rules, suppressions)
        outputs.append(output)
    return state, outputs


def write_again(
    state: AlertState, time_us: int, rules: AlertRules, suppressions: Suppressions, activity: Activity = Activity.UPDATE
) -> _Result:
    """Write an alert though nothing was counted on it: a reason joined it, or a person acted on it."""
    state, output = _written(replace(state, repeats=state.repeats + 1), activity, time_us, rules, suppressions)
    return state, [output]


def write_folded(
    state: AlertState, time_us: int, rules: AlertRules, suppressions: Suppressions = ()
) -> tuple[AlertState, list[Output]]:
    """Write a folded alert at the end of the record that changed it, if it gained a member or reopened."""
    if state.closed or not (state.folded or {}).get("due"):
        return state, []
    activity = Activity.UPDATE if state.written_count else Activity.CREATE
    state, output = _written(state, activity, time_us, rules, suppressions)
    return state, [output]


def due_us(state: AlertState, rules: AlertRules) -> int | None:
    """Return when ``tick`` will next have something to write, or ``None``."""
    due = _next_due(state, rules.pacing)
    return None if due is None else due.at_us


def forgotten_us(state: AlertState, pacing: Pacing) -> int | None:
    """Return when a state counts as absent, ``None`` while its alert is open or its condition holds."""
    speaks = state.part_of is None and state.fold is None
    has_ended = state.closed if speaks else state.resolved_us is not None or not KINDS[state.last.kind].lasts
    is_over = has_ended or not state.raised
    last_us = max(state.last_us, state.written_us, state.resolved_us or 0)
    return last_us + pacing.forget_us if is_over else None


def is_round(count: int) -> bool:
    """Return True if a count (at least 1) is 1, 2 or 5 times a power of ten."""
    while count % 10 == 0:
        count //= 10
    return count in (1, 2, 5)


class _Due(NamedTuple):
    at_us: int
    what: Literal["close", "update", "repeat"]
    """Alphabetical order is the order of actions that fall due at the same time."""


def _next_due(state: AlertState, pacing: Pacing) -> _Due | None:
    if not state.raised or state.closed or state.fold is not None or state.part_of is not None:
        return None
    due = []
    ended_us = over_us(state)
    if ended_us is not None:
        due.append(_Due(ended_us + (0 if settles_at_once(state) else pacing.settle_us), "close"))
    elif not _lasts(state):
        due.append(_Due(state.last_us + pacing.repeat_interval_us, "close"))
    elif not is_acknowledged(state):
        due.append(_Due(state.written_us + pacing.repeat_interval_us, "repeat"))
    if state.count > state.written_count and not is_acknowledged(state):
        due.append(_Due(state.written_us + pacing.update_interval_us, "update"))
    return min(due, default=None)


def _lasts(state: AlertState) -> bool:
    if state.folded is not None:
        return bool(state.folded["open"])
    return KINDS[state.last.kind].lasts or "reopened" in (state.triage or {})


def _written(
    state: AlertState, activity: Activity, time_us: int, rules: AlertRules, suppressions: Suppressions
) -> tuple[AlertState, Output]:
    rule = covering(state, suppressions, time_us)
    state = replace(
        state,
        written_count=state.count,
        written_us=max(state.written_us, time_us),
        reported=state.reported or rule is None,
        folded=state.folded and state.folded | {"due": False},
    )
    if rule is not None:
        status = AlertStatus.SUPPRESSED
    elif activity is Activity.CLOSE:
        status = AlertStatus.RESOLVED
    else:
        status = AlertStatus.NEW if activity is Activity.CREATE else AlertStatus.IN_PROGRESS
    suppressed_by = None if rule is None else rule.id
    told = state if state.triage is None else replace(state, triage=without(state.triage, "act", "by", "comment"))
    return told, alert_record(
        state, activity=activity, status=status, time_us=time_us, suppressed_by=suppressed_by, version=rules.version
    )


def covering(state: AlertState, suppressions: Suppressions, time_us: int) -> SuppressionRule | None:
    """Return the rule that suppresses an alert: one for single kinds or fields covers no other joined reason."""
    if any(part["over_us"] is None for part in (state.parts or {}).values()):
        suppressions = [rule for rule in suppressions if rule.kind is rule.field is rule.detection is None]
    return covering_rule(suppressions, state.last, time_us)
