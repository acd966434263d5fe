"""The alert states of one partition of the finding topic, restored from and written to a compacted topic.

The state topic holds each state under its key and, under ``progress``, the position in the finding topic and the number
of states. If the number of restored states differs, part of the topic is lost: counts would restart from an incomplete
table, so the table is emptied and every finding is read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from assay_stream.alerts.life_cycle import AlertRules
from assay_stream.alerts.processor import DueTimes, Remembered, Step, state_json, state_of, take_in
from assay_stream.errors import IntegrityError
from assay_stream.model.alert_state import AlertProgress
from assay_stream.model.finding_topic import Tick
from assay_stream.model.record import Output, Record, Role

_PROGRESS = "progress"


class AlertTable:
    """The alert states of one partition.

    Args:
        partition: its number, the same in the finding topic and in the state topic.
        rules: what the stage is told.
    """

    def __init__(self, partition: int, rules: AlertRules) -> None:
        self._partition = partition
        self._rules = rules
        self._states: dict[str, Remembered] = {}
        self._due = DueTimes(rules)
        self._changed: set[str] = set()
        self._progress: dict[str, int] | None = None

    def __len__(self) -> int:
        return len(self._states)

    def restore(self, record: Record) -> None:
        """Restore one record of the state topic.

        Args:
            record: a state, the progress, or a tombstone of either.

        Raises:
            IntegrityError: ``unknown_alert_state`` where it is nothing that this version wrote.
        """
        try:
            key = (record.key or b"").decode()
            fields = None if record.value is None else orjson.loads(record.value)
            if key == _PROGRESS:
                names = ("position", "states")
                self._progress = None if fields is None else {name: fields[name] for name in names}
            elif fields is None:
                self._states.pop(key, None)
            else:
                self._states[key] = state_of(key, fields)
        except (AttributeError, ValueError, KeyError, TypeError):
            raise IntegrityError(
                "unknown_alert_state",
                f"the alert state topic holds a record this version cannot read, at offset {record.origin.offset} "
                f"of partition {record.origin.partition}: run the version that wrote it",
            ) from None

    def restored(self) -> int | None:
        """Return the finding to go on from, once the whole state topic was taken in.

        Returns:
            An offset of the finding topic; ``None`` for its beginning, where there is no table, or not all of it:
            what there is of it is taken back then.
        """
        progress = self._progress
        if progress is not None and progress["states"] == len(self._states):
            self._due.note(self._states)
            return progress["position"]
        self._changed.update(self._states)
        self._states.clear()
        return None

    def apply(self, record: Record) -> Step:
        """Apply one record of the finding topic.

        Raises:
            IntegrityError: ``unknown_finding``.
        """
        step = take_in(self._states, record, self._rules, self._due)
        self._changed.update(step.states)
        return step

    def written(self, position: int) -> list[Output]:
        """Return the records that make the state topic tell of the table as it is now."""
        changed = sorted(self._changed)
        self._changed.clear()
        progress: AlertProgress = {"position": position, "states": len(self._states)}
        return [
            *(self._output(key, state_json(self._states[key]) if key in self._states else None) for key in changed),
            self._output(_PROGRESS, progress),
        ]

    def tick(self, now_us: int) -> Output | None:
        """Return a tick where an alert is due: written to the finding topic, it comes back as a record.

        Args:
            now_us: the time, microseconds since the epoch.
        """
        if not self._due.any_by(now_us):
            return None
        value = Tick(time_us=now_us).encode()
        return Output(Role.FINDINGS, b"", value, timestamp_ms=now_us // 1_000, partition=self._partition)

    def _output(self, key: str, fields: Mapping[str, Any] | None) -> Output:
        value = None if fields is None else orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)
        return Output(Role.ALERT_STATES, key.encode(), value, partition=self._partition)
