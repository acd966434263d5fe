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
   shown again. Reasons that joined it keep it open.
6. A suppressed alert is written as well, with that status and the rule's name. It is written at once when
   no rule covers it any more and everything written before was suppressed.
7. One that is over is forgotten ``forget_us`` after its last event: its end, a finding or a record. If it is found
   again, it is a new alert with the same uid.
8. An acknowledged alert is written again only when its severity rises or it closes (``alerts.processor``). A manually
   closed one stays closed until its condition has cleared and recurred.

Everything is a function of the alert's own state, of findings, and of the time that arrives with them. ``tick`` writes
what the next finding would have triggered, in due order, so how often time arrives does not change what is written.

The input record that a finding names identifies it. The latest ``alert_origins_max`` offsets of each partition are
remembered; anything older counts as applied.

1. The first finding about a definition that raises an alert makes that alert: its lead. Another kind of finding about
   the same definition joins it while it is open: the lead lists it among its reasons and has the highest severity.
2. A part keeps its own state, and writes nothing. The lead is open as long as it or one of its parts is.
3. A part whose lead has closed makes an alert of its own with its next finding, unless an operator closed the lead.
4. A suppression rule must cover both or neither. A folded alert takes no part more severe than itself, unless it is one
   of an open release: that is written again.
5. A changed definition is as severe as it would be in a first list, whatever became of the alert about the older one.
   Carried-over indicators are known only if an alert of another kind reported this very definition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final, Literal, NamedTuple, cast

from assay_stream.alerts.rules import AlertRules, Pacing
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.alert import Activity, AlertStatus, alert_record
from assay_stream.model.alert_state import UNNAMED_OBSERVER, AlertPart, AlertState, PinPart, Triage
from assay_stream.model.finding import PIN_FIELDS, AlertAct, Finding, Resolution, SuppressionRule, covering_rule
from assay_stream.model.kinds import DEFINITION_KINDS, KINDS, PIN_KINDS, Kind
from assay_stream.model.record import Origin, Output

FURTHER_OBSERVERS = ""
"""Counts the observers beyond the limit; no observer can have this name."""

DECIDED: Final = "decided"
"""End reason of an alert that an operator decided on: it closes at once, without settling time."""

Indicator = tuple[str, int, str]
"""Rule, OCSF severity and path, as in a finding."""

_KEEPS_WORDS = re.compile(
    r"(\w+_(whitespace_changed|typography_changed|lists_reordered)|(bounds|type|null|additional_properties)_\w+"
    r"|parameter_made_\w+|(read_only|(non_)?destructive|idempotent|closed_world|open_world|hint_default)_\w+"
    r"|default_number_changed|default_reordered|arguments_reordered|schema_restated|schema_regenerated)"
)
"""Codes of changes that bring no word and take none away."""

_RETURNING = (Kind.TOOL_ADDED, Kind.TOOL_CHANGED)
SEVERITY_HIGH = 4


def _is_news(finding: Finding, severity_id: int) -> bool:
    """Return True if a finding raises an alert that was never written.

    Having been shown before does not make a definition of high severity known: only an alert or an approval does. Two
    versions side by side are no return, unless the text makes one of them high.
    """
    if finding.approved:
        return False
    if not finding.known:
        return True
    if severity_id < SEVERITY_HIGH:
        return False
    return not finding.offered_elsewhere or any(level >= SEVERITY_HIGH for _, level, _ in finding.indicators)


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
    # A minor alert was closed, and its subject is merely shown again.
    only_returns = finding.known and state.closed and finding.kind in _RETURNING and new.severity_id < SEVERITY_HIGH
    if finding.approved or only_returns:
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
    left = {name: said for name, said in (triage or {}).items() if name not in names}
    return cast("Triage", left) if left else None


def is_acknowledged(state: AlertState) -> bool:
    """Return True if it was acknowledged: then only a higher severity or its end is written."""
    return "acknowledged_by" in (state.triage or {})


def with_origin(state: AlertState | None, origin: Origin, *, is_end: bool = False) -> dict[str, tuple[int, ...]]:
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


AlertSubject = tuple[str, str, str]
"""Server, the name under which the tool is offered, and the full digest of its definition."""


def subject_of(finding: Finding) -> AlertSubject | None:
    name = finding.renamed_to or finding.tool_name
    if finding.kind not in DEFINITION_KINDS or name is None or finding.after is None:
        return None
    return finding.server_id, name, finding.after


def with_carried_over(finding: Finding, state_of: Callable[[str], AlertState | None]) -> Finding:
    """Add the carried-over indicators to a finding, unless they were reported in another alert or reviewed.

    What a person reviewed stays reviewed while its words stay: ``carried_over`` of a remembered finding holds it.
    """
    if not finding.carried_over and all(level < SEVERITY_HIGH for _, level, _ in finding.indicators):
        return finding
    own, reviewed = state_of(finding.uid()), _reviewed_in(finding, state_of)
    indicators = tuple(row for row in finding.indicators if row not in reviewed)
    carried = tuple(row for row in finding.carried_over if row not in reviewed)
    finding = replace(finding, indicators=indicators, carried_over=reviewed)
    if not carried:
        return finding
    others = (state_of(uid) for uid in _uids_about(finding, finding.after, offered_as=True) if uid != finding.uid())
    gravest = max(level for _, level, _ in carried)
    is_reported = any(other is not None and other.raised and other.severity_id >= gravest for other in others)
    if is_reported and (own is None or not own.raised):
        return finding
    return replace(finding, indicators=tuple(dict.fromkeys((*indicators, *carried))))


def _uids_about(finding: Finding, full: str | None, *, offered_as: bool) -> Iterator[str]:
    """Yield the uids of the alerts that report the text of a definition under a name of the finding."""
    subject = finding.kind.value.rpartition("_")[0]
    name = finding.renamed_to or finding.tool_name if offered_as else finding.tool_name
    for kind in Kind:
        if full is not None and kind.value in (f"{subject}_added", f"{subject}_changed", f"{subject}_renamed"):
            yield replace(finding, kind=kind, tool_name=name, after=full).uid()


def _reviewed_in(finding: Finding, state_of: Callable[[str], AlertState | None]) -> tuple[Indicator, ...]:
    """Return the indicators that a person saw, of this very definition or of the one before with the same words."""
    rows = dict.fromkeys(
        row
        for uid in (finding.uid(), *_uids_about(finding, finding.after, offered_as=True))
        if (state := state_of(uid)) is not None
        for row in state.last.carried_over
    )
    keeps_words = bool(finding.changes) and all(_KEEPS_WORDS.fullmatch(code) for code, *_ in finding.changes)
    for uid in _uids_about(finding, finding.before, offered_as=False) if keeps_words else ():
        before = state_of(uid)
        if before is None:
            continue
        speaker = state_of(before.part_of or before.fold or uid)
        seen = before.last.carried_over
        if speaker is not None and not {"acknowledged_by", "closed"}.isdisjoint(speaker.triage or {}):
            seen += before.last.indicators
        rows |= dict.fromkeys(row for row in seen if row in finding.carried_over)
    return tuple(rows)


def takes_part(lead: AlertState, member: AlertState, *, is_heard: bool = False) -> bool:
    """Return True if a finding may join an alert about the same definition.

    Args:
        is_heard: whether the folded alert that speaks for the lead is written when the lead becomes more severe.
    """
    if lead.closed or lead.part_of is not None or len(lead.parts or {}) >= DEFAULT_LIMITS.alert_parts_max:
        return False
    return lead.fold is None or is_heard or member.severity_id <= lead.severity_id


def with_part(lead: AlertState, member: AlertState) -> AlertState:
    finding = member.last
    part: AlertPart = {"label": finding.label(), "severity_id": member.severity_id, "over_us": member.resolved_us}
    if finding.kind in PIN_KINDS:
        said = {name: value for name in PIN_FIELDS if (value := getattr(finding, name)) is not None}
        part["pin"] = cast("PinPart", said)
    return replace(
        lead,
        parts=(lead.parts or {}) | {finding.uid(): part},
        severity_id=max(lead.severity_id, member.severity_id),
        last_us=max(lead.last_us, finding.time_us),
    )


def over_us(state: AlertState) -> int | None:
    """Return since when neither an alert nor a part of it holds any more, ``None`` while one does."""
    ends = [state.resolved_us, *(part["over_us"] for part in (state.parts or {}).values())]
    known = [end for end in ends if end is not None]
    return max(known) if len(known) == len(ends) else None


_NOT_SEEN_AGAIN = "not_seen_again"
CLOSED_BY_HAND = "closed"
"""End reason of a manually closed alert."""

_Result = tuple[AlertState, list[Output]]


def apply_finding(state: AlertState | None, finding: Finding, rules: AlertRules) -> _Result:
    if state is not None and was_applied(state, finding.origin):
        return state, []
    outputs: list[Output] = []
    if state is not None:
        state, outputs = tick(state, finding.time_us, rules)
    new = counted(state, finding, rules.severity(finding))
    if not new.raised or new.closed:
        return new, outputs
    is_due = (
        state is None
        or not state.raised
        or state.closed
        or new.severity_id > state.severity_id
        or (not new.reported and covering(new, rules, finding.time_us) is None)
    )
    if is_due:
        new = replace(new, triage=without(new.triage, "acknowledged_by"))
    elif not is_acknowledged(new):
        is_due = is_round(new.count) or finding.time_us >= new.written_us + rules.pacing.update_interval_us
    if not is_due:
        return new, outputs
    activity = Activity.CREATE if state is None or not state.raised else Activity.UPDATE
    new, output = written(new, finding.time_us, rules, activity)
    return new, outputs + output


def apply_resolution(state: AlertState, resolution: Resolution, rules: AlertRules) -> _Result:
    """Record that an alert's condition has ended, for one observer or for all."""
    if was_applied(state, resolution.origin, is_end=True):
        return state, []
    state, outputs = tick(state, resolution.time_us, rules)
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
    if resolution.reason == DECIDED:
        new, closing = tick(new, max(resolution.time_us, over_us(new) or 0), rules)
        outputs += closing
    return new, outputs


class _Act(NamedTuple):
    """What a person's act does to an alert.

    Args:
        closed: whether the alert has to be closed for it, ``None`` for either.
        sets: the member of the triage that it sets.
        removes: the members that it removes.
    """

    closed: bool | None
    sets: str | None = None
    removes: tuple[str, ...] = ()


_ACTS: Mapping[str, _Act] = {
    "acknowledge": _Act(False, "acknowledged_by"),
    "assign": _Act(None, "assigned_to"),
    "close": _Act(False, "closed", ("acknowledged_by", "reopened")),
    "reopen": _Act(True, "reopened", ("closed",)),
    "comment": _Act(None),
}


def apply_act(state: AlertState, act: AlertAct, rules: AlertRules) -> _Result:
    """Apply a person's act on an alert; one that changes nothing is not written."""
    if was_applied(state, act.origin, is_end=True):
        return state, []
    state, outputs = tick(state, act.time_us, rules)
    new = replace(state, applied=with_origin(state, act.origin, is_end=True))
    does, said = _ACTS[act.act], dict(state.triage or {})
    names = {"acknowledged_by": act.author, "assigned_to": act.assignee or act.author}
    set_to = names.get(does.sets or "", True)
    is_said = does.sets in names and said.get(does.sets or "") == set_to
    if not new.raised or does.closed not in (None, new.closed) or is_said:
        return new, outputs
    said = {name: value for name, value in said.items() if name not in does.removes}
    said |= {"act": act.act, "by": act.author, "comment": act.reason} | ({does.sets: set_to} if does.sets else {})
    if act.act == "close":
        ended_us = max(act.time_us, new.last_us)
        new = replace(new, closed=True, resolved_us=ended_us, resolved_by=CLOSED_BY_HAND)
    elif act.act == "reopen":
        new = replace(new, closed=False, resolved_us=None, resolved_by=None)
    activity = Activity.CLOSE if new.closed else Activity.UPDATE
    new, output = written_again(replace(new, triage=cast("Triage", said)), act.time_us, rules, activity)
    return new, outputs + output


def tick(state: AlertState, now_us: int, rules: AlertRules) -> _Result:
    """Write what is due, in order: deferred counts, repetitions, closings."""
    outputs: list[Output] = []
    while (due := _next_due(state, rules.pacing)) is not None and due.at_us <= now_us:
        at_us, activity = due.at_us, None if due.what == "update" else Activity.UPDATE
        if due.what == "close":
            at_us = state.last_us if state.resolved_us is None else over_us(state) or state.last_us
            activity = Activity.CLOSE
            reason = _NOT_SEEN_AGAIN if state.resolved_us is None else state.resolved_by
            state = replace(state, closed=True, resolved_us=at_us, resolved_by=reason)
        elif due.what == "repeat":
            missed = (now_us - at_us) // rules.pacing.repeat_interval_us
            if missed < DEFAULT_LIMITS.repeats_made_up_max:
                missed = 0
            at_us += missed * rules.pacing.repeat_interval_us
            state = replace(state, repeats=state.repeats + 1 + missed)
        state, output = written(state, at_us, rules, activity)
        outputs += output
    return state, outputs


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
        due.append(_Due(ended_us + (0 if state.resolved_by == DECIDED else pacing.settle_us), "close"))
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


_STATUS = {
    Activity.CREATE: AlertStatus.NEW,
    Activity.UPDATE: AlertStatus.IN_PROGRESS,
    Activity.CLOSE: AlertStatus.RESOLVED,
}


def written(state: AlertState, time_us: int, rules: AlertRules, activity: Activity | None = None) -> _Result:
    """Write an alert; without an activity it is created if it was never written, or else updated."""
    if activity is None:
        activity = Activity.UPDATE if state.written_count else Activity.CREATE
    rule = covering(state, rules, time_us)
    state = replace(
        state,
        written_count=state.count,
        written_us=max(state.written_us, time_us),
        reported=state.reported or rule is None,
        folded=state.folded and state.folded | {"due": False},
    )
    record = alert_record(
        state,
        activity=activity,
        status=_STATUS[activity] if rule is None else AlertStatus.SUPPRESSED,
        time_us=time_us,
        suppressed_by=None if rule is None else rule.id,
        version=rules.version,
    )
    told = state if state.triage is None else replace(state, triage=without(state.triage, "act", "by", "comment"))
    return told, [record]


def written_again(state: AlertState, time_us: int, rules: AlertRules, activity: Activity = Activity.UPDATE) -> _Result:
    """Write an alert though nothing was counted on it: a reason joined it, or a person acted on it."""
    return written(replace(state, repeats=state.repeats + 1), time_us, rules, activity)


def covering(state: AlertState, rules: AlertRules, time_us: int) -> SuppressionRule | None:
    """Return the rule that suppresses an alert: one for single kinds or fields covers no other joined reason.

    One for single tools covers no release, which names its most severe part alone.
    """
    suppressions = rules.suppressions
    if state.folded is not None:
        suppressions = [rule for rule in suppressions if rule.tool is rule.field is rule.detection is None]
    if any(part["over_us"] is None for part in (state.parts or {}).values()):
        suppressions = [rule for rule in suppressions if rule.kind is rule.field is rule.detection is None]
    return covering_rule(suppressions, state.last, time_us)
