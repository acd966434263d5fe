"""The processor of the alert stage: findings, ticks and acts of people in, alerts and changed states out.

Each state names the last record of the finding topic that it includes. A record that is read again after a crash skips
the states that already include it.

1. Acknowledged, an alert is quiet until its severity rises, it closes, or it recurs after it closed.
2. A manually closed alert reopens when its condition clears and recurs, or when severity rises.
3. A manually reopened alert stays open until its condition clears again or it is closed manually.
4. An assignment and a comment change nothing else. An act that changes nothing is not written.

Folding: the changes of one release become one alert, and so does what one record raises beyond the limit.

1. Changes of several definitions that one list shows are folded by that list, whoever observes it: an alert about the
   release has the content of its most severe part. Of everything else, the first ``alerts_per_record_max`` alerts of
   each severity are written individually and the rest are folded, so that many minor alerts cannot hide a severe one.
2. A folded alert counts its members by severity and names the most severe. It is written at the end of the record
   (``FloodEnd``) and paced like any other alert afterwards.
3. A member keeps its own state and writes nothing. It becomes an individual alert when its severity rises, or when it
   recurs after the folded alert was closed, if the record that shows it has room. If a person closed the folded alert,
   it recurs only after it has ended.
4. A folded alert stays open while one of its members does.
5. Suppressed alerts are not folded, since they are written as suppressed.
6. Shadowed names are folded by the newcomer's list and their group of names, which is in one partition however many
   there are: a fold of each group, and as many individual alerts in all groups as of other findings.
7. What a person acknowledged or closed is open again when a member joins that is more severe, or high.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from assay_stream.alerts.life_cycle import (
    DECIDED,
    SEVERITY_HIGH,
    apply_act,
    apply_finding,
    apply_resolution,
    counted,
    covering,
    forgotten_us,
    is_acknowledged,
    is_closed_by_hand,
    takes_part,
    tick,
    was_applied,
    with_carried_over,
    with_part,
    without,
    written,
    written_again,
)
from assay_stream.alerts.remembered import Alerts, RecordCounts, Remembered, names_key, records_key, rules_key
from assay_stream.alerts.rules import AlertRules
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.alert import reasons_of
from assay_stream.model.alert_state import AlertState
from assay_stream.model.finding import (
    ANY_SERVER,
    LIST_MARK,
    AlertAct,
    Entry,
    Finding,
    FloodEnd,
    NameClaim,
    Resolution,
    Suppression,
    Tick,
    alone_max,
    covering_rule,
    decode_entry,
    name_group,
)
from assay_stream.model.kinds import KINDS, SHADOWING_REASONS, Kind
from assay_stream.model.record import Origin, Output, Record, set_aside_error
from assay_stream.model.rejected import refusal
from assay_stream.registry.name_claims import Shadow, shadows, shadows_beyond, with_claim


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
            step.tick(entry)
    alerts.keep(step.states)
    return step.outputs


class _Step:
    """What one record changes, by its kind: alerts to write, in order, and states."""

    def __init__(self, alerts: Alerts, place: Origin, time_us: int) -> None:
        self.outputs: list[Output] = []
        self.states: dict[str, Remembered | None] = {}
        self.alerts, self._place, self._time_us = alerts, place, time_us

    def alert(self, uid: str) -> AlertState | None:
        """Return the state of an alert, including this record's changes so far; not one that is forgotten."""
        if isinstance(changed := self.states.get(uid), AlertState):
            return changed
        found = self.alerts.alert(uid)
        end_us = None if found is None else forgotten_us(found, self.alerts.rules.pacing)
        return None if end_us is not None and end_us <= self._time_us else found

    def alert_before(self, uid: str) -> AlertState | None:
        """Return the state of an alert that does not include this record yet."""
        known = self.alert(uid)
        return None if known is None or (uid not in self.states and self._place.offset <= known.through) else known

    def rules_for(self, server_id: str) -> AlertRules:
        """Return the rules with the suppressions in force for a server, its own and those for every server."""
        keys = (rules_key(self._place.partition, server_id), rules_key(self._place.partition, ANY_SERVER))
        suppressions = [rule for key in keys for rule in self.alerts.other(key).values()]
        return replace(self.alerts.rules, suppressions=suppressions) if suppressions else self.alerts.rules

    def note(self, uid: str, new: AlertState, outputs: Iterable[Output] = ()) -> None:
        self.outputs += outputs
        if new != self.alert(uid):
            self.states[uid] = replace(new, through=self._place.offset)

    def find(self, finding: Finding, group: str | None = None, since_us: int = 0) -> None:
        """Count a finding; one about a name by the name's group, and the time of the list that brought it."""
        known = self.alert(finding.uid())
        if known is not None and self.alert_before(finding.uid()) is None:
            return
        key = records_key(finding.server_id, group)
        place = str(finding.origin) if group is None else f"{group}{LIST_MARK}{since_us}"
        stored = self.states.get(key) or self.alerts.other(key)
        record = RecordCounts(stored, place, alone_max(group))  # type: ignore[arg-type]
        _Found(self, finding, record).count(known)
        if record.is_changed:
            self.states[key] = {"records": record.records}

    def tick(self, now: Tick) -> None:
        for uid in self.alerts.due_by(now.time_us):
            known = self.alert_before(uid)
            if known is not None:
                self.note(uid, *tick(known, now.time_us, self.rules_for(known.last.server_id)))
            elif self.alert(uid) is None:
                self.states[uid] = None

    def end_flood(self, end: FloodEnd) -> None:
        """Write the folded alerts that the records of a server changed, if they gained a member or reopened."""
        records = self.alerts.other(records_key(end.server_id, end.group)).get("records", ())
        for uid in sorted({uid for record in records for uid in record["folded"]}):
            known = self.alert_before(uid)
            if known is not None and not known.closed and (known.folded or {}).get("due"):
                self.note(uid, *written(known, end.time_us, self.rules_for(end.server_id)))

    def resolve(self, resolution: Resolution) -> None:
        rules = self.rules_for(resolution.server_id)
        for uid in (each for named in resolution.uids for each in self.alerts.ended_by(named)):
            known = self.alert_before(uid)
            if known is None:
                continue
            new, outputs = apply_resolution(known, resolution, rules)
            self.note(uid, new, outputs)
            self._end_member(known, new, resolution.time_us)
            lead = None if known.part_of is None else self.alert(known.part_of)
            if known.part_of is not None and lead is not None and uid in (lead.parts or {}):
                lead = with_part(lead, new)
                closing = tick(lead, resolution.time_us, rules) if lead.resolved_by == DECIDED else (lead, [])
                self.note(known.part_of, *closing)

    def act(self, act: AlertAct) -> None:
        known = self.alert(act.alert)
        uid = act.alert if known is None or known.part_of is None else known.part_of
        known = self.alert_before(uid)
        if known is not None:
            new, outputs = apply_act(known, act, self.rules_for(act.server_id))
            self.note(uid, new, outputs)
            self._end_member(known, new, act.time_us)

    def _end_member(self, was: AlertState, now: AlertState, time_us: int) -> None:
        fold = None if was.fold is None else self.alert(was.fold)
        if was.fold is not None and fold is not None:
            self.note(was.fold, without_member(fold, was, now, time_us))

    def claim(self, claim: NameClaim) -> None:
        key = names_key(self._place.partition, claim.skeleton())
        stored = self.alerts.other(key)
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
            self.alerts.names_left_out = new["left_out"]
            after = shadows_beyond(new, claim) | after
        since_us = {(entry["server_id"], entry["tool_name"]): entry["since_us"] for entry in new["names"]}
        for shadow in sorted(after.keys() - before.keys()):
            since = since_us.get((shadow.server_id, shadow.tool_name), claim.time_us)
            self.find(shadow.finding(after[shadow], claim), name_group(claim.tool_name), since)
        for shadow in sorted(ended - after.keys()):
            end = Resolution(
                server_id=shadow.server_id,
                uids=(shadow.uid(),),
                reason=DECIDED if claim.approved else "no_longer_offered",
                observer_id=None,
                time_us=claim.time_us,
                origin=claim.origin,
            )
            self.resolve(end)
        # After the alerts: if a crash comes between, the claim is read again and finds them written.
        # A name that nobody claims is forgotten: a withdrawal that is read again finds nothing to end.
        self.states[key] = new | {"through": self._place.offset} if new["names"] or new["left_out"] else None


class _Found:
    """A finding counted: on its own alert, on the one that it joins, or on the fold of its record."""

    def __init__(self, step: _Step, finding: Finding, record: RecordCounts) -> None:
        self._step, self._record, self._uid = step, record, finding.uid()
        self._rules = step.rules_for(finding.server_id)
        if finding.also:
            about = ((label, replace(finding, kind=Kind(label.partition(":")[0]), also=())) for label in finding.also)
            finding = replace(finding, also=tuple(label for label, other in about if not self._covers(other)))
        self._finding = with_carried_over(finding, step.alert)

    def count(self, known: AlertState | None) -> None:
        """Count the finding, by how its alert relates to a lead or fold, and by the state of that."""
        if self._finding.known and (known is None or not known.raised):
            # What else is wrong with a definition that returns speaks for itself, whichever was read first.
            self._finding = replace(self._finding, also=())
        finding, rules = self._finding, self._rules
        speaker_uid = None if known is None else known.part_of or known.fold
        if known is None or speaker_uid is None:
            if known is None or not was_applied(known, finding.origin):
                self._count_alone(self._ticked(self._uid), joins=True)
            return
        if was_applied(known, finding.origin):
            return
        speaker = self._ticked(speaker_uid)
        if speaker is None:
            self._count_alone(released(known), joins=True)
            return
        member = counted(known, finding, rules.severity(finding))
        standing = "open" if not speaker.closed else "closed_by_hand" if is_closed_by_hand(speaker) else "closed"
        match "member" if known.part_of is None else "part", standing:
            case "part", "open":
                self._join(speaker_uid, speaker, member)
            case "part", "closed_by_hand" if member.severity_id <= speaker.severity_id:
                self._step.note(self._uid, member)
            case "member", "open":
                self._fold(speaker_uid, speaker, known, member)
            case "member", "closed_by_hand" if known.resolved_us is None and member.severity_id <= known.severity_id:
                self._step.note(self._uid, member)
            case "member", _:
                self._count_alone(released(known), was=known)
            case _:
                self._count_alone(released(known), joins=True)

    def _ticked(self, uid: str) -> AlertState | None:
        state = self._step.alert(uid)
        if state is not None:
            state, outputs = tick(state, self._finding.time_us, self._rules)
            self._step.note(uid, state, outputs)
        return state

    def _fold(self, fold_uid: str, fold: AlertState, known: AlertState, member: AlertState) -> None:
        """Count a finding of a member, which leaves its fold if it is graver and its record has room."""
        alone, outputs = apply_finding(released(known), self._finding, self._rules)
        is_graver = outputs and alone.severity_id > known.severity_id
        if is_graver and not self._covers(self._finding) and self._record.has_room(alone.severity_id):
            self._step.note(fold_uid, without_member(fold, known, None, self._finding.time_us))
            self._count_alone(released(known))
        else:
            self._step.note(self._uid, member)
            self._step.note(fold_uid, with_member(fold, known, member, self._finding, self._record.place))

    def _count_alone(self, known: AlertState | None, *, joins: bool = False, was: AlertState | None = None) -> None:
        """Count a finding on an alert of its own, join that to one about the same definition, or fold it.

        It is folded where its record has begun enough of them.

        Args:
            joins: whether it may join the lead.
            was: its earlier state as the member of a folded alert that has closed.
        """
        finding = self._finding
        alone, outputs = apply_finding(known, finding, self._rules)
        begins = bool(outputs) and (known is None or not known.raised or known.closed)
        if not begins or self._covers(finding):
            self._step.note(self._uid, alone, outputs)
            return
        silent = replace(alone, reported=False, written_count=0 if known is None else known.written_count)
        lead_uid = self._step.alerts.lead_of(finding) if joins else None
        if lead_uid is not None and lead_uid != self._uid and (lead := self._ticked(lead_uid)) is not None:
            member, is_heard = replace(silent, part_of=lead_uid), self._open_release(lead) is not None
            if takes_part(lead, member, is_heard=is_heard) and covering(lead, self._rules, finding.time_us) is None:
                self._join(lead_uid, lead, member)
                return
        if finding.release is None and self._record.has_room(alone.severity_id):
            self._record.count(alone.severity_id)
            self._step.note(self._uid, alone, outputs)
            return
        fold_uid = folded_finding(finding, self._record.place).uid()
        if was is not None and finding.release is None:
            fold_uid = str(was.fold)
        was = was if was is not None and was.fold == fold_uid else None
        member, fold = replace(silent, fold=fold_uid), self._step.alert(fold_uid)
        self._step.note(self._uid, member)
        self._step.note(fold_uid, with_member(fold, was, member, finding, self._record.place))
        self._record.touch(fold_uid)

    def _join(self, lead_uid: str, lead: AlertState, member: AlertState) -> None:
        """Make a finding a reason of another alert, and write that one if it gained content or severity."""
        new, time_us = with_part(lead, member), member.last.time_us
        is_graver, is_told = new.severity_id > lead.severity_id, member.last.label() in reasons_of(lead)
        if lead.fold is None and (is_graver or not (is_told or is_acknowledged(lead))):
            said = without(new.triage, "acknowledged_by") if is_graver else new.triage
            new, outputs = written_again(replace(new, triage=said), time_us, self._rules)
            self._step.outputs += outputs
        elif is_graver and (release := self._open_release(lead)) is not None:
            release = with_graver_member(release, lead, new)
            self._step.note(str(lead.fold), *written_again(release, time_us, self._rules))
        self._step.note(lead_uid, new)
        self._step.note(self._uid, member)

    def _open_release(self, member: AlertState) -> AlertState | None:
        release = None if member.fold is None else self._step.alert(member.fold)
        return None if release is None or release.closed or release.last.release is None else release

    def _covers(self, finding: Finding) -> bool:
        return covering_rule(self._rules.suppressions, finding, finding.time_us) is not None


def folded_finding(finding: Finding, place: str) -> Finding:
    """Return the finding of a folded alert; of a release, with the content of one part."""
    if finding.release is not None:
        return replace(
            finding, kind=Kind.SERVER_CHANGED, reason=None, known=False, offered_elsewhere=False, carried_over=()
        )
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
    held: dict[str, Any] = {"by_severity": {}, "most_severe": [], "open": 0}
    about = folded_finding(finding, place)
    if fold is not None:
        held |= fold.folded or {}
        # Another observer may see the same change alone, or in another release.
        about = folded_finding(replace(finding, release=fold.last.release), str(fold.last.reason))
    if was is None:
        level = str(member.severity_id)
        held["by_severity"] = held["by_severity"] | {level: held["by_severity"].get(level, 0) + 1}
        name = _part_name(finding)
        shown = [member.severity_id, finding.kind.value, name, finding.uid()]
        held["most_severe"] = _most_severe([*held["most_severe"], shown])
        is_graver = fold is not None and member.severity_id >= min(fold.severity_id + 1, SEVERITY_HIGH)
        if fold is not None and is_graver:
            fold = replace(fold, triage=without(fold.triage, "acknowledged_by", "closed"))
        held["due"] = fold is None or not (is_acknowledged(fold) or is_closed_by_hand(fold))
    if fold is not None and fold.last.release is not None and held["most_severe"][0][3] != finding.uid():
        seen = {name: getattr(finding, name) for name in ("observer_id", "time_us", "origin", "snapshot_id")}
        about = replace(fold.last, **seen)
    new = counted(fold, about, member.severity_id)
    if fold is None or fold.closed:
        # It is written where the record ends; where no end stands, an interval after its beginning.
        new = replace(new, written_us=finding.time_us)
    held["due"] = held.get("due", False) or (fold is not None and fold.closed and not new.closed)
    held["open"] += _stands(member) - _stands(was)
    return replace(new, folded=held)


def _part_name(finding: Finding) -> str | None:
    return finding.tool_name or finding.item_name or ("(no name)" if finding.kind is Kind.TOOL_ADDED else None)


def with_graver_member(release: AlertState, was: AlertState, now: AlertState) -> AlertState:
    held = release.folded or {}
    counts = dict(held["by_severity"])
    for level, more in ((str(was.severity_id), -1), (str(now.severity_id), 1)):
        counts[level] = counts.get(level, 0) + more
    uid, name = now.last.uid(), _part_name(now.last)
    others = [row for row in held["most_severe"] if row[3] != uid]
    named = _most_severe([*others, [now.severity_id, now.last.kind.value, name, uid]])
    part = replace(now.last, release=release.last.release)
    return replace(
        release,
        severity_id=max(release.severity_id, now.severity_id),
        folded=held | {"by_severity": {level: count for level, count in counts.items() if count}, "most_severe": named},
        triage=without(release.triage, "acknowledged_by"),
        last=folded_finding(part, "") if named[0][3] == uid else release.last,
    )


def without_member(fold: AlertState, was: AlertState, now: AlertState | None, time_us: int) -> AlertState:
    held = fold.folded or {}
    still_open = held["open"] - _stands(was) + _stands(now)
    new = replace(fold, folded=held | {"open": still_open})
    if still_open or not _stands(was):
        return new
    # What a person closed is over: if it comes back, it is news.
    new = replace(new, triage=without(new.triage, "closed"))
    if new.resolved_us is not None:
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


def partition_key(finding: Mapping[str, Any]) -> str:
    """Return the finding topic's key for a finding, given as in that topic or in the state of its alert."""
    if finding["kind"] == Kind.TOOL_SHADOWED.value:
        return name_group(finding["tool_name"])
    group, mark, _ = str(finding.get("reason")).partition(LIST_MARK)
    if finding["kind"] == Kind.ALERTS_FOLDED.value and mark:
        return group
    server_id: str = finding["server_id"]
    return server_id
