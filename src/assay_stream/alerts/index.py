"""Current alerts as a list shows them, which of them an operator asks for, and the records of one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile, zip_longest
from operator import eq

from assay_stream.alerts.formats.view import AlertRow, AlertView, ReviewState


class SeverityLevel(StrEnum):
    """The severities that alerts have, lowest first."""

    INFORMATIONAL = "informational"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


_SEVERITY_IDS = {level: number for number, level in enumerate(SeverityLevel, start=1)}
_FATAL = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSelection:
    """Selection criteria for alerts; ``None`` means no restriction.

    Args:
        since_ms: event time of the earliest, inclusive, milliseconds since the epoch.
        severity: this severity or higher.
    """

    since_ms: int | None = None
    server_id: str | None = None
    severity: SeverityLevel | None = None

    @property
    def severity_id(self) -> int | None:
        """The lowest selected OCSF severity, ``None`` for any."""
        return None if self.severity is None else _SEVERITY_IDS[self.severity]

    def wants(self, row: AlertRow, time_ms: int) -> bool:
        """Return True if an alert is selected at a time of it; an unknown severity counts as higher than any."""
        return (
            (self.since_ms is None or time_ms >= self.since_ms)
            and self.server_id in (None, row.server_id)
            and (not 1 <= row.severity_id <= _FATAL or row.severity_id >= (self.severity_id or 0))
        )


PREFIX_MIN = 6
"""Minimum number of hexadecimal digits of a uid in a command."""

_SHOWN_PREFIX_MIN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """The records of one alert in the order of the log: all counted, the first and the latest kept."""

    count: int
    first: Sequence[AlertView]
    latest: Sequence[AlertView]

    @property
    def last(self) -> AlertView:
        return (self.latest or self.first)[-1]


def short_uids(uids: Iterable[str]) -> dict[str, str]:
    """Return the shortest prefix of each uid that no other one has, of at least 8 characters."""
    ordered = sorted(uids)
    short: dict[str, str] = {}
    alike = 0
    for uid, following in zip_longest(ordered, ordered[1:], fillvalue=""):
        before, alike = alike, sum(1 for _ in takewhile(lambda pair: eq(*pair), zip(uid, following, strict=False)))
        short[uid] = uid[: max(_SHOWN_PREFIX_MIN, before + 1, alike + 1)]
    return short


def by_group(rows: Iterable[AlertRow]) -> list[list[AlertRow]]:
    """Group rows of one change together, in the order of the first row of each group."""
    groups: dict[tuple[str, ReviewState], list[AlertRow]] = {}
    for row in rows:
        groups.setdefault((row.group or row.uid, row.state), []).append(row)
    return list(groups.values())
