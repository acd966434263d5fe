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

``processor._Found.count`` determines what a finding of a part or a member is counted on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from assay_stream.alerts.life_cycle import SEVERITY_HIGH, counted, is_acknowledged, is_closed_by_hand, without
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.alert_state import AlertState
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import KINDS, Kind


class RecordCounts:
    """How many alerts a record of one server raised, beside its other latest records, and which folds they changed.

    Args:
        stored: of the latest records (``AlertRecords``), empty for none; not changed.
        place: of the record: what its alerts are folded under.
        alone_max: alerts of one severity that are written individually.
    """

    def __init__(self, stored: Mapping[str, Any], place: str, alone_max: int) -> None:
        self.records: list[dict[str, Any]] = [
            each | {"raised": dict(each["raised"]), "folded": list(each["folded"])}
            for each in stored.get("records", ())
        ]
        self.place, self._alone_max, self.is_changed = place, alone_max, False
        new: dict[str, Any] = {"origin": place, "raised": {}, "folded": []}
        self._own = next((each for each in self.records if each["origin"] == place), new)

    def has_room(self, severity_id: int) -> bool:
        return bool(self._own["raised"].get(str(severity_id), 0) < self._alone_max)

    def count(self, severity_id: int) -> None:
        raised = self._own["raised"]
        raised[str(severity_id)] = raised.get(str(severity_id), 0) + 1
        self._keep()

    def touch(self, uid: str) -> None:
        """Mark a folded alert as changed by the record, to be written at the record's end."""
        if uid not in self._own["folded"] and len(self._own["folded"]) < DEFAULT_LIMITS.alerts_per_record_max:
            self._own["folded"].append(uid)
        self._keep()

    def _keep(self) -> None:
        self.is_changed = True
        if self._own not in self.records:
            self.records = [*self.records, self._own][-DEFAULT_LIMITS.alert_records_max :]


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
