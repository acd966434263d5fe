"""Reasons: whatever is found about one definition is one alert.

1. The first finding about a definition that raises an alert makes that alert: its lead. Another kind of finding about
   the same definition joins it while it is open: the lead lists it among its reasons and has the highest severity.
2. A part keeps its own state, and writes nothing. The lead is open as long as it or one of its parts is.
3. A part whose lead has closed makes an alert of its own with its next finding, unless an operator closed the lead.
4. A suppression rule must cover both or neither. A folded alert takes no part more severe than itself.
5. A changed definition is as severe as it would be in a first list, whatever became of the alert about the older one.
   Carried-over indicators are known only if an alert of another kind reported this very definition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.alert import reasons_of
from assay_stream.model.alert_state import AlertPart, AlertState, PinPart
from assay_stream.model.finding import PIN_FIELDS, Finding
from assay_stream.model.kinds import Kind

_ABOUT_A_DEFINITION = frozenset(
    {
        Kind.TOOL_ADDED,
        Kind.TOOL_CHANGED,
        Kind.TOOL_RENAMED,
        Kind.RISK_LEVEL_CHANGED,
        Kind.CONTRACT_VIOLATION,
        Kind.PIN_MISMATCH,
        Kind.UNPINNED_TOOL,
        Kind.SIGNATURE_INVALID,
        Kind.SIGNATURE_MISSING,
        Kind.KEY_CHANGED,
        Kind.KEY_REVOKED,
    }
)

AlertSubject = tuple[str, str, str]
"""Server, the name under which the tool is offered, and the full digest of its definition."""


def subject_of(finding: Finding) -> AlertSubject | None:
    """Return the definition that a finding is about, ``None`` for none."""
    name = finding.renamed_to or finding.tool_name
    if finding.kind not in _ABOUT_A_DEFINITION or name is None or finding.after is None:
        return None
    return finding.server_id, name, finding.after


def with_carried_over(finding: Finding, state_of: Callable[[str], AlertState | None]) -> Finding:
    """Add the carried-over indicators to a finding, unless they were reported in another alert."""
    if not finding.carried_over:
        return finding
    subject, offered_as = finding.kind.value.rpartition("_")[0], finding.renamed_to or finding.tool_name
    kinds = (kind for kind in Kind if kind.value in (f"{subject}_added", f"{subject}_changed", f"{subject}_renamed"))
    uids = (replace(finding, kind=kind, tool_name=offered_as).uid() for kind in kinds)
    others = (state_of(uid) for uid in uids if uid != finding.uid())
    gravest = max(level for _, level, _ in finding.carried_over)
    is_reported = any(other is not None and other.raised and other.severity_id >= gravest for other in others)
    own = state_of(finding.uid())
    if is_reported and (own is None or not own.raised):
        return replace(finding, carried_over=())
    indicators = tuple(dict.fromkeys((*finding.indicators, *finding.carried_over)))
    return replace(finding, indicators=indicators, carried_over=())


class Leads:
    """The open alerts by the definition that they are about. It follows from the states."""

    def __init__(self) -> None:
        self._subjects: dict[str, AlertSubject] = {}
        self._leads: dict[AlertSubject, set[str]] = {}

    def note(self, states: Mapping[str, Any]) -> None:
        """Update the index from changed states."""
        for uid, state in states.items():
            is_lead = isinstance(state, AlertState) and state.raised and not state.closed and state.part_of is None
            subject = subject_of(state.last) if is_lead else None
            was = self._subjects.pop(uid, None)
            if was is not None and was != subject:
                self._leads[was].discard(uid)
                if not self._leads[was]:
                    del self._leads[was]
            if subject is not None:
                self._subjects[uid] = subject
                self._leads.setdefault(subject, set()).add(uid)

    def of(self, finding: Finding) -> str | None:
        """Return the open alert about the definition of a finding, ``None`` for none."""
        subject = subject_of(finding)
        leads = () if subject is None else self._leads.get(subject, ())
        return min(leads, default=None)


def takes_part(lead: AlertState, member: AlertState) -> bool:
    """Return True if a finding may join an alert about the same definition."""
    if lead.closed or lead.part_of is not None or len(lead.parts or {}) >= DEFAULT_LIMITS.alert_parts_max:
        return False
    return lead.fold is None or member.severity_id <= lead.severity_id


def with_part(lead: AlertState, member: AlertState) -> AlertState:
    """Return an alert with the current state of one of its parts."""
    finding = member.last
    part: AlertPart = {"label": finding.label(), "severity_id": member.severity_id, "over_us": member.resolved_us}
    if finding.kind in (Kind.PIN_MISMATCH, Kind.UNPINNED_TOOL):
        said = {name: value for name in PIN_FIELDS if (value := getattr(finding, name)) is not None}
        part["pin"] = cast("PinPart", said)
    return replace(
        lead,
        parts=(lead.parts or {}) | {finding.uid(): part},
        severity_id=max(lead.severity_id, member.severity_id),
        last_us=max(lead.last_us, finding.time_us),
    )


def has_told(lead: AlertState, member: AlertState) -> bool:
    """Return True if the records of an alert already name a finding."""
    return member.last.label() in reasons_of(lead)


def over_us(state: AlertState) -> int | None:
    """Return since when neither an alert nor a part of it holds any more, ``None`` while one does."""
    ends = [state.resolved_us, *(part["over_us"] for part in (state.parts or {}).values())]
    known = [end for end in ends if end is not None]
    return max(known) if len(known) == len(ends) else None
