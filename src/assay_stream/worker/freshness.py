"""Gauges of a join: evidence latency and active observers.

Publishers' clocks may be wrong, and their names are theirs to choose. So times are bounded, and observers are counted,
never named.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from assay_stream.limits.metrics import OBSERVER_ALIVE_S, OBSERVERS_COUNTED_MAX
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
    """Measures from a call to the commit of its evidence, for all calls of a batch at once.

    Args:
        observe: takes what times are counted from, the time now, and the times of some calls; all in milliseconds.
        observers: notes who called.
        clock_ms: the time, milliseconds since the epoch.
    """

    def __init__(
        self,
        observe: Callable[[str, int, Sequence[int]], None],
        observers: RecentObservers,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._observe = observe
        self._observers = observers
        self._clock_ms = clock_ms
        self._joined_us: dict[int, dict[Origin, int]] = {}
        """When calls were observed, by partition."""

    def joined(self, calls: Sequence[tuple[Record, Call]]) -> None:
        """Note whose calls some records of a partition hold, and when they were observed, until evidence is committed.

        What comes again after a failed batch takes its own place.
        """
        if not calls:
            return
        noted_us = self._joined_us.setdefault(calls[0][0].origin.partition, {})
        noted_us.update({record.origin: call.time_us for record, call in calls})
        now = self._clock_ms()
        for observer_id in {call.observer_id for _, call in calls}:
            self._observers.heard(observer_id, now)

    def committed(self, records: Sequence[Record]) -> None:
        """Measure the calls in a partition's records whose evidence is now committed."""
        if not records:
            return
        noted_us = self._joined_us.get(records[0].origin.partition, {})
        found = [(noted_us.pop(record.origin, None), record.timestamp_ms) for record in records]
        # Of a refused record nothing is noted.
        measured = [(time_us // 1_000, logged_ms) for time_us, logged_ms in found if time_us is not None]
        if measured:
            observed_ms, logged_ms = zip(*measured, strict=True)
            now = self._clock_ms()
            self._observe("observed", now, observed_ms)
            self._observe("logged", now, logged_ms)

    def drop(self, partition: int) -> None:
        """Forget the calls of a lost partition: its next owner commits them."""
        self._joined_us.pop(partition, None)
