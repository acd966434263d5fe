"""The alert states of one partition of the finding topic, kept in the alert state topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from assay_stream.alerts.remembered import Alerts, Remembered, state_json, state_of
from assay_stream.alerts.rules import AlertRules
from assay_stream.model.finding_topic import Tick
from assay_stream.model.record import TOPIC_NAMES, Output, Role
from assay_stream.model.state_table import Table


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
