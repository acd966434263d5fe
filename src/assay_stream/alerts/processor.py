"""The processor of the alert stage: findings, ticks and acts of people in, alerts and changed states out.

Each state names the last record of the finding topic that it includes. A record that is read again after a crash skips
the states that already include it.

1. Acknowledged, an alert is quiet until its severity rises, it closes, or it recurs after it closed.
2. A manually closed alert reopens when its condition clears and recurs, or when severity rises.
3. A manually reopened alert stays open until its condition clears again or it is closed manually.
4. An assignment and a comment change nothing else. An act that changes nothing is not written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from assay_stream.alerts.folding import Found, RecordCounts, without_member
from assay_stream.alerts.life_cycle import (
    Suppressions,
    apply_resolution,
    settles_at_once,
    tick,
    was_applied,
    with_origin,
    with_part,
    without,
    write_again,
    write_folded,
)
from assay_stream.alerts.remembered import Alerts, Changes, names_key, records_key, rules_key
from assay_stream.alerts.rules import AlertRules
from assay_stream.alerts.shadowing import Shadow, is_claimed, shadows, shadows_beyond, with_claim
from assay_stream.model.alert import Activity
from assay_stream.model.alert_state import AlertState, Triage
from assay_stream.model.finding import Finding
from assay_stream.model.finding_topic import (
    LIST_MARK,
    AlertAct,
    Entry,
    FloodEnd,
    NameClaim,
    Resolution,
    Suppression,
    Tick,
    decode_entry,
    name_group,
)
from assay_stream.model.kinds import SHADOWING_REASONS, Kind
from assay_stream.model.record import Origin, Output, Record, set_aside_error
from assay_stream.model.rejected import refusal

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


def process(alerts: Alerts, record: Record) -> list[Output]:
    """Apply one record of the finding topic.

    Args:
        alerts: the state of the record's partition; it is changed. A record that is set aside changes nothing.

    Raises:
        IntegrityError: ``unknown_finding``.
    """
    alerts.names_left_out = 0
    if record.set_aside:
        return refusal(record, set_aside_error())
    return apply_entry(alerts, decode_entry(record.value), place=record.origin)


def apply_entry(alerts: Alerts, entry: Entry, *, place: Origin) -> list[Output]:
    step = _Step(alerts, place, entry.time_us)
    match entry:
        case Finding():
            step.find(entry)
        case Resolution():
            step.resolve(entry)
        case AlertAct():
            step.act(entry)
        case FloodEnd():
            step.end_flood(entry)
        case NameClaim():
            step.claim(entry)
        case Suppression():
            key = rules_key(place.partition, entry.rule.server_id)
            kept = {name: rule for name, rule in alerts.other(key).items() if name != entry.rule.id}
            step.states[key] = kept | ({entry.rule.id: entry.rule} if entry.is_set else {})
        case Tick():
            for uid in alerts.due.by(entry.time_us):
                known = step.alert_before(uid)
                if known is None:
                    step.forget(uid)
                else:
                    step.note(uid, *tick(known, entry.time_us, alerts.rules, step.rules_for(known.last.server_id)))
    alerts.keep(step.states)
    return step.outputs


class _Step(Changes):
    """The effects of one record, by its kind."""

    def find(self, finding: Finding, group: str | None = None, since_us: int = 0) -> None:
        """Count a finding; one about a name by the name's group, and the time of the list that brought it."""
        uid = finding.uid()
        if self.alert(uid) is not None and self.alert_before(uid) is None:
            return
        key = records_key(finding.server_id, group)
        counts = RecordCounts(self.states.get(key) or self._alerts.other(key), group)  # type: ignore[arg-type]
        place = str(finding.origin) if group is None else f"{group}{LIST_MARK}{since_us}"
        if Found(self, counts, finding, place=place).counts_changed:
            self.states[key] = dict(counts.as_json())

    def end_flood(self, end: FloodEnd) -> None:
        """Write the folded alerts that the records of a server changed."""
        for uid in RecordCounts(self._alerts.other(records_key(end.server_id, end.group)), end.group).touched():
            known = self.alert_before(uid)
            if known is not None:
                self.note(uid, *write_folded(known, end.time_us, self.rules, self.rules_for(end.server_id)))

    def resolve(self, resolution: Resolution) -> None:
        rules, in_force = self.rules, self.rules_for(resolution.server_id)
        for uid in resolution.uids:
            known = self.alert_before(uid)
            if known is None:
                continue
            new, outputs = apply_resolution(known, resolution, rules, in_force)
            self.note(uid, new, outputs)
            fold = None if known.fold is None else self.alert(known.fold)
            if known.fold is not None and fold is not None:
                self.note(known.fold, without_member(fold, known, new, resolution.time_us))
            lead = None if known.part_of is None else self.alert(known.part_of)
            if known.part_of is not None and lead is not None and uid in (lead.parts or {}):
                lead = with_part(lead, new)
                closing = tick(lead, resolution.time_us, rules, in_force) if settles_at_once(lead) else (lead, [])
                self.note(known.part_of, *closing)

    def act(self, act: AlertAct) -> None:
        known = self.alert(act.alert)
        uid = act.alert if known is None or known.part_of is None else known.part_of
        known = self.alert_before(uid)
        if known is None:
            return
        new, outputs = apply_act(known, act, self.rules, self.rules_for(act.server_id))
        self.note(uid, new, outputs)
        fold = None if known.fold is None else self.alert(known.fold)
        if known.fold is not None and fold is not None:
            self.note(known.fold, without_member(fold, known, new, act.time_us))

    def claim(self, claim: NameClaim) -> None:
        key = names_key(self._place.partition, claim.skeleton())
        stored = self._alerts.other(key)
        if self._place.offset <= stored.get("through", -1):
            return
        new = with_claim(stored, claim)
        before, after = shadows(stored), shadows(new)
        ended = set(before)
        if stored.get("left_out"):
            # It may have been left out before; if no alert was raised for it, nothing ends.
            about = claim.server_id, claim.tool_name, claim.full
            ended |= {Shadow(*about, reason) for reason in SHADOWING_REASONS}
        if new["left_out"] > stored.get("left_out", 0):
            self._alerts.names_left_out = new["left_out"]
            after = shadows_beyond(new, claim) | after
        since_us = {(entry["server_id"], entry["tool_name"]): entry["since_us"] for entry in new["names"]}
        for shadow in sorted(after.keys() - before.keys(), key=_order_of):
            since = since_us.get((shadow.server_id, shadow.tool_name), claim.time_us)
            self.find(shadow.finding(after[shadow], claim), name_group(claim.tool_name), since)
        for shadow in sorted(ended - after.keys(), key=_order_of):
            end = Resolution(
                server_id=shadow.server_id,
                uids=(shadow.uid(),),
                reason="decided" if claim.approved else "no_longer_offered",
                observer_id=None,
                time_us=claim.time_us,
                origin=claim.origin,
            )
            self.resolve(end)
        # After the alerts: if a crash comes between, the claim is read again and finds them written.
        # A name that nobody claims is forgotten: a withdrawal that is read again finds nothing to end.
        self.states[key] = new | {"through": self._place.offset} if is_claimed(new) else None


def _order_of(shadow: Shadow) -> tuple[str, str, str, str]:
    return shadow.server_id, shadow.tool_name, shadow.full, shadow.reason


def partition_key(finding: Mapping[str, Any]) -> str:
    """Return the finding topic's key for a finding, given as in that topic or in the state of its alert."""
    if finding["kind"] == Kind.TOOL_SHADOWED.value:
        return name_group(finding["tool_name"])
    group, mark, _ = str(finding.get("reason")).partition(LIST_MARK)
    if finding["kind"] == Kind.ALERTS_FOLDED.value and mark:
        return group
    server_id: str = finding["server_id"]
    return server_id
