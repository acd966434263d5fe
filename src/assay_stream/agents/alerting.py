"""The alert stage over what agents found: which alerts an author's detections raise."""

from __future__ import annotations

from collections.abc import Iterable

from assay_stream.agents.processing import OF_AGENTS
from assay_stream.alerts.processor import apply_entry
from assay_stream.alerts.remembered import Alerts
from assay_stream.alerts.rules import AlertRules
from assay_stream.model.finding import Finding
from assay_stream.model.finding_topic import AlertAct, Entry, Suppression, Tick, decode_entry
from assay_stream.model.record import Origin, Output, Role

_PLACE = "replay"


class AgentAlerts:
    """The alerts of agents' findings, kept apart: mixed with the others they could change what agents read.

    Args:
        rules: pacing and severities.
    """

    def __init__(self, rules: AlertRules) -> None:
        self._alerts = Alerts(rules)
        self._offset = 0
        self._ticked_us = 0

    def take(self, written: Iterable[Output]) -> list[Output]:
        """Process records of stages and agents, and return the alerts raised by agents.

        Besides findings of agents, only suppression rules and people's acts on alerts count.
        """
        alerts: list[Output] = []
        for output in written:
            if output.role is Role.FINDINGS:
                entry = decode_entry(output.value)
                if isinstance(entry, Suppression | AlertAct) or (
                    isinstance(entry, Finding) and entry.kind in OF_AGENTS
                ):
                    alerts += self._apply(entry)
        return alerts

    def advance(self, time_us: int, *, step_us: int = 60_000_000) -> list[Output]:
        """Return the alerts due at an event time, at most once per step: both in microseconds."""
        alerts: list[Output] = []
        if time_us < self._ticked_us + step_us:
            return alerts
        self._ticked_us = time_us
        while self._alerts.due.any_by(time_us):
            alerts += self._apply(Tick(time_us=time_us))
        return alerts

    def _apply(self, entry: Entry) -> list[Output]:
        self._offset += 1
        return apply_entry(self._alerts, entry, place=Origin(_PLACE, 0, self._offset))
