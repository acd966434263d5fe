"""How late evidence is, and how many observers were heard of lately: the gauges of a join.

Publishers' clocks may be wrong, and their names are theirs to choose. So times are bounded, and observers are counted,
never named.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from assay_stream.limits.metrics import EVIDENCE_LATENCY_MAX_S, OBSERVER_ALIVE_S, OBSERVERS_COUNTED_MAX
from assay_stream.model.cloudevents import Call
from assay_stream.model.record import Origin, Record


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class RecentObservers:
    """Counts the observers that were heard of within ``OBSERVER_ALIVE_S``.

    Args:
        clock_ms: the time, milliseconds since the epoch.
    """

    def __init__(self, clock_ms: Callable[[], int] = now_ms) -> None:
        self._clock_ms = clock_ms
        self._heard_ms: dict[str, int] = {}

    def heard(self, observer_id: str, at_ms: int) -> None:
        """Note that an observer was heard of; of a time to come, as if it were now."""
        now = self._clock_ms()
        at_ms = min(at_ms, now)
        if at_ms <= now - OBSERVER_ALIVE_S * 1_000 or at_ms <= self._heard_ms.get(observer_id, 0):
            return
        if observer_id not in self._heard_ms and len(self._heard_ms) >= OBSERVERS_COUNTED_MAX:
            self.count()
            if len(self._heard_ms) >= OBSERVERS_COUNTED_MAX:
                return
        self._heard_ms[observer_id] = at_ms

    def count(self) -> int:
        """Return how many there are, at most ``OBSERVERS_COUNTED_MAX``, and forget the others."""
        since_ms = self._clock_ms() - OBSERVER_ALIVE_S * 1_000
        silent = [name for name, at_ms in list(self._heard_ms.items()) if at_ms <= since_ms]
        for name in silent:
            self._heard_ms.pop(name, None)
        return len(self._heard_ms)


class EvidenceLatency:
    """Measures from a call to the commit of its evidence.

    Args:
        observe: takes what the time counts from, and how many calls took so many milliseconds.
        observers: notes who called.
        clock_ms: the time, milliseconds since the epoch.
    """

    def __init__(
        self,
        observe: Callable[[str, Mapping[int, int]], None],
        observers: RecentObservers,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._observe = observe
        self._observers = observers
        self._clock_ms = clock_ms
        self._joined: dict[int, dict[Origin, tuple[str, int]]] = {}
        """By partition."""

    def joined(self, calls: Sequence[tuple[Record, Call]]) -> None:
        """Note whose calls some records of a partition hold and when they were observed, until evidence is committed.

        What comes again after a failed batch takes its own place.
        """
        if calls:
            noted = self._joined.setdefault(calls[0][0].origin.partition, {})
            noted.update({record.origin: (call.observer_id, call.time_us // 1_000) for record, call in calls})

    def committed(self, records: Sequence[Record]) -> None:
        """Measure the calls among the records of a partition whose evidence is committed now."""
        if not records:
            return
        noted = self._joined.get(records[0].origin.partition, {})
        # Of a refused record nothing is noted.
        found = [(noted.pop(record.origin, None), record.timestamp_ms) for record in records]
        measured = [(call, logged_ms) for call, logged_ms in found if call is not None]
        if not measured:
            return
        now = self._clock_ms()
        self._observe("observed", Counter([now - observed_ms for (_, observed_ms), _ in measured]))
        self._observe("logged", Counter([now - logged_ms for _, logged_ms in measured]))
        for observer_id in {observer_id for (observer_id, _), _ in measured}:
            self._observers.heard(observer_id, now)

    def drop(self, partition: int) -> None:
        """Forget the calls of a partition that has gone: whoever has it now commits them."""
        self._joined.pop(partition, None)


def bounded_s(elapsed_ms: int) -> float:
    """Return milliseconds as seconds within 0 and ``EVIDENCE_LATENCY_MAX_S``."""
    return min(max(elapsed_ms / 1_000, 0.0), EVIDENCE_LATENCY_MAX_S)
