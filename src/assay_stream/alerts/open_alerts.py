"""Which alerts of a partition are open, by severity, and since when nobody has looked at them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from assay_stream.model.alert_state import AlertState


class OpenCount(NamedTuple):
    """The open alerts of one severity.

    Args:
        alerts: how many there are.
        unreviewed_since_us: event time of the earliest finding of those that nobody acknowledged or took,
            microseconds since the epoch; ``None`` where there are none.
    """

    alerts: int
    unreviewed_since_us: int | None


class OpenAlerts:
    """Follows the states of alerts, so that nobody has to go through all of them to count the open ones."""

    def __init__(self) -> None:
        self._open: dict[int, dict[str, int | None]] = {severity_id: {} for severity_id in range(1, 6)}
        """By severity, the uid of each open alert and, unless it was reviewed, since when it is open."""

    def note(self, states: Mapping[str, Any]) -> None:
        """Take note of states that are other than they were; ``None`` for one that is forgotten."""
        for key, stored in states.items():
            for uids in self._open.values():
                uids.pop(key, None)
            if isinstance(stored, AlertState) and _is_open(stored):
                self._open[stored.severity_id][key] = None if _is_reviewed(stored) else stored.first_us

    def counts(self) -> dict[int, OpenCount]:
        """Return the count of each severity, whatever thread the states belong to."""
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
