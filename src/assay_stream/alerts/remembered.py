"""What the alert stage remembers of a partition, and how the alert state topic keeps it.

State is one mapping: an alert under its uid; suppression rules under ``rules/<partition>/<server>``;
claims to look-alike names under ``names/<partition>/<skeleton>``; under ``records/<server>``, how many alerts its
latest records raised, and under ``name_records/<group>/<server>``, how many about its names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import replace
from typing import Any, NamedTuple

from assay_stream.alerts.life_cycle import Leads, due_us, forgotten_us
from assay_stream.alerts.rules import AlertRules
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.alert_state import AlertNames, AlertRecords, AlertState
from assay_stream.model.finding_topic import ANY_SERVER, SuppressionRule, Tick
from assay_stream.model.record import TOPIC_NAMES, Origin, Output, Role
from assay_stream.model.state_table import Table
from assay_stream.model.wire import members_of, read_record, write_record

_RULES = "rules/"
_NAMES = "names/"
_RECORDS, _NAME_RECORDS = "records/", "name_records/"

Remembered = AlertState | dict[str, Any]
"""An alert; suppression rules by id; or the JSON object of name claims or of counts."""


class Alerts:
    """The state of the alert stage for a partition, and the indexes over it.

    Args:
        states: every state; changed in place.
    """

    def __init__(self, rules: AlertRules, states: MutableMapping[str, Remembered] | None = None) -> None:
        self.rules = rules
        self.states: MutableMapping[str, Remembered] = {} if states is None else states
        self.due = DueTimes(rules)
        self.leads = Leads()
        self.open = OpenAlerts()
        self.names_left_out = 0
        """Look-alikes of the name in the latest processed record that are not stored, itself included."""
        self.follow(self.states)

    def alert(self, uid: str) -> AlertState | None:
        found = self.states.get(uid)
        return found if isinstance(found, AlertState) else None

    def other(self, key: str) -> dict[str, Any]:
        found = self.states.get(key)
        return found if isinstance(found, dict) else {}

    def follow(self, states: Mapping[str, Remembered | None]) -> None:
        self.due.note(states)
        self.leads.note(states)
        self.open.note(states)

    def keep(self, states: Mapping[str, Remembered | None]) -> None:
        """Store changed states, and drop those that are ``None``."""
        for key, state in states.items():
            if state is not None:
                self.states[key] = state
            elif key in self.states:
                del self.states[key]
        self.follow(states)


class DueTimes:
    """When each alert will next have something to write or be forgotten, so that a tick visits only those."""

    def __init__(self, rules: AlertRules) -> None:
        self._rules = rules
        self._times_us: dict[str, int] = {}

    def note(self, states: Mapping[str, Any]) -> None:
        """Update the index from changed states."""
        for key, stored in states.items():
            times_us: list[int | None] = []
            if isinstance(stored, AlertState):
                times_us = [due_us(stored, self._rules), forgotten_us(stored, self._rules.pacing)]
            time_us = min((time_us for time_us in times_us if time_us is not None), default=None)
            if time_us is None:
                self._times_us.pop(key, None)
            else:
                self._times_us[key] = time_us

    def any_by(self, now_us: int) -> bool:
        """Return True if an alert is due at a time, microseconds since the epoch."""
        return any(time_us <= now_us for time_us in self._times_us.values())

    def by(self, now_us: int) -> list[str]:
        """Return the keys of the alerts that are due, the longest overdue first, up to the limit of one tick."""
        due = sorted((time_us, key) for key, time_us in self._times_us.items() if time_us <= now_us)
        return [key for _, key in due[: DEFAULT_LIMITS.alerts_per_tick_max]]


class OpenCount(NamedTuple):
    """The open alerts of one severity.

    Args:
        unreviewed_since_us: event time of the earliest finding of those neither acknowledged nor assigned,
            microseconds since the epoch; ``None`` where there are none.
    """

    alerts: int
    unreviewed_since_us: int | None


class OpenAlerts:
    """Tracks the states of alerts, so that counting the open ones does not take a full scan."""

    def __init__(self) -> None:
        self._open: dict[int, dict[str, int | None]] = {severity_id: {} for severity_id in range(1, 6)}
        """By severity, the uid of each open alert and, unless it was reviewed, since when it is open."""

    def note(self, states: Mapping[str, Any]) -> None:
        """Update the counts from changed states; ``None`` for one that was dropped."""
        for key, stored in states.items():
            for uids in self._open.values():
                uids.pop(key, None)
            if isinstance(stored, AlertState) and _is_open(stored):
                self._open[stored.severity_id][key] = None if _is_reviewed(stored) else stored.first_us

    def counts(self) -> dict[int, OpenCount]:
        """Return the count of each severity; safe to call from another thread."""
        found: dict[int, OpenCount] = {}
        for severity_id, uids in self._open.items():
            since_us = list(uids.values())  # in one step: another thread may go on
            unreviewed = [each for each in since_us if each is not None]
            found[severity_id] = OpenCount(len(since_us), min(unreviewed, default=None))
        return found


def _is_open(state: AlertState) -> bool:
    # What another alert speaks for is written nowhere, and what a rule suppresses waits for nobody.
    speaks_itself = state.fold is None and state.part_of is None
    return state.raised and state.reported and not state.closed and speaks_itself


def _is_reviewed(state: AlertState) -> bool:
    triage = state.triage or {}
    return "acknowledged_by" in triage or "assigned_to" in triage


def state_json(value: Remembered) -> dict[str, Any]:
    if isinstance(value, AlertState):
        return write_record(value)
    return {name: write_record(each) if isinstance(each, SuppressionRule) else each for name, each in value.items()}


def state_of(key: str, content: dict[str, Any]) -> Remembered:
    """Return the state written by ``state_json``.

    Raises:
        AttributeError, TypeError, ValueError or KeyError: if it is no state of this version.
    """
    if key.startswith(_NAMES):
        return members_of(AlertNames, content)
    if key.startswith((_RECORDS, _NAME_RECORDS)):
        return members_of(AlertRecords, content)
    if key.startswith(_RULES):
        return {rule_id: read_record(SuppressionRule, rule) for rule_id, rule in content.items()}
    return read_record(AlertState, content)


def rules_key(partition: int, server_id: str) -> str:
    # A rule for every server is in every partition, and each partition has its own read position.
    return f"{_RULES}{partition}/{server_id}"


def names_key(partition: int, skeleton: str) -> str:
    return f"{_NAMES}{partition}/{skeleton}"


def records_key(server_id: str, group: str | None) -> str:
    """Return the key of the counts of a server's latest records, or of a group of names in them."""
    return f"{_RECORDS}{server_id}" if group is None else f"{_NAME_RECORDS}{group}/{server_id}"


class Changes:
    """What one record changes: alerts to write, in order, and states."""

    def __init__(self, alerts: Alerts, place: Origin, time_us: int) -> None:
        self.outputs: list[Output] = []
        self.states: dict[str, Remembered | None] = {}
        self.rules, self.leads = alerts.rules, alerts.leads
        self._alerts, self._place, self._time_us = alerts, place, time_us

    def alert(self, uid: str) -> AlertState | None:
        """Return the state of an alert, including this record's changes so far."""
        if isinstance(changed := self.states.get(uid), AlertState):
            return changed
        found = self._alerts.alert(uid)
        return None if found is None or self._is_forgotten(found) else found

    def forget(self, uid: str) -> None:
        """Drop the state of an alert that ended so long ago that it counts as absent."""
        found = self._alerts.alert(uid)
        if found is not None and self._is_forgotten(found):
            self.states[uid] = None

    def _is_forgotten(self, state: AlertState) -> bool:
        end_us = forgotten_us(state, self.rules.pacing)
        return end_us is not None and end_us <= self._time_us

    def alert_before(self, uid: str) -> AlertState | None:
        """Return the state of an alert that does not include this record yet."""
        known = self.alert(uid)
        return None if known is None or (uid not in self.states and self._place.offset <= known.through) else known

    def rules_for(self, server_id: str) -> list[SuppressionRule]:
        """Return the suppression rules in force for a server, its own and those for every server."""
        keys = (rules_key(self._place.partition, server_id), rules_key(self._place.partition, ANY_SERVER))
        return [rule for key in keys for rule in self._alerts.other(key).values()]

    def note(self, uid: str, new: AlertState, outputs: Iterable[Output] = ()) -> None:
        self.outputs += outputs
        if new != self.alert(uid):
            self.states[uid] = replace(new, through=self._place.offset)


class AlertTable(Table[Remembered]):
    """The alert states of one partition.

    Args:
        partition: its number, the same in the finding topic and in the state topic.
        input_topic: name of the finding topic.
        now_us: returns the time for a tick, microseconds since the epoch; ``None`` while no tick is wanted.
    """

    def __init__(
        self,
        partition: int,
        rules: AlertRules,
        *,
        input_topic: str = TOPIC_NAMES[Role.FINDINGS],
        now_us: Callable[[], int | None] = lambda: None,
    ) -> None:
        super().__init__(Role.ALERT_STATES, partition, input_topic)
        self.alerts = Alerts(rules, self)
        self._now_us = now_us

    def decode(self, key: str, fields: dict[str, Any]) -> Remembered:
        return state_of(key, fields)

    def encode(self, value: Remembered) -> Mapping[str, Any]:
        return state_json(value)

    def restored(self) -> Mapping[str, int | None]:
        """Return where to resume reading findings, and rebuild the indexes from the states."""
        positions = super().restored()
        self.alerts.follow(self)
        return positions

    def punctuate(self) -> list[Output]:
        """Return a tick if an alert is due: written to the finding topic, it comes back as a record."""
        now_us = self._now_us()
        if now_us is None or not self.alerts.due.any_by(now_us):
            return []
        value = Tick(time_us=now_us).encode()
        return [Output(Role.FINDINGS, b"", value, timestamp_ms=now_us // 1_000, partition=self._partition)]
