"""Which records an operator asks for."""

from __future__ import annotations

from dataclasses import dataclass

from assay_stream.export.input import Item, Kind
from assay_stream.replay.offset_ranges import OffsetRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which records are asked for; definitions are of no time and no server, and are never left out.

    Args:
        since_us: event time of the earliest, inclusive, microseconds since the epoch.
        until_us: event time of the end, exclusive.
        server_ids: of these servers only; empty asks for all.
        offsets: evidence of calls in one of these ranges only; empty asks for all. Alerts are not of calls, so
            with a range none is asked for.
    """

    since_us: int | None = None
    until_us: int | None = None
    server_ids: frozenset[str] = frozenset()
    offsets: tuple[OffsetRange, ...] = ()

    def wants(self, item: Item) -> bool:
        """Say whether a record is asked for.

        Args:
            item: the record.
        """
        if item.kind is Kind.DEFINITIONS:
            return True
        place = item.place
        if self.since_us is not None and place.time_us < self.since_us:
            return False
        if self.until_us is not None and place.time_us >= self.until_us:
            return False
        if self.server_ids and _server_id(item) not in self.server_ids:
            return False
        if not self.offsets:
            return True
        return item.kind is Kind.EVIDENCE and any(
            wanted.holds(place.name, place.partition, place.offset) for wanted in self.offsets
        )


def _server_id(item: Item) -> object:
    part = item.content.get("data" if item.kind is Kind.EVIDENCE else "unmapped")
    name = "server_id" if item.kind is Kind.EVIDENCE else "mcp_server_id"
    return part.get(name) if isinstance(part, dict) else None
