"""Alerts: attention. Findings with one identity make one alert with a life and a count.

Rules:

1. A finding is counted once, recognised by the input record it names; what was counted is never counted again.
2. What the fleet had shown before raises nothing by itself: it is counted, and is told with the alert once there
   is one.
3. An alert is written when it is created, when it gets graver, when it comes back after it was closed, at round
   counts (1, 2, 5, 10, 20, 50, ...), and otherwise once per interval in which something was counted.
4. While it lasts it is written again once per repeat interval, so that nothing is hidden for good by having been
   told once.
5. It is closed when nobody sees any more what it was about, or an operator decided on it, and it has stayed so for
   the settling time: what flaps is one alert with a count.
6. A suppressed alert is written all the same, with that status and the rule that says so.

Each is a function of the alert's own past, of findings and of time as it arrives with them. ``tick`` does for an
alert of which nothing is heard what the next finding would have done: what it writes has the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from assay_stream.core.alert_record import Activity, Status, alert_record
from assay_stream.core.attention import Resolution
from assay_stream.core.finding import Finding, finding_fields, finding_of
from assay_stream.core.finding_severity import severity_under
from assay_stream.core.limits import DEFAULT_LIMITS
from assay_stream.core.record import Origin, Output
from assay_stream.core.severity import DEFAULT_PROFILE
from assay_stream.core.suppression import SuppressionRule, covering_rule

_FURTHER_OBSERVERS = ""
"""Under this name the observers beyond the limit are counted; no observer can have it."""

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


DEFAULT_PACING = Pacing()
_SEVERITY = severity_under(DEFAULT_PROFILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRules:
    """What the alert stage is told beside the findings.

    Args:
        version: version of this software, for ``metadata.product``.
        severity: how grave a finding is: an OCSF severity id.
        pacing: how often an alert may be written.
    """

    version: str
    severity: Callable[[Finding], int] = _SEVERITY
    pacing: Pacing = DEFAULT_PACING


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertState:
    """What is remembered of one alert.

    Args:
        applied: ``topic/partition`` of the records that were applied, to the highest offset.
        count: findings counted.
        first_us: event time of the earliest finding, microseconds since the epoch.
        last_us: event time of the latest.
        observers: how many findings each observer contributed.
        active: the observers that see it still.
        severity_id: the gravest it ever was.
        raised: whether an alert was ever written for it.
        closed: whether the last one written closed it.
        resolved_us: since when nobody sees it, ``None`` while somebody does.
        resolved_by: what put an end to it.
        written_count: count at the last writing.
        written_us: event time of the last writing.
        repeats: how often it was written again since the last finding.
        last: the last finding, as the finding topic carries it.
        suppressed_by: id of the suppression rule that covers it, if one does.
    """

    applied: dict[str, int]
    count: int
    first_us: int
    last_us: int
    observers: dict[str, int]
    active: tuple[str, ...]
    severity_id: int
    raised: bool
    closed: bool
    resolved_us: int | None
    resolved_by: str | None
    written_count: int
    written_us: int
    repeats: int
    last: dict[str, Any]
    suppressed_by: str | None

    def as_json(self) -> dict[str, Any]:
        """Return the state as a JSON object."""
        return asdict(self) | {"active": list(self.active)}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> AlertState:
        """Return the state that a JSON object holds.

        Args:
            fields: what ``as_json`` gave.
        """
        return cls(**(fields | {"active": tuple(fields["active"])}))


def apply_finding(
    state: AlertState | None, finding: Finding, rules: AlertRules, suppressions: Iterable[SuppressionRule] = ()
) -> tuple[AlertState, list[Output]]:
    """Count a finding on its alert, and return what is to be written.

    Args:
        state: what is remembered of the alert, ``None`` for a new one.
        finding: the finding.
        rules: what the stage is told.
        suppressions: the suppression rules in force for the finding's server.
    """
    if state is not None and _was_applied(state, finding.origin):
        return state, []
    outputs: list[Output] = []
    if state is not None:
        state, outputs = tick(state, finding.time_us, rules)
    new = _counted(state, finding, rules.severity(finding))
    covering = covering_rule(suppressions, finding)
    new = replace(new, suppressed_by=None if covering is None else covering.id)
    if not new.raised:
        return new, outputs
    if state is None or not state.raised:
        return _written(new, Activity.CREATE, finding.time_us, outputs, rules)
    graver = new.severity_id > state.severity_id
    changed = state.closed or graver or new.suppressed_by != state.suppressed_by
    if changed or is_round(new.count) or finding.time_us >= new.written_us + rules.pacing.update_interval_us:
        return _written(replace(new, closed=False), Activity.UPDATE, finding.time_us, outputs, rules)
    return new, outputs


def apply_resolution(
    state: AlertState, resolution: Resolution, rules: AlertRules
) -> tuple[AlertState, list[Output]]:
    """Note that what an alert was about stands no more, for one observer or for all.

    Args:
        state: what is remembered of the alert.
        resolution: what put an end to it.
        rules: what the stage is told.
    """
    if _was_applied(state, resolution.origin):
        return state, []
    state, outputs = tick(state, resolution.time_us, rules)
    gone = resolution.observer_id
    active = () if gone is None else tuple(name for name in state.active if name != gone)
    new = replace(state, applied=_applied(state, resolution.origin), active=active)
    if not active and not state.closed and state.resolved_us is None:
        new = replace(new, resolved_us=resolution.time_us, resolved_by=resolution.reason)
    return new, outputs


def tick(state: AlertState, now_us: int, rules: AlertRules) -> tuple[AlertState, list[Output]]:
    """Write what is due by now: an end that has settled, counts that were held back, or a repetition.

    Args:
        state: what is remembered of the alert.
        now_us: the time, microseconds since the epoch.
        rules: what the stage is told.
    """
    outputs: list[Output] = []
    if not state.raised or state.closed:
        return state, outputs
    pacing = rules.pacing
    if state.resolved_us is not None and now_us >= state.resolved_us + pacing.settle_us:
        return _written(replace(state, closed=True), Activity.CLOSE, state.resolved_us, outputs, rules)
    update_us = state.written_us + pacing.update_interval_us
    if state.count > state.written_count and now_us >= update_us:
        state, outputs = _written(state, Activity.UPDATE, update_us, outputs, rules)
    while state.resolved_us is None and now_us >= state.written_us + pacing.repeat_interval_us:
        repeated = replace(state, repeats=state.repeats + 1)
        repeat_us = state.written_us + pacing.repeat_interval_us
        state, outputs = _written(repeated, Activity.UPDATE, repeat_us, outputs, rules)
        if now_us >= state.written_us + 2 * pacing.repeat_interval_us:
            # After a long silence one repetition says it all; the rhythm stays.
            missed = (now_us - state.written_us) // pacing.repeat_interval_us - 1
            state = replace(
                state,
                written_us=state.written_us + missed * pacing.repeat_interval_us,
                repeats=state.repeats + missed,
            )
    return state, outputs


def due_us(state: AlertState, rules: AlertRules) -> int | None:
    """Return when ``tick`` will next have something to write, ``None`` where never.

    Args:
        state: what is remembered of the alert.
        rules: what the stage is told.
    """
    if not state.raised or state.closed:
        return None
    pacing = rules.pacing
    times = []
    if state.resolved_us is not None:
        times.append(state.resolved_us + pacing.settle_us)
    else:
        times.append(state.written_us + pacing.repeat_interval_us)
    if state.count > state.written_count:
        times.append(state.written_us + pacing.update_interval_us)
    return min(times)


def is_round(count: int) -> bool:
    """Tell whether a count is 1, 2 or 5 times a power of ten.

    Args:
        count: at least 1.
    """
    while count % 10 == 0:
        count //= 10
    return count in (1, 2, 5)


def _counted(state: AlertState | None, finding: Finding, severity_id: int) -> AlertState:
    observers = dict(state.observers) if state else {}
    observer = finding.observer_id or "unknown"
    if observer not in observers and len(observers) >= DEFAULT_LIMITS.alert_observers_max:
        observer = _FURTHER_OBSERVERS
    observers[observer] = observers.get(observer, 0) + 1
    active = set(state.active) if state else set()
    return AlertState(
        applied=_applied(state, finding.origin),
        count=(state.count if state else 0) + 1,
        first_us=min(state.first_us, finding.time_us) if state else finding.time_us,
        last_us=max(state.last_us, finding.time_us) if state else finding.time_us,
        observers=observers,
        active=tuple(sorted(active | {observer})),
        severity_id=max(state.severity_id, severity_id) if state else severity_id,
        raised=(state is not None and state.raised) or not finding.known,
        closed=state.closed if state else False,
        resolved_us=None,
        resolved_by=None,
        written_count=state.written_count if state else 0,
        written_us=state.written_us if state else 0,
        repeats=0,
        last=finding_fields(finding),
        suppressed_by=None,
    )


def _written(
    state: AlertState, activity: Activity, time_us: int, outputs: list[Output], rules: AlertRules
) -> tuple[AlertState, list[Output]]:
    state = replace(state, written_count=state.count, written_us=time_us)
    if activity is Activity.CLOSE:
        status = Status.RESOLVED
    elif state.suppressed_by is not None:
        status = Status.SUPPRESSED
    else:
        status = Status.NEW if activity is Activity.CREATE else Status.IN_PROGRESS
    record = alert_record(
        finding_of(state.last),
        activity=activity,
        status=status,
        time_us=time_us,
        severity_id=state.severity_id,
        count=state.count,
        seen_us=(state.first_us, state.last_us),
        observers=len(state.observers),
        active=len(state.active),
        repeats=state.repeats,
        resolved_by=state.resolved_by if activity is Activity.CLOSE else None,
        suppressed_by=state.suppressed_by,
        version=rules.version,
    )
    return state, [*outputs, record]


def _applied(state: AlertState | None, origin: Origin) -> dict[str, int]:
    return (dict(state.applied) if state else {}) | {f"{origin.topic}/{origin.partition}": origin.offset}


def _was_applied(state: AlertState, origin: Origin) -> bool:
    return origin.offset <= state.applied.get(f"{origin.topic}/{origin.partition}", -1)
