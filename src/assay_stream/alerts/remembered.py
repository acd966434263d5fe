"""What the alert stage remembers of a partition, and how the alert state topic keeps it.

State is one mapping: an alert under its uid; suppression rules under ``rules/<partition>/<server>``;
claims to look-alike names under ``names/<partition>/<skeleton>``; under ``records/<server>``, how many alerts its
latest records raised, and under ``name_records/<group>/<server>``, how many about its names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import replace
from typing import Any, NamedTuple

from assay_stream.alerts.life_cycle import AlertSubject, due_us, forgotten_us, subject_of
from assay_stream.alerts.rules import AlertRules
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.alert import SEVERITY_TEXTS
from assay_stream.model.alert_state import AlertNames, AlertRecords, AlertState
from assay_stream.model.finding import Finding, SuppressionRule, Tick
from assay_stream.model.record import TOPIC_NAMES, Output, Role
from assay_stream.model.state_table import Table
from assay_stream.model.wire import members_of, read_record, write_record

_RULES = "rules/"
_NAMES = "names/"
_RECORDS, _NAME_RECORDS = "records/", "name_records/"

Remembered = AlertState | dict[str, Any]
"""An alert; suppression rules by id; or the JSON object of name claims or of counts."""


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


class OpenCount(NamedTuple):
    """The open alerts of one severity.

    Args:
        unreviewed_since_us: event time of the earliest finding of those neither acknowledged nor assigned,
            microseconds since the epoch; ``None`` where there are none.
    """

    alerts: int
    unreviewed_since_us: int | None


class Alerts:
    """The state of the alert stage for a partition, and the indexes over it, so that nothing takes a full scan.

    Args:
        states: every state; changed in place.
    """

    def __init__(self, rules: AlertRules, states: MutableMapping[str, Remembered] | None = None) -> None:
        self.rules = rules
        self.states: MutableMapping[str, Remembered] = {} if states is None else states
        self.names_left_out = 0
        """Look-alikes of the name in the latest processed record that are not stored, itself included."""
        self._due_us: dict[str, int] = {}
        self._subjects: dict[str, AlertSubject] = {}
        self._leads: dict[AlertSubject, set[str]] = {}
        self._renamed_uids: dict[str, str] = {}
        """By the uid of a finding about a renamed tool, the one that it would have under the new name."""
        self._renamed: dict[str, set[str]] = {}
        self._open: dict[int, dict[str, int | None]] = {severity_id: {} for severity_id in SEVERITY_TEXTS}
        """By severity, the uid of each open alert and, unless it was reviewed, since when it is open."""
        self.follow(self.states)

    def alert(self, uid: str) -> AlertState | None:
        found = self.states.get(uid)
        return found if isinstance(found, AlertState) else None

    def other(self, key: str) -> dict[str, Any]:
        found = self.states.get(key)
        return found if isinstance(found, dict) else {}

    def keep(self, states: Mapping[str, Remembered | None]) -> None:
        for key, state in states.items():
            if state is not None:
                self.states[key] = state
            elif key in self.states:
                del self.states[key]
        self.follow(states)

    def ended_by(self, uid: str) -> list[str]:
        """Return the uids of the findings that a resolution ends by a uid: it knows the new name of a tool alone."""
        return [uid, *sorted(self._renamed.get(uid, ()))]

    def follow(self, states: Mapping[str, Remembered | None]) -> None:
        for uid, state in states.items():
            self._follow_rename(uid, state)
            self._due_us.pop(uid, None)
            for uids in self._open.values():
                uids.pop(uid, None)
            if (subject := self._subjects.pop(uid, None)) is not None:
                self._leads[subject].discard(uid)
                if not self._leads[subject]:
                    del self._leads[subject]
            if not isinstance(state, AlertState):
                continue
            times_us = [due_us(state, self.rules), forgotten_us(state, self.rules.pacing)]
            if known_us := [time_us for time_us in times_us if time_us is not None]:
                self._due_us[uid] = min(known_us)
            if not state.raised or state.closed or state.part_of is not None:
                continue
            if (subject := subject_of(state.last)) is not None:
                self._subjects[uid] = subject
                self._leads.setdefault(subject, set()).add(uid)
            if state.reported and state.fold is None:
                # What another alert speaks for is written nowhere, and what a rule suppresses waits for nobody.
                is_reviewed = not {"acknowledged_by", "assigned_to"}.isdisjoint(state.triage or {})
                self._open[state.severity_id][uid] = None if is_reviewed else state.first_us

    def _follow_rename(self, uid: str, state: Remembered | None) -> None:
        if (renamed := self._renamed_uids.pop(uid, None)) is not None:
            self._renamed[renamed].discard(uid)
            if not self._renamed[renamed]:
                del self._renamed[renamed]
        if isinstance(state, AlertState) and state.last.renamed_to is not None:
            renamed = self._renamed_uids[uid] = replace(state.last, tool_name=state.last.renamed_to).uid()
            self._renamed.setdefault(renamed, set()).add(uid)

    def any_due_by(self, now_us: int) -> bool:
        """Return True if an alert has something to write or is forgotten by a time, microseconds since the epoch."""
        return any(time_us <= now_us for time_us in self._due_us.values())

    def due_by(self, now_us: int) -> list[str]:
        """Return the keys of the alerts that are due, the longest overdue first, up to the limit of one tick."""
        due = sorted((time_us, key) for key, time_us in self._due_us.items() if time_us <= now_us)
        return [key for _, key in due[: DEFAULT_LIMITS.alerts_per_tick_max]]

    def lead_of(self, finding: Finding) -> str | None:
        """Return the open alert about the definition of a finding, ``None`` for none."""
        subject = subject_of(finding)
        return min(self._leads.get(subject, ()) if subject is not None else (), default=None)

    def open_counts(self) -> dict[int, OpenCount]:
        """Return the count of each severity; safe to call from another thread."""
        found: dict[int, OpenCount] = {}
        for severity_id, uids in self._open.items():
            since_us = list(uids.values())  # in one step: another thread may go on
            unreviewed = [each for each in since_us if each is not None]
            found[severity_id] = OpenCount(len(since_us), min(unreviewed, default=None))
        return found


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
        if now_us is None or not self.alerts.any_due_by(now_us):
            return []
        value = Tick(time_us=now_us).encode()
        return [Output(Role.FINDINGS, b"", value, timestamp_ms=now_us // 1_000, partition=self._partition)]
