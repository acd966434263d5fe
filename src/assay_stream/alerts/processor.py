"""The processor of the alert stage: records of the finding topic in, alerts and changed states out.

State is one mapping: an alert under its uid; suppression rules under ``rules/<partition>/<server>``;
claims to look-alike names under ``names/<partition>/<skeleton>``; under ``records/<server>``, how many alerts its
latest records raised.

Each state names the last record of the finding topic that it includes. A record that is read again after a crash skips
the states that include it already.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any

from assay_stream.alerts.folding import RECORDS, RecordCounts, find, records_key, without_member
from assay_stream.alerts.life_cycle import AlertRules, apply_resolution, due_us, tick, write_folded
from assay_stream.alerts.shadowing import REASONS, Shadow, shadows, shadows_beyond, with_claim
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.alert_state import AlertState
from assay_stream.model.finding import Finding
from assay_stream.model.finding_topic import Entry, FloodEnd, NameClaim, Resolution, Suppression, Tick, decode_entry
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin, Output, Record, set_aside_error
from assay_stream.model.suppression import ANY_SERVER, SuppressionRule
from assay_stream.model.wire import read_record, write_record
from assay_stream.registry.refusal import refusal
from assay_stream.text.look_alikes import skeleton

_RULES = "rules/"
_NAMES = "names/"

Remembered = AlertState | dict[str, Any]
"""An alert; suppression rules by id; or the JSON object of name claims or of counts."""


@dataclass(slots=True)
class Step:
    """The effects of one record.

    Args:
        outputs: alerts to write, in order.
        states: the changed states, by key.
        left_out: for a name claim beyond the limit, how many look-alikes are not remembered, itself included; else 0.
    """

    outputs: list[Output] = field(default_factory=list)
    states: dict[str, Remembered] = field(default_factory=dict)
    left_out: int = 0


def apply_entry(states: Mapping[str, Any], entry: Entry, rules: AlertRules, due: DueTimes, *, place: Origin) -> Step:
    """Apply one record of the finding topic."""
    step = Step()
    match entry:
        case Finding():
            _find(step, states, entry, rules, place)
        case Resolution():
            _resolve(step, states, entry, rules, place)
        case FloodEnd():
            _end_flood(step, states, entry, rules, place)
        case NameClaim():
            _claim(step, states, entry, rules, place)
        case Suppression():
            key = _rules_key(place.partition, entry.rule.server_id)
            kept = dict(states.get(key) or {})
            if entry.is_set:
                kept[entry.rule.id] = entry.rule
            else:
                kept.pop(entry.rule.id, None)
            step.states[key] = kept
        case Tick():
            for uid in due.by(entry.time_us):
                known = states.get(uid)
                if known is not None and not _is_behind(known, place):
                    in_force = suppressions_for(states, place.partition, known.last.server_id)
                    _note(step, place, uid, known, *tick(known, entry.time_us, rules, in_force))
    return step


def take_in(states: MutableMapping[str, Remembered], record: Record, rules: AlertRules, due: DueTimes) -> Step:
    """Apply one record of the finding topic as it was read, and keep what it changes.

    A record that is set aside changes no state.

    Args:
        states: every state there is; it is changed.
        record: the next record.
        rules: what the stage is told.
        due: when alerts will have something to write; it is changed.

    Raises:
        IntegrityError: ``unknown_finding``.
    """
    if record.set_aside:
        return Step(outputs=refusal(record, set_aside_error()))
    step = apply_entry(states, decode_entry(record.value), rules, due, place=record.origin)
    states.update(step.states)
    due.note(step.states)
    return step


def _find(step: Step, states: Mapping[str, Any], finding: Finding, rules: AlertRules, place: Origin) -> None:
    if _is_behind(states.get(finding.uid()), place):
        return
    key = records_key(finding.server_id)
    in_force = suppressions_for(states, place.partition, finding.server_id)
    found = find(states.get, RecordCounts(states.get(key)), finding, rules, in_force)
    step.outputs += found.outputs
    for uid, new in found.alerts.items():
        _note(step, place, uid, states.get(uid), new, [])
    if found.counts is not None:
        step.states[key] = dict(found.counts.as_json())


def _end_flood(step: Step, states: Mapping[str, Any], end: FloodEnd, rules: AlertRules, place: Origin) -> None:
    in_force = suppressions_for(states, place.partition, end.server_id)
    for uid in RecordCounts(states.get(records_key(end.server_id))).touched():
        known = states.get(uid)
        if known is not None and not _is_behind(known, place):
            _note(step, place, uid, known, *write_folded(known, end.time_us, rules, in_force))


def _resolve(step: Step, states: Mapping[str, Any], resolution: Resolution, rules: AlertRules, place: Origin) -> None:
    in_force = suppressions_for(states, place.partition, resolution.server_id)
    folds: dict[str, AlertState] = {}
    for uid in resolution.uids:
        known = states.get(uid)
        if known is None or _is_behind(known, place):
            continue
        new, outputs = apply_resolution(known, resolution, rules, in_force)
        _note(step, place, uid, known, new, outputs)
        fold = None if known.fold is None else folds.get(known.fold) or states.get(known.fold)
        if known.fold is not None and fold is not None:
            folds[known.fold] = without_member(fold, known, new, resolution.time_us)
    for uid, new in folds.items():
        _note(step, place, uid, states.get(uid), new, [])


def _claim(step: Step, states: Mapping[str, Any], claim: NameClaim, rules: AlertRules, place: Origin) -> None:
    key = f"{_NAMES}{place.partition}/{claim.skeleton()}"
    stored = states.get(key) or {}
    if place.offset <= stored.get("through", -1):
        return
    new = with_claim(stored, claim)
    before, after = shadows(stored), shadows(new)
    ended = set(before)
    if stored.get("left_out"):
        # It may have been left out before; if no alert was raised for it, nothing ends.
        about = claim.server_id, claim.tool_name, claim.full
        ended |= {Shadow(*about, reason) for reason in REASONS}
    if new["left_out"] > stored.get("left_out", 0):
        step.left_out = new["left_out"]
        after = shadows_beyond(new, claim) | after
    for shadow in sorted(after.keys() - before.keys(), key=_order_of):
        _find(step, states, shadow.finding(after[shadow], claim), rules, place)
    for shadow in sorted(ended - after.keys(), key=_order_of):
        end = Resolution(
            server_id=shadow.server_id,
            uids=(shadow.uid(),),
            reason="decided" if claim.approved else "no_longer_offered",
            observer_id=None,
            time_us=claim.time_us,
            origin=claim.origin,
        )
        _resolve(step, states, end, rules, place)
    # After the alerts: if a crash comes between, the claim is read again and finds them written.
    step.states[key] = new | {"through": place.offset}


def _order_of(shadow: Shadow) -> tuple[str, str, str, str]:
    return shadow.server_id, shadow.tool_name, shadow.full, shadow.reason


class DueTimes:
    """When each alert will next have something to write, so that a tick looks only at those.

    Args:
        rules: what the stage is told.
    """

    def __init__(self, rules: AlertRules) -> None:
        self._rules = rules
        self._times_us: dict[str, int] = {}

    def note(self, states: Mapping[str, Any]) -> None:
        """Take note of states that are other than they were."""
        for key, stored in states.items():
            time_us = due_us(stored, self._rules) if isinstance(stored, AlertState) else None
            if time_us is None:
                self._times_us.pop(key, None)
            else:
                self._times_us[key] = time_us

    def any_by(self, now_us: int) -> bool:
        """Tell whether an alert is due.

        Args:
            now_us: the time, microseconds since the epoch.
        """
        return any(time_us <= now_us for time_us in self._times_us.values())

    def by(self, now_us: int) -> list[str]:
        """Return the keys of the alerts that are due, the longest overdue first, up to the limit of one tick."""
        due = sorted((time_us, key) for key, time_us in self._times_us.items() if time_us <= now_us)
        return [key for _, key in due[: DEFAULT_LIMITS.alerts_per_tick_max]]


def state_json(value: Remembered) -> dict[str, Any]:
    """Return a state as its topic carries it."""
    if isinstance(value, AlertState):
        return write_record(value)
    return {name: write_record(each) if isinstance(each, SuppressionRule) else each for name, each in value.items()}


def state_of(key: str, content: dict[str, Any]) -> Remembered:
    """Return the state that ``state_json`` gave.

    Raises:
        AttributeError, TypeError, ValueError or KeyError: where it is no state of this version.
    """
    if key.startswith((_NAMES, RECORDS)):
        return content
    if key.startswith(_RULES):
        return {rule_id: read_record(SuppressionRule, rule) for rule_id, rule in content.items()}
    return read_record(AlertState, content)


def partition_key(finding: Mapping[str, Any]) -> str:
    """Return the key that what is found stands under in the finding topic.

    Args:
        finding: as the finding topic carries it, and the state of its alert.
    """
    if finding["kind"] == Kind.TOOL_SHADOWED.value:
        return skeleton(finding["tool_name"])
    server_id: str = finding["server_id"]
    return server_id


def suppressions_for(states: Mapping[str, Any], partition: int, server_id: str) -> list[SuppressionRule]:
    """Return the suppression rules in force for a server, its own and those for every server."""
    return [
        rule
        for key in (_rules_key(partition, server_id), _rules_key(partition, ANY_SERVER))
        for rule in states.get(key, {}).values()
    ]


def _rules_key(partition: int, server_id: str) -> str:
    # A rule for every server is in every partition, and each partition has its own read position.
    return f"{_RULES}{partition}/{server_id}"


def _is_behind(known: AlertState | None, place: Origin) -> bool:
    return known is not None and place.offset <= known.through


def _note(
    step: Step, place: Origin, uid: str, known: AlertState | None, new: AlertState, outputs: list[Output]
) -> None:
    step.outputs.extend(outputs)
    if new != known:
        step.states[uid] = replace(new, through=place.offset)
