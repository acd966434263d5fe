"""The life cycle of an alert: findings with the same identity make one alert, which is updated and closed.

Rules:

1. A finding counts once; the input record that it names identifies it.
2. What the fleet has shown before raises no alert by itself. It is counted, and appears in the alert once there is one.
3. An alert is written when it is created, when its severity rises, when it reopens, at round counts (1, 2, 5, 10, 20,
   50, ...), and otherwise once per update interval if anything was counted.
4. While its condition lasts, it is written again once per repeat interval, so that one missed record hides nothing for
   good. A condition that does not last (a call, a removal) is over once a repeat interval passes without a new finding.
5. It closes when nobody observes its condition any more, or an operator has decided, and this has held for the settling
   time; flapping makes one alert with a count. An approved definition does not reopen it by being shown again.
6. A suppressed alert is written as well, with that status and the rule's name. It is written at once when
   no rule covers it any more and everything written before was suppressed.

Everything is a function of the alert's own state, of findings, and of the time that arrives with them. ``tick`` writes
what the next finding would have triggered, in due order, so how often time arrives does not change what is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from assay_stream.alerts.shadowing import SAME_NAME
from assay_stream.alerts.state import (
    DECIDED,
    FURTHER_OBSERVERS,
    UNNAMED_OBSERVER,
    counted,
    named_count,
    was_applied,
    with_origin,
)
from assay_stream.drift import Change
from assay_stream.drift.severity import DEFAULT_PROFILE, Level, Profile, assess, covers
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.alert import Activity, Status, alert_record
from assay_stream.model.alert_state import AlertState
from assay_stream.model.fields import Direction
from assay_stream.model.finding import Finding
from assay_stream.model.finding_topic import Resolution
from assay_stream.model.kinds import KINDS, Kind
from assay_stream.model.record import Output
from assay_stream.model.suppression import SuppressionRule, covering_rule
from assay_stream.schemes.assay.manifest import action_class

_NOT_SEEN_AGAIN = "not_seen_again"

_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pacing:
    """How often an alert may be written.

    Args:
        update_interval_us: between two updates that nothing else calls for.
        settle_us: how long nobody must see it before it is closed.
        repeat_interval_us: after this an alert that lasts is written again.
    """

    update_interval_us: int = 3_600 * _SECOND_US
    settle_us: int = 600 * _SECOND_US
    repeat_interval_us: int = 24 * 3_600 * _SECOND_US


class _Sign(NamedTuple):
    rule: str
    level: int


def severity_under(profile: Profile) -> Callable[[Finding], int]:
    """Return the function that tells how severe a finding is: an OCSF severity id.

    What a peer's table does not look at is informational under it: it stays in the log, and is no alarm.

    Args:
        profile: one of ``drift.severity.PROFILES``.
    """

    def severity(finding: Finding) -> int:
        if finding.kind is Kind.DETECTION and finding.detection is not None:
            # Whoever wrote the agent said how severe this is.
            return finding.detection.severity_id
        changes = [Change(code, path, None, None, Direction(way)) for code, path, way in finding.changes]
        if not covers(profile, finding.kind.value, changes):
            return int(Level.INFORMATIONAL)
        level = assess(
            profile,
            finding.kind.value,
            changes,
            [_Sign(rule, level) for rule, level, _ in finding.indicators],
            privileged=finding.tool_name is not None and action_class(finding.tool_name) is not None,
            default=default_level(finding.kind, finding.reason),
        )
        return int(level)

    return severity


def default_level(kind: Kind, reason: str | None) -> Level:
    """Return the level of a kind of finding where a profile says nothing of it."""
    # Fleets hold many versions of one product: an equal name alone is no alarm.
    if kind is Kind.TOOL_SHADOWED and reason == SAME_NAME:
        return Level.LOW
    return Level(KINDS[kind].severity_id)


DEFAULT_PACING = Pacing()
_SEVERITY = severity_under(DEFAULT_PROFILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRules:
    """Configuration of the alert stage.

    Args:
        version: version of this software, for ``metadata.product``.
        severity: gives the OCSF severity id of a finding.
        pacing: how often an alert may be written.
    """

    version: str
    severity: Callable[[Finding], int] = _SEVERITY
    pacing: Pacing = DEFAULT_PACING


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
            or is_round(new.count)
            or finding.time_us >= new.written_us + rules.pacing.update_interval_us
            or (not new.reported and covering_rule(suppressions, finding, finding.time_us) is None)
        )
    if not is_due:
        return new, outputs
    new, output = _written(new, activity, finding.time_us, rules, suppressions)
    return new, [*outputs, output]


def apply_resolution(
    state: AlertState, resolution: Resolution, rules: AlertRules, suppressions: Suppressions = ()
) -> _Result:
    """Note that an alert's condition has ended, for one observer or for all."""
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
    if not active and new.resolved_us is None:
        # Clocks differ: nothing ends before it was last seen.
        since_us = max(resolution.time_us, state.last_us)
        new = replace(new, resolved_us=since_us, resolved_by=resolution.reason)
    return new, outputs


def tick(state: AlertState, now_us: int, rules: AlertRules, suppressions: Suppressions = ()) -> _Result:
    """Write what is due, in order: deferred counts, repetitions, closings."""
    outputs: list[Output] = []
    while (due := _next_due(state, rules.pacing)) is not None and due.at_us <= now_us:
        if due.what == "close":
            since_us = state.last_us if state.resolved_us is None else state.resolved_us
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


def is_round(count: int) -> bool:
    """Tell whether a count is 1, 2 or 5 times a power of ten.

    Args:
        count: at least 1.
    """
    while count % 10 == 0:
        count //= 10
    return count in (1, 2, 5)


class _Due(NamedTuple):
    at_us: int
    what: Literal["close", "update", "repeat"]
    """Alphabetical order is the order of actions that fall due at the same time."""


def _next_due(state: AlertState, pacing: Pacing) -> _Due | None:
    if not state.raised or state.closed or state.fold is not None:
        return None
    due = []
    if state.resolved_us is not None:
        due.append(_Due(state.resolved_us + pacing.settle_us, "close"))
    elif state.folded["open"] if state.folded else KINDS[state.last.kind].lasts:
        due.append(_Due(state.written_us + pacing.repeat_interval_us, "repeat"))
    else:
        due.append(_Due(state.last_us + pacing.repeat_interval_us, "close"))
    if state.count > state.written_count:
        due.append(_Due(state.written_us + pacing.update_interval_us, "update"))
    return min(due)


def _written(
    state: AlertState, activity: Activity, time_us: int, rules: AlertRules, suppressions: Suppressions
) -> tuple[AlertState, Output]:
    covering = covering_rule(suppressions, state.last, time_us)
    state = replace(
        state,
        written_count=state.count,
        written_us=max(state.written_us, time_us),
        reported=state.reported or covering is None,
        folded=state.folded and state.folded | {"due": False},
    )
    if covering is not None:
        status = Status.SUPPRESSED
    elif activity is Activity.CLOSE:
        status = Status.RESOLVED
    else:
        status = Status.NEW if activity is Activity.CREATE else Status.IN_PROGRESS
    return state, alert_record(
        state.last,
        activity=activity,
        status=status,
        time_us=time_us,
        severity_id=state.severity_id,
        count=state.count,
        seen_us=(state.first_us, state.last_us),
        observers=named_count(state.observers),
        active=named_count(state.active),
        repeats=state.repeats,
        resolved_by=state.resolved_by if activity is Activity.CLOSE else None,
        suppressed_by=None if covering is None else covering.id,
        folded=state.folded,
        version=rules.version,
    )
