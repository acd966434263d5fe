"""The alert stage as a function: what stands in the finding topic in, alerts and changed states out.

States are JSON objects in one mapping, so that a dictionary and a table in a change log are alike: an alert under
its uid; under ``rules/``, a partition of the finding topic and a server, the suppression rules that were read
there. What is to be written comes before the change of state that makes it redundant.

A state says up to which record of the finding topic it is what it is. A record that is read again, after a crash,
is passed over by what has it behind it: an end that stands before the finding does not end it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from assay_stream.core.alert import AlertRules, apply_finding, apply_resolution, due_us, tick
from assay_stream.core.alert_state import AlertState
from assay_stream.core.attention import Entry, Resolution, Suppression, Tick
from assay_stream.core.finding import Finding
from assay_stream.core.limits import DEFAULT_LIMITS
from assay_stream.core.record import Origin, Output
from assay_stream.core.suppression import ANY_SERVER, SuppressionRule

_RULES = "rules/"


@dataclass(frozen=True, slots=True)
class Step:
    """What one entry leads to.

    Args:
        outputs: alerts to write, in order.
        states: the states that are other than they were, by key.
    """

    outputs: list[Output] = field(default_factory=list)
    states: dict[str, dict[str, Any]] = field(default_factory=dict)


def apply_entry(
    states: Mapping[str, Any], entry: Entry, rules: AlertRules, due: DueTimes, *, place: Origin
) -> Step:
    """Apply one record of the finding topic.

    Args:
        states: every state there is; it is not changed.
        entry: the record.
        rules: what the stage is told.
        due: when the alerts of the record's partition will have something to write.
        place: where the record stands in the finding topic.
    """
    step = Step()
    match entry:
        case Finding():
            uid = entry.uid()
            known = _state(states, uid)
            if not _is_behind(known, place):
                in_force = suppressions_for(states, place.partition, entry.server_id)
                _note(step, place, uid, known, *apply_finding(known, entry, rules, in_force))
        case Resolution():
            in_force = suppressions_for(states, place.partition, entry.server_id)
            for uid in entry.uids:
                known = _state(states, uid)
                if known is not None and not _is_behind(known, place):
                    _note(step, place, uid, known, *apply_resolution(known, entry, rules, in_force))
        case Suppression():
            key = _rules_key(place.partition, entry.rule.server_id)
            kept = dict(states.get(key) or {})
            if entry.is_set:
                kept[entry.rule.id] = entry.rule.as_json()
            else:
                kept.pop(entry.rule.id, None)
            step.states[key] = kept
        case Tick():
            for uid in due.by(entry.time_us):
                known = _state(states, uid)
                if known is not None and not _is_behind(known, place):
                    in_force = suppressions_for(states, place.partition, known.last["server_id"])
                    _note(step, place, uid, known, *tick(known, entry.time_us, rules, in_force))
    return step


class DueTimes:
    """When each alert will next have something to write: so that a tick looks at few of many.

    Args:
        rules: what the stage is told.
    """

    def __init__(self, rules: AlertRules) -> None:
        self._rules = rules
        self._times_us: dict[str, int] = {}

    def note(self, states: Mapping[str, Any]) -> None:
        """Take note of states that are other than they were.

        Args:
            states: by key.
        """
        for key, stored in states.items():
            time_us = due_us(AlertState.from_json(stored), self._rules) if is_alert(key) else None
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
        """Return the keys of the alerts that are due, the longest due first, as many as one tick may write.

        Args:
            now_us: the time, microseconds since the epoch.
        """
        due = sorted((time_us, key) for key, time_us in self._times_us.items() if time_us <= now_us)
        return [key for _, key in due[: DEFAULT_LIMITS.alerts_per_tick_max]]


def is_alert(key: str) -> bool:
    """Tell whether a state is that of an alert.

    Args:
        key: its key.
    """
    return not key.startswith(_RULES)


def suppressions_for(states: Mapping[str, Any], partition: int, server_id: str) -> list[SuppressionRule]:
    """Return the suppression rules in force for a server, its own and those for every server.

    Args:
        states: every state there is.
        partition: the partition of the finding topic that the server's alerts stand in.
        server_id: the server.
    """
    return [
        SuppressionRule.from_json(fields)
        for key in (_rules_key(partition, server_id), _rules_key(partition, ANY_SERVER))
        for fields in (states.get(key) or {}).values()
    ]


def _rules_key(partition: int, server_id: str) -> str:
    # A rule for every server stands in every partition, each of which has read up to a place of its own.
    return f"{_RULES}{partition}/{server_id}"


def _state(states: Mapping[str, Any], uid: str) -> AlertState | None:
    stored = states.get(uid)
    return None if stored is None else AlertState.from_json(stored)


def _is_behind(known: AlertState | None, place: Origin) -> bool:
    return known is not None and place.offset <= known.through


def _note(
    step: Step, place: Origin, uid: str, known: AlertState | None, new: AlertState, outputs: list[Output]
) -> None:
    step.outputs.extend(outputs)
    if new != known:
        step.states[uid] = replace(new, through=place.offset).as_json()
