"""The alert stage as a function: what stands in the finding topic in, alerts and changed states out.

States are JSON objects in one mapping, so that a dictionary and a table in a change log are alike: an alert under
its uid, the suppression rules of a server under ``rules:`` and its name. What is to be written comes before the
change of state that makes it redundant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assay_stream.core.alert import AlertRules, AlertState, apply_finding, apply_resolution, due_us, tick
from assay_stream.core.attention import Entry, Resolution, Suppression, Tick
from assay_stream.core.finding import Finding
from assay_stream.core.record import Output
from assay_stream.core.suppression import ANY_SERVER, SuppressionRule

_RULES = "rules:"


@dataclass(frozen=True, slots=True)
class Step:
    """What one entry leads to.

    Args:
        outputs: alerts to write, in order.
        states: the states that are other than they were, by key.
    """

    outputs: list[Output] = field(default_factory=list)
    states: dict[str, dict[str, Any]] = field(default_factory=dict)


def apply_entry(states: Mapping[str, Any], entry: Entry, rules: AlertRules, due: DueTimes) -> Step:
    """Apply one record of the finding topic.

    Args:
        states: every state there is; it is not changed.
        entry: the record.
        rules: what the stage is told.
        due: when the alerts of the record's partition will have something to write.
    """
    step = Step()
    match entry:
        case Finding():
            uid = entry.uid()
            known = _state(states, uid)
            new, outputs = apply_finding(known, entry, rules, suppressions_for(states, entry.server_id))
            _note(step, uid, known, new, outputs)
        case Resolution():
            for uid in entry.uids:
                known = _state(states, uid)
                if known is not None:
                    _note(step, uid, known, *apply_resolution(known, entry, rules))
        case Suppression():
            key = _RULES + entry.rule.server_id
            in_force = dict(states.get(key) or {})
            if entry.is_set:
                in_force[entry.rule.id] = entry.rule.as_json()
            else:
                in_force.pop(entry.rule.id, None)
            step.states[key] = in_force
        case Tick():
            for uid in due.by(entry.time_us):
                known = _state(states, uid)
                if known is not None:
                    _note(step, uid, known, *tick(known, entry.time_us, rules))
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
            time_us = None if key.startswith(_RULES) else due_us(AlertState.from_json(stored), self._rules)
            if time_us is None:
                self._times_us.pop(key, None)
            else:
                self._times_us[key] = time_us

    def by(self, now_us: int) -> list[str]:
        """Return the keys of the alerts that are due, sorted.

        Args:
            now_us: the time, microseconds since the epoch.
        """
        return sorted(key for key, time_us in self._times_us.items() if time_us <= now_us)


def suppressions_for(states: Mapping[str, Any], server_id: str) -> list[SuppressionRule]:
    """Return the suppression rules in force for a server, its own and those for every server.

    Args:
        states: every state there is.
        server_id: the server.
    """
    return [
        SuppressionRule.from_json(fields)
        for key in (_RULES + server_id, _RULES + ANY_SERVER)
        for fields in (states.get(key) or {}).values()
    ]


def _state(states: Mapping[str, Any], uid: str) -> AlertState | None:
    stored = states.get(uid)
    return None if stored is None else AlertState.from_json(stored)


def _note(step: Step, uid: str, known: AlertState | None, new: AlertState, outputs: list[Output]) -> None:
    step.outputs.extend(outputs)
    if new != known:
        step.states[uid] = new.as_json()
