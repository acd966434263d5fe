"""How late evidence is, and how many observers were heard of lately: the gauges of a join.

Publishers' clocks may be wrong, and their names are theirs to choose. So times are bounded, and observers are counted,
never named.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from assay_stream.limits.metrics import EVIDENCE_LATENCY_MAX_S, OBSERVER_ALIVE_S, OBSERVERS_COUNTED_MAX
from assay_stream.model.cloudevents import Call
from assay_stream.model.record import Record


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
        self._joined: dict[int, dict[int, tuple[str, int]]] = {}
        """By partition and offset."""

    def joined(self, record: Record, call: Call) -> None:
        """Note whose call a record holds and when it was observed, until its evidence is committed."""
        _, partition, offset = record.origin
        calls = self._joined.get(partition)
        if calls is None:
            calls = self._joined[partition] = {}
        calls[offset] = (call.observer_id, call.time_us // 1_000)

    def committed(self, records: Iterable[Record]) -> None:
        """Measure the calls among the records whose evidence is committed now."""
        now = self._clock_ms()
        callers: set[str] = set()
        observed: list[int] = []
        logged: list[int] = []
        for record in records:
            _, partition, offset = record.origin
            joined = self._joined.get(partition, {}).pop(offset, None)
            if joined is None:  # refused
                continue
            observer_id, observed_ms = joined
            callers.add(observer_id)
            observed.append(now - observed_ms)
            logged.append(now - record.timestamp_ms)
        if observed:
            self._observe("observed", Counter(observed))
            self._observe("logged", Counter(logged))
        for observer_id in callers:
            self._observers.heard(observer_id, now)

    def drop(self, partition: int) -> None:
        """Forget the calls of a partition that has gone: whoever has it now commits them."""
        self._joined.pop(partition, None)


def bounded_s(elapsed_ms: int) -> float:
    """Return milliseconds as seconds within 0 and ``EVIDENCE_LATENCY_MAX_S``."""
    return min(max(elapsed_ms / 1_000, 0.0), EVIDENCE_LATENCY_MAX_S)
