"""Folding: the changes of one release become one alert, and so does what one record raises beyond the limit.

Rules:

1. Changes of several definitions that one list shows are folded by that list, whoever observes it: an alert about the
   release has the content of its most severe part. Of everything else, the first ``alerts_per_record_max`` alerts of
   each severity are written individually and the rest are folded, so that many minor alerts cannot hide a severe one.
2. A folded alert counts its members by severity and names the most severe. It is written at the end of the record
   (``finding_topic.FloodEnd``) and paced like any other alert afterwards.
3. A member keeps its own state and writes nothing. It becomes an individual alert when its severity rises, or when it
   recurs after the folded alert was closed, if the record that shows it has room. If a person closed the folded alert,
   it recurs only after it has ended.
4. A folded alert stays open while one of its members does.
5. Suppressed alerts are not folded, since they are written as suppressed.
6. Shadowed names are folded by the newcomer's list and their group of names, which is in one partition however many
   there are: a fold of each group, and as many individual alerts in all groups as of other findings.
7. What a person acknowledged or closed is open again when a member joins that is more severe, or high.

The table ``_ROUTES`` determines what a finding of a part or a member is counted on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from assay_stream.alerts.life_cycle import (
    SEVERITY_HIGH,
    Suppressions,
    apply_finding,
    counted,
    covering,
    has_told,
    is_acknowledged,
    is_closed_by_hand,
    takes_part,
    tick,
    was_applied,
    with_carried_over,
    with_part,
    without,
    write_again,
)
from assay_stream.alerts.remembered import Changes
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.alert_state import AlertRecords, AlertState
from assay_stream.model.finding import Finding
from assay_stream.model.finding_topic import SuppressionRule, alone_max, covering_rule
from assay_stream.model.kinds import KINDS, Kind


class RecordCounts:
    """How many alerts the latest records of one server raised, and which folded alerts they changed.

    Args:
        stored: result of ``as_json``, ``None`` for nothing yet.
        group: the group of names that they are about, if they are.
    """

    def __init__(self, stored: dict[str, Any] | None, group: str | None) -> None:
        self._alone_max = alone_max(group)
        self._records: dict[str, dict[str, Any]] = {
            entry["origin"]: {"raised": dict(entry["raised"]), "folded": list(entry["folded"])}
            for entry in (stored or {}).get("records", ())
        }

    def as_json(self) -> AlertRecords:
        return {
            "records": [
                {"origin": origin, "raised": counts["raised"], "folded": counts["folded"]}
                for origin, counts in self._records.items()
            ]
        }

    def has_room(self, place: str, severity_id: int) -> bool:
        raised = self._records.get(place, {}).get("raised", {})
        return bool(raised.get(str(severity_id), 0) < self._alone_max)

    def count(self, place: str, severity_id: int) -> None:
        raised = self._of(place)["raised"]
        raised[str(severity_id)] = raised.get(str(severity_id), 0) + 1

    def touch(self, place: str, uid: str) -> None:
        """Mark a folded alert as changed by a record, to be written at the record's end."""
        folded = self._of(place)["folded"]
        if uid not in folded and len(folded) < DEFAULT_LIMITS.alerts_per_record_max:
            folded.append(uid)

    def touched(self) -> list[str]:
        return sorted({uid for counts in self._records.values() for uid in counts["folded"]})

    def _of(self, place: str) -> dict[str, Any]:
        found = self._records.setdefault(place, {"raised": {}, "folded": []})
        while len(self._records) > DEFAULT_LIMITS.alert_records_max:
            del self._records[next(iter(self._records))]
        return found


class Found:
    """A finding counted: on its own alert, on the one that it joins, or on the fold of its record.

    Args:
        counts: counts of the latest records of its server; changed in place.
        place: key of the fold of its alert.
    """

    def __init__(self, step: Changes, counts: RecordCounts, finding: Finding, *, place: str) -> None:
        self.counts_changed = False
        self._step, self._counts, self._place, self._uid = step, counts, place, finding.uid()
        self._rules, self._suppressions = step.rules, step.rules_for(finding.server_id)
        known = step.alert(self._uid)
        finding = with_carried_over(_without_suppressed(finding, self._suppressions), step.alert)
        if finding.known and (known is None or not known.raised):
            # What else is wrong with a definition that returns speaks for itself, whichever was read first.
            finding = replace(finding, also=())
        self._finding = finding
        if known is None:
            self._count_alone(None, joins=True)
        elif not was_applied(known, finding.origin):
            self._count_on(known)

    def _count_on(self, known: AlertState) -> None:
        speaker_uid = known.part_of or known.fold
        if speaker_uid is None:
            known, written = tick(known, self._finding.time_us, self._rules, self._suppressions)
            self._step.outputs += written
            self._count_alone(known, joins=True)
            return
        speaker = self._ticked(speaker_uid)
        role = "member" if known.part_of is None else "part"
        _ROUTES[role, _standing_of(speaker)](self, known, speaker_uid, speaker)

    def _ticked(self, uid: str) -> AlertState | None:
        """Return an alert after writing what is due on it."""
        state = self._step.alert(uid)
        if state is not None:
            state, written = tick(state, self._finding.time_us, self._rules, self._suppressions)
            self._step.note(uid, state, written)
        return state

    def _on_its_own_again(self, known: AlertState, _uid: str, _speaker: AlertState | None) -> None:
        self._count_alone(released(known), joins=True)

    def _on_lead(self, known: AlertState, lead_uid: str, lead: AlertState) -> None:
        self._join(lead_uid, lead, counted(known, self._finding, self._rules.severity(self._finding)))

    def _on_lead_closed_by_hand(self, known: AlertState, _uid: str, lead: AlertState) -> None:
        member = counted(known, self._finding, self._rules.severity(self._finding))
        if member.severity_id <= lead.severity_id:
            self._step.note(self._uid, member)
        else:
            self._count_alone(released(known), joins=True)

    def _on_fold(self, known: AlertState, fold_uid: str, fold: AlertState) -> None:
        finding, own = self._finding, released(known)
        alone, written = apply_finding(own, finding, self._rules, self._suppressions)
        has_room = not self._is_covered() and self._counts.has_room(self._place, alone.severity_id)
        if written and alone.severity_id > known.severity_id and has_room:
            self._step.note(fold_uid, without_member(fold, known, None, finding.time_us))
            self._count_alone(own)
            return
        member = counted(known, finding, self._rules.severity(finding))
        self._step.note(self._uid, member)
        self._step.note(fold_uid, with_member(fold, known, member, finding, self._place))

    def _on_fold_closed_by_hand(self, known: AlertState, fold_uid: str, fold: AlertState) -> None:
        member = counted(known, self._finding, self._rules.severity(self._finding))
        if known.resolved_us is None and member.severity_id <= known.severity_id:
            self._step.note(self._uid, member)
        else:
            self._on_closed_fold(known, fold_uid, fold)

    def _on_closed_fold(self, known: AlertState, _uid: str, _fold: AlertState) -> None:
        self._count_alone(released(known), was=known)

    def _count_alone(self, known: AlertState | None, *, joins: bool = False, was: AlertState | None = None) -> None:
        """Count a finding on an alert of its own, join that to one about the same definition, or fold it.

        It is folded where its record has begun enough of them.

        Args:
            joins: whether it may join the lead.
            was: its earlier state as the member of a folded alert that has closed.
        """
        alone, written = apply_finding(known, self._finding, self._rules, self._suppressions)
        begins = bool(written) and (known is None or not known.raised or known.closed)
        if not begins or self._is_covered():
            self._step.note(self._uid, alone, written)
            return
        silent = replace(alone, reported=False, written_count=0 if known is None else known.written_count)
        lead_uid = self._step.leads.of(self._finding)
        if joins and lead_uid is not None and lead_uid != self._uid:
            lead, member = self._ticked(lead_uid), replace(silent, part_of=lead_uid)
            is_heard = lead is not None and self._open_release(lead) is not None
            takes = lead is not None and takes_part(lead, member, is_heard=is_heard)
            if lead is not None and takes and self._covering(lead) is None:
                self._join(lead_uid, lead, member)
                return
        self.counts_changed = True
        if self._finding.release is None and self._counts.has_room(self._place, alone.severity_id):
            self._counts.count(self._place, alone.severity_id)
            self._step.note(self._uid, alone, written)
            return
        fold_uid = folded_finding(self._finding, self._place).uid()
        if was is not None and self._finding.release is None:
            fold_uid = str(was.fold)
        was = was if was is not None and was.fold == fold_uid else None
        member = replace(silent, fold=fold_uid)
        fold = self._step.alert(fold_uid)
        self._step.note(self._uid, member)
        self._step.note(fold_uid, with_member(fold, was, member, self._finding, self._place))
        self._counts.touch(self._place, fold_uid)

    def _join(self, lead_uid: str, lead: AlertState, member: AlertState) -> None:
        """Make a finding a reason of another alert, and write that one if it gained content or severity."""
        new = with_part(lead, member)
        is_graver = new.severity_id > lead.severity_id
        if lead.fold is None and (is_graver or not (has_told(lead, member) or is_acknowledged(lead))):
            said = without(new.triage, "acknowledged_by") if is_graver else new.triage
            new = replace(new, triage=said)
            new, written = write_again(new, member.last.time_us, self._rules, self._suppressions)
            self._step.outputs += written
        elif is_graver and (release := self._open_release(lead)) is not None:
            release = with_graver_member(release, lead, new)
            self._step.note(str(lead.fold), *write_again(release, member.last.time_us, self._rules, self._suppressions))
        self._step.note(lead_uid, new)
        self._step.note(self._uid, member)

    def _open_release(self, member: AlertState) -> AlertState | None:
        if member.fold is None or member.last.release is None:
            return None
        release = self._step.alert(member.fold)
        return None if release is None or release.closed else release

    def _is_covered(self) -> bool:
        return covering_rule(self._suppressions, self._finding, self._finding.time_us) is not None

    def _covering(self, state: AlertState) -> SuppressionRule | None:
        return covering(state, self._suppressions, self._finding.time_us)


_Route = Callable[[Found, AlertState, str, Any], None]
_ROUTES: Mapping[tuple[str, str], _Route] = {
    ("part", "open"): Found._on_lead,
    ("part", "closed_by_hand"): Found._on_lead_closed_by_hand,
    ("part", "closed"): Found._on_its_own_again,
    ("part", "absent"): Found._on_its_own_again,
    ("member", "open"): Found._on_fold,
    ("member", "closed_by_hand"): Found._on_fold_closed_by_hand,
    ("member", "closed"): Found._on_closed_fold,
    ("member", "absent"): Found._on_its_own_again,
}
"""What a finding is counted on, by its alert's relation to the lead or fold, and the state of that."""


def _standing_of(speaker: AlertState | None) -> str:
    if speaker is None:
        return "absent"
    if speaker.closed:
        return "closed_by_hand" if is_closed_by_hand(speaker) else "closed"
    return "open"


def _without_suppressed(finding: Finding, suppressions: Suppressions) -> Finding:
    about = ((label, replace(finding, kind=Kind(label.partition(":")[0]), also=())) for label in finding.also)
    left = tuple(label for label, other in about if covering_rule(suppressions, other, finding.time_us) is None)
    return replace(finding, also=left) if left != finding.also else finding


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
        if fold.last.kind is Kind.ALERTS_FOLDED:
            about = folded_finding(replace(finding, release=None), str(fold.last.reason))
    if was is None:
        level = str(member.severity_id)
        held["by_severity"] = held["by_severity"] | {level: held["by_severity"].get(level, 0) + 1}
        name = finding.tool_name or finding.item_name
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


def with_graver_member(release: AlertState, was: AlertState, now: AlertState) -> AlertState:
    """Return the alert about a release after one of its parts became more severe."""
    held = release.folded or {}
    counts = dict(held["by_severity"])
    for level, more in ((str(was.severity_id), -1), (str(now.severity_id), 1)):
        counts[level] = counts.get(level, 0) + more
    uid, name = now.last.uid(), now.last.tool_name or now.last.item_name
    others = [row for row in held["most_severe"] if row[3] != uid]
    named = _most_severe([*others, [now.severity_id, now.last.kind.value, name, uid]])
    return replace(
        release,
        severity_id=max(release.severity_id, now.severity_id),
        folded=held | {"by_severity": {level: count for level, count in counts.items() if count}, "most_severe": named},
        triage=without(release.triage, "acknowledged_by"),
        last=folded_finding(now.last, "") if named[0][3] == uid else release.last,
    )


def without_member(fold: AlertState, was: AlertState, now: AlertState | None, time_us: int) -> AlertState:
    """Return a folded alert after one of its members has ended or left it."""
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
