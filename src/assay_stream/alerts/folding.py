"""Folding: if one record raises more alerts than the limit, the excess becomes one alert.

Rules:

1. The first ``alerts_per_record_max`` alerts of each severity are written individually and the rest are folded, so that
   many minor alerts cannot hide a severe one.
2. A folded alert counts its members by severity and names the most severe. It is written at the end of the record
   (``finding_topic.FloodEnd``) and paced like any other alert afterwards.
3. A member keeps its own state and writes nothing. It becomes an individual alert when its severity rises, or when it
   recurs after the folded alert was closed, if the record that shows it has room.
4. A folded alert stays open while one of its members does.
5. Suppressed alerts are not folded, since they are written as suppressed.
6. Shadowed names are folded by the newcomer's list and their group of names, which is in one partition however many
   there are: a fold of each group, and as many individual alerts in all groups as of other findings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from assay_stream.alerts.life_cycle import Suppressions, apply_finding, covering, tick, write_again
from assay_stream.alerts.reasons import has_told, takes_part, with_carried_over, with_part
from assay_stream.alerts.record_counts import RecordCounts
from assay_stream.alerts.rules import AlertRules
from assay_stream.alerts.state import counted, is_acknowledged, is_closed_by_hand, was_applied, without
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.alert_state import AlertState
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import KINDS, Kind
from assay_stream.model.record import Output
from assay_stream.model.suppression import covering_rule


@dataclass(slots=True)
class Folding:
    """What a finding changes.

    Args:
        outputs: alerts to write, in order.
        alerts: states of alerts, by uid.
        counts: how many alerts the records of its server began, ``None`` where that is as it was.
    """

    outputs: list[Output] = field(default_factory=list)
    alerts: dict[str, AlertState] = field(default_factory=dict)
    counts: RecordCounts | None = None


def find(
    state_of: Callable[[str], AlertState | None],
    counts: RecordCounts,
    finding: Finding,
    rules: AlertRules,
    suppressions: Suppressions,
    *,
    place: str,
    lead: str | None = None,
) -> Folding:
    """Count a finding on its alert, or on the alert that speaks for it.

    Args:
        state_of: the state of an alert, by uid.
        counts: what the latest records of its server began; changed in place.
        suppressions: the suppression rules in force for the finding's server.
        place: what its alert is folded by.
        lead: the open alert about the same definition, if there is one.
    """
    uid = finding.uid()
    finding = with_carried_over(_without_suppressed(finding, suppressions), state_of)
    known = state_of(uid)
    if finding.known and (known is None or not known.raised):
        # What else is wrong with a definition that returns speaks for itself, whichever was read first.
        finding = replace(finding, also=())
    step = Folding()
    fold = None
    if known is not None and was_applied(known, finding.origin):
        return step
    if known is not None and known.part_of is not None:
        if _find_part(step, state_of, known, finding, rules, suppressions):
            return step
        known = released(known)
    if known is not None:
        known, step.outputs = tick(known, finding.time_us, rules, suppressions)
        fold = None if known.fold is None else state_of(known.fold)
    if known is not None and known.fold is not None and fold is None:
        known = released(known)
    if known is None or known.fold is None or fold is None:
        _find_alone(step, state_of, counts, known, finding, rules, suppressions, place=place, lead=lead)
        return step
    fold_uid = known.fold
    fold, closing = tick(fold, finding.time_us, rules, suppressions)
    step.outputs += closing
    step.alerts[fold_uid] = fold
    own = released(known)
    if fold.closed:
        _find_alone(step, state_of, counts, own, finding, rules, suppressions, place=place, was=known)
        return step
    alone, written = apply_finding(own, finding, rules, suppressions)
    graver = alone.severity_id > known.severity_id
    if written and graver and _may_begin(counts, alone, finding, suppressions, place):
        step.alerts[fold_uid] = without_member(fold, known, None, finding.time_us)
        _find_alone(step, state_of, counts, own, finding, rules, suppressions, place=place)
        return step
    member = counted(known, finding, rules.severity(finding))
    step.alerts[uid] = member
    step.alerts[fold_uid] = with_member(fold, known, member, finding, place)
    return step


def _without_suppressed(finding: Finding, suppressions: Suppressions) -> Finding:
    about = ((label, replace(finding, kind=Kind(label.partition(":")[0]), also=())) for label in finding.also)
    left = tuple(label for label, other in about if covering_rule(suppressions, other, finding.time_us) is None)
    return replace(finding, also=left) if left != finding.also else finding


def _find_part(
    step: Folding,
    state_of: Callable[[str], AlertState | None],
    known: AlertState,
    finding: Finding,
    rules: AlertRules,
    suppressions: Suppressions,
) -> bool:
    """Count a finding on a part of an alert; ``False`` where that has closed and does not speak for it any more."""
    lead_uid = str(known.part_of)
    lead = state_of(lead_uid)
    if lead is None:
        return False
    lead, closing = tick(lead, finding.time_us, rules, suppressions)
    step.outputs += closing
    step.alerts[lead_uid] = lead
    member = counted(known, finding, rules.severity(finding))
    if not lead.closed:
        _join(step, lead_uid, lead, member, rules, suppressions)
        return True
    if is_closed_by_hand(lead) and member.severity_id <= lead.severity_id:
        step.alerts[finding.uid()] = member
        return True
    return False


def _join(
    step: Folding, lead_uid: str, lead: AlertState, member: AlertState, rules: AlertRules, suppressions: Suppressions
) -> None:
    """Make a finding a reason of another alert, and write that where it says more, or is graver, than before."""
    new = with_part(lead, member)
    is_graver = new.severity_id > lead.severity_id
    if lead.fold is None and (is_graver or not (has_told(lead, member) or is_acknowledged(lead))):
        said = without(new.triage, "acknowledged_by") if is_graver else new.triage
        new, written = write_again(replace(new, triage=said), member.last.time_us, rules, suppressions)
        step.outputs += written
    step.alerts[lead_uid] = new
    step.alerts[member.last.uid()] = member


def _may_begin(
    counts: RecordCounts, alone: AlertState, finding: Finding, suppressions: Suppressions, place: str
) -> bool:
    is_covered = covering_rule(suppressions, finding, finding.time_us) is not None
    return not is_covered and counts.has_room(place, alone.severity_id)


def _find_alone(
    step: Folding,
    state_of: Callable[[str], AlertState | None],
    counts: RecordCounts,
    known: AlertState | None,
    finding: Finding,
    rules: AlertRules,
    suppressions: Suppressions,
    *,
    place: str,
    was: AlertState | None = None,
    lead: str | None = None,
) -> None:
    """Count a finding on an alert of its own, join that to one about the same definition, or fold it.

    It is folded where its record has begun enough of them.
    """
    uid = finding.uid()
    alone, written = apply_finding(known, finding, rules, suppressions)
    begins = bool(written) and (known is None or not known.raised or known.closed)
    if not begins or covering_rule(suppressions, finding, finding.time_us) is not None:
        step.alerts[uid] = alone
        step.outputs += written
        return
    about_same = None if lead is None or lead == uid else state_of(lead)
    if lead is not None and about_same is not None:
        about_same, closing = tick(about_same, finding.time_us, rules, suppressions)
        step.outputs += closing
        step.alerts[lead] = about_same
        member = replace(alone, part_of=lead, reported=False, written_count=0 if known is None else known.written_count)
        if takes_part(about_same, member) and covering(about_same, suppressions, finding.time_us) is None:
            _join(step, lead, about_same, member, rules, suppressions)
            return
    step.counts = counts
    if counts.has_room(place, alone.severity_id):
        counts.count(place, alone.severity_id)
        step.alerts[uid] = alone
        step.outputs += written
        return
    fold_uid = folded_finding(finding, place).uid() if was is None else str(was.fold)
    member = replace(alone, fold=fold_uid, reported=False, written_count=0 if known is None else known.written_count)
    fold = step.alerts.get(fold_uid) or state_of(fold_uid)
    step.alerts[uid] = member
    step.alerts[fold_uid] = with_member(fold, was, member, finding, place)
    counts.touch(place, fold_uid)


def folded_finding(finding: Finding, place: str) -> Finding:
    return Finding(
        kind=Kind.ALERTS_FOLDED,
        server_id=finding.server_id,
        observer_id=finding.observer_id,
        time_us=finding.time_us,
        origin=finding.origin,
        snapshot_id=finding.snapshot_id,
        reason=place,
    )


def with_member(
    fold: AlertState | None, was: AlertState | None, member: AlertState, finding: Finding, place: str
) -> AlertState:
    about = folded_finding(finding, place if fold is None else str(fold.last.reason))
    new = counted(fold, about, member.severity_id)
    if fold is None or fold.closed:
        # It is written where the record ends; where no end stands, an interval after its beginning.
        new = replace(new, written_us=finding.time_us)
    held: dict[str, Any] = {"by_severity": {}, "most_severe": [], "open": 0}
    if fold is not None:
        held |= fold.folded or {}
    if was is None:
        level = str(member.severity_id)
        held["by_severity"] = held["by_severity"] | {level: held["by_severity"].get(level, 0) + 1}
        name = finding.tool_name or finding.item_name
        shown = [member.severity_id, finding.kind.value, name, finding.uid()]
        held["most_severe"] = _most_severe([*held["most_severe"], shown])
        held["due"] = True
    held["due"] = held.get("due", False) or (fold is not None and fold.closed)
    held["open"] += _stands(member) - _stands(was)
    return replace(new, folded=held)


def without_member(fold: AlertState, was: AlertState, now: AlertState | None, time_us: int) -> AlertState:
    """Return a folded alert one of whose members has ended, or left it."""
    held = fold.folded or {}
    still_open = held["open"] - _stands(was) + _stands(now)
    new = replace(fold, folded=held | {"open": still_open})
    if still_open or not _stands(was) or new.resolved_us is not None:
        return new
    reason = "no_longer_offered" if now is None else now.resolved_by
    return replace(new, active=(), resolved_us=max(time_us, new.last_us), resolved_by=reason)


def released(member: AlertState) -> AlertState:
    """Return a member, or a part, as an alert of its own that is closed, or was never written."""
    if member.written_count:
        return replace(member, fold=None, part_of=None, closed=True)
    return replace(member, fold=None, part_of=None, raised=False, closed=False, reported=False)


def _stands(member: AlertState | None) -> int:
    return int(member is not None and member.resolved_us is None and KINDS[member.last.kind].lasts)


def _most_severe(members: list[list[Any]]) -> list[list[Any]]:
    ordered = sorted(
        {member[3]: member for member in members}.values(), key=lambda one: (-one[0], one[1], one[2] or "", one[3])
    )
    return ordered[: DEFAULT_LIMITS.folded_named_max]
