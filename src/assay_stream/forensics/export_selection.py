"""Which records an operator asks for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from assay_stream.core.errors import InputError
from assay_stream.forensics.export_input import Item, Kind

_OFFSETS = re.compile(r"(?P<partition>[0-9]{1,9}):(?P<first>[0-9]{1,18})-(?P<last>[0-9]{1,18})")


class Offsets(NamedTuple):
    """A range of the log of calls.

    Args:
        partition: partition of the call.
        first: its first offset.
        last: its last one, inclusive.
    """

    partition: int
    first: int
    last: int


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
    offsets: tuple[Offsets, ...] = ()

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
            place.partition == wanted.partition and wanted.first <= place.offset <= wanted.last
            for wanted in self.offsets
        )


def offsets_of(text: str) -> Offsets:
    """Return the range that an operator means.

    Args:
        text: ``PARTITION:FIRST-LAST``.

    Raises:
        InputError: ``bad_offsets``.
    """
    match = _OFFSETS.fullmatch(text)
    if match is None or int(match["first"]) > int(match["last"]):
        raise InputError("bad_offsets", "write a range of offsets as PARTITION:FIRST-LAST, for example 3:100-199")
    return Offsets(int(match["partition"]), int(match["first"]), int(match["last"]))


def _server_id(item: Item) -> object:
    part = item.content.get("data" if item.kind is Kind.EVIDENCE else "unmapped")
    name = "server_id" if item.kind is Kind.EVIDENCE else "mcp_server_id"
    return part.get(name) if isinstance(part, dict) else None
