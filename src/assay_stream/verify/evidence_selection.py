"""Which evidence an operator asks for."""

from __future__ import annotations

from dataclasses import dataclass

from assay_stream.errors import InputError
from assay_stream.model.cloudevents import time_us_of
from assay_stream.replay.evidence_record import Recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceSelection:
    """Which evidence is asked for; ``None`` asks for nothing in particular.

    Args:
        since_us: event time of the earliest call, inclusive, microseconds since the epoch.
        until_us: event time of the latest call, inclusive.
        server_id: of calls on this server.
        evidence_id: with this ``id``.
        partition: of calls in this partition.
        from_offset: of calls at this offset of their partition or later ones.
        to_offset: of calls before this offset.
    """

    since_us: int | None = None
    until_us: int | None = None
    server_id: str | None = None
    evidence_id: str | None = None
    partition: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None

    def wants(self, evidence: Recorded) -> bool:
        """Say whether a record is asked for. One that does not say what it is asked for by is: it may be altered.

        Args:
            evidence: the record.
        """
        return (
            self.wants_time(evidence)
            and (self.server_id is None or evidence.text("server_id") in (None, self.server_id))
            and (self.evidence_id is None or evidence.content.get("id") == self.evidence_id)
            and self._wants_place(evidence)
        )

    def wants_time(self, evidence: Recorded) -> bool:
        """Say whether a record is of a time that is asked for.

        Args:
            evidence: the record.
        """
        if self.since_us is None and self.until_us is None:
            return True
        time = evidence.content.get("time")
        try:
            time_us = time_us_of(time) if isinstance(time, str) else None
        except (InputError, TypeError):
            time_us = None
        if time_us is None:
            return True
        return (self.since_us or 0) <= time_us and (self.until_us is None or time_us <= self.until_us)

    def _wants_place(self, evidence: Recorded) -> bool:
        call = evidence.call
        if call is None:
            return True
        return (
            self.partition in (None, call.partition)
            and (self.from_offset is None or call.offset >= self.from_offset)
            and (self.to_offset is None or call.offset < self.to_offset)
        )
