"""What a publisher had to drop, counted by server and observer, until the counts are published."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from datetime import datetime

from assay_stream.errors import ConfigurationError
from assay_stream.model.record import LOSS_TYPE, OBSERVER_HEADER
from assay_stream.observe.events import loss_event
from assay_stream.observe.observation import Observation, ObservationKind, Vantage

_LOSS, _LOSS_WITHIN = LOSS_TYPE.encode(), 128


class Losses:
    """Counts of what was dropped. Not thread-safe: the publisher holds its lock.

    Args:
        servers_max: servers and observers that are counted; what others lose is only logged.
    """

    def __init__(self, servers_max: int) -> None:
        self._servers_max = servers_max
        self._counts: dict[tuple[bytes, bytes], Counter[ObservationKind]] = {}

    def __bool__(self) -> bool:
        return bool(self._counts)

    def note(self, observation: Observation) -> None:
        """Count what was dropped; a count that is dropped itself is only logged."""
        if _LOSS in observation.value[:_LOSS_WITHIN]:
            return
        whose = (observation.key, dict(observation.headers).get(OBSERVER_HEADER, b""))
        if whose in self._counts or len(self._counts) < self._servers_max:
            self._counts.setdefault(whose, Counter())[observation.kind] += 1

    def take(self, new_id: Callable[[], str], at: datetime) -> list[Observation]:
        """Return the counts as events, and begin anew."""
        counted, self._counts = self._counts, {}
        events = []
        for (server, observer), counts in counted.items():
            # Without a name that a record may carry there is nobody to say it of.
            with contextlib.suppress(ConfigurationError, UnicodeDecodeError):
                vantage = Vantage(server_id=server.decode(), observer_id=observer.decode())
                lists, calls = counts["list"], counts["call"]
                events.append(loss_event(vantage, event_id=new_id(), observed_at=at, lists=lists, calls=calls))
        return events
