"""The state of one alert, and how a finding is counted on it.

The input record that a finding names identifies it. The latest ``alert_origins_max`` offsets of each partition are
remembered; anything older counts as applied.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.alert_state import UNNAMED_OBSERVER, AlertState, Triage
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin

FURTHER_OBSERVERS = ""
"""Counts the observers beyond the limit; no observer can have this name."""

DECIDED = "decided"
"""End reason of an alert that an operator decided on."""

_RETURNING = (Kind.TOOL_ADDED, Kind.TOOL_CHANGED)
_SEVERITY_HIGH = 4


def _is_news(finding: Finding, severity_id: int) -> bool:
    """Return True if a finding raises an alert that was never written.

    Having been shown before does not make a definition of high severity known: only an alert or an approval does. Two
    versions side by side are no return, unless the text makes one of them high.
    """
    if finding.approved:
        return False
    if not finding.known:
        return True
    if severity_id < _SEVERITY_HIGH:
        return False
    return not finding.offered_elsewhere or any(level >= _SEVERITY_HIGH for _, level, _ in finding.indicators)


def _only_returns(state: AlertState, finding: Finding, severity_id: int) -> bool:
    """Return True if a minor alert was closed, and its subject is merely shown again."""
    return state.closed and finding.kind in _RETURNING and severity_id < _SEVERITY_HIGH


def counted(state: AlertState | None, finding: Finding, severity_id: int) -> AlertState:
    """Return the state with one more finding.

    Args:
        state: ``None`` for a new alert.
    """
    observer = finding.observer_id or UNNAMED_OBSERVER
    if state is None:
        return AlertState(
            applied=with_origin(None, finding.origin),
            count=1,
            first_us=finding.time_us,
            last_us=finding.time_us,
            observers={observer: 1},
            active=(observer,),
            severity_id=severity_id,
            raised=_is_news(finding, severity_id),
            closed=False,
            reported=False,
            resolved_us=None,
            resolved_by=None,
            written_count=0,
            written_us=0,
            repeats=0,
            last=finding,
        )
    observers = dict(state.observers)
    if observer not in observers and len(observers) >= DEFAULT_LIMITS.alert_observers_max:
        observer = FURTHER_OBSERVERS
    observers[observer] = observers.get(observer, 0) + 1
    new = replace(
        state,
        applied=with_origin(state, finding.origin),
        count=state.count + 1,
        first_us=min(state.first_us, finding.time_us),
        last_us=max(state.last_us, finding.time_us),
        observers=observers,
        active=tuple(sorted({*state.active, observer})),
        severity_id=max(state.severity_id, severity_id),
        raised=state.raised or _is_news(finding, severity_id),
        last=finding,
    )
    if finding.approved or (finding.known and _only_returns(state, finding, new.severity_id)):
        return new
    if is_closed_by_hand(state) and new.severity_id <= state.severity_id:
        return new
    if state.closed:
        # It is looked at anew: what else was found has ended, and nobody has said anything of it yet.
        standing = {uid: part for uid, part in (state.parts or {}).items() if part["over_us"] is None}
        new = replace(new, parts=standing or None, triage=None)
    return replace(
        new, closed=False, reported=state.reported and not state.closed, resolved_us=None, resolved_by=None, repeats=0
    )


def is_closed_by_hand(state: AlertState) -> bool:
    """Return True if a person closed it, and its condition has not cleared since."""
    return state.closed and "closed" in (state.triage or {})


def without(triage: Triage | None, *names: str) -> Triage | None:
    """Return the triage without some of its parts."""
    left = {name: said for name, said in (triage or {}).items() if name not in names}
    return cast("Triage", left) if left else None


def is_acknowledged(state: AlertState) -> bool:
    """Return True if it was acknowledged: then only a higher severity or its end is written."""
    return "acknowledged_by" in (state.triage or {})


def with_origin(state: AlertState | None, origin: Origin, *, is_end: bool = False) -> dict[str, tuple[int, ...]]:
    """Return the applied records, with one more."""
    applied = dict(state.applied) if state else {}
    place = _place(origin, is_end)
    offsets = sorted({*applied.get(place, ()), origin.offset})
    applied[place] = tuple(offsets[-DEFAULT_LIMITS.alert_origins_max :])
    return applied


def _place(origin: Origin, is_end: bool) -> str:
    return f"{'end/' if is_end else ''}{origin.topic}/{origin.partition}"


def was_applied(state: AlertState, origin: Origin, *, is_end: bool = False) -> bool:
    """Return True if the consequences of a record were applied before."""
    offsets = state.applied.get(_place(origin, is_end), ())
    if len(offsets) == DEFAULT_LIMITS.alert_origins_max and origin.offset < offsets[0]:
        return True
    return origin.offset in offsets
