"""Current alerts as a list shows them, which of them an operator asks for, and the records of one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from assay_stream.alerts.formats.view import AlertView, time_ms_text


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

    def wants(self, view: AlertView) -> bool:
        """Return True if an alert is selected; an unknown severity counts as higher than any."""
        return self.fits(time_ms=view.time_ms, server_id=view.fact("mcp_server_id"), severity_id=view.severity_id)

    def fits(self, *, time_ms: int, server_id: str, severity_id: int) -> bool:
        """As ``wants``, from an alert's time, server and severity."""
        if self.since_ms is not None and time_ms < self.since_ms:
            return False
        if self.server_id is not None and server_id != self.server_id:
            return False
        if self.severity is None:
            return True
        told = 1 <= severity_id <= _FATAL
        return not told or severity_id >= _SEVERITY_IDS[self.severity]


PREFIX_MIN = 6
"""Minimum number of hexadecimal digits of a uid in a command."""

_SHOWN_PREFIX_MIN = 8
_CLOSE, _SUPPRESSED = 3, 3
_RESOLVED_AND_BEYOND = (4, 5, 6)


class ReviewState(StrEnum):
    """Whether somebody has to look at an alert."""

    OPEN = "open"
    SUPPRESSED = "suppressed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRow:
    """The row of an alert in a list: its latest record.

    Args:
        server_id: ``""`` where the record names none.
        tool_name: ``""`` where it is about none.
        count: findings counted.
        observers: how many observers contributed.
        first_seen_ms: event time of the earliest finding, milliseconds since the epoch.
        last_seen_ms: event time of the latest.
        status: as in the record.
        group: shared by alerts of the same change on other servers, ``""`` where there is none.
        assigned_to: the assignee, or else who acknowledged it, ``""`` for neither.
    """

    uid: str
    severity: str
    severity_id: int
    kind: str
    server_id: str
    tool_name: str
    count: int
    observers: int
    first_seen_ms: int
    last_seen_ms: int
    state: ReviewState
    status: str
    group: str
    assigned_to: str

    def as_json(self) -> dict[str, Any]:
        """Return the row as a JSON object, times as RFC 3339."""
        fields = asdict(self)
        first, last = fields.pop("first_seen_ms"), fields.pop("last_seen_ms")
        return fields | {
            "severity": self.severity.lower(),
            "state": self.state.value,
            "first_seen": time_ms_text(first),
            "last_seen": time_ms_text(last),
        }


def row_of(view: AlertView) -> AlertRow:
    observers = view.flat.get("mcp_observers")
    return AlertRow(
        uid=view.uid,
        severity=view.severity,
        severity_id=view.severity_id,
        kind=view.kind,
        server_id=view.fact("mcp_server_id"),
        tool_name=view.fact("mcp_tool_name"),
        count=view.count,
        observers=observers if isinstance(observers, int) else 1,
        first_seen_ms=view.first_seen_ms,
        last_seen_ms=view.last_seen_ms,
        state=_state_of(view),
        status=view.status,
        group=view.fact("mcp_group"),
        assigned_to=view.fact("mcp_assigned_to") or view.fact("mcp_acknowledged_by"),
    )


def _state_of(view: AlertView) -> ReviewState:
    # What a rule covers is written as suppressed also when it closes.
    if view.activity_id == _CLOSE or view.status_id in _RESOLVED_AND_BEYOND:
        return ReviewState.CLOSED
    return ReviewState.SUPPRESSED if view.status_id == _SUPPRESSED else ReviewState.OPEN


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
    for index, uid in enumerate(ordered):
        alike = max(
            (_alike(uid, ordered[other]) for other in (index - 1, index + 1) if 0 <= other < len(ordered)), default=0
        )
        short[uid] = uid[: max(_SHOWN_PREFIX_MIN, alike + 1)]
    return short


def _alike(one: str, other: str) -> int:
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return min(len(one), len(other))


def by_group(rows: Iterable[AlertRow]) -> list[list[AlertRow]]:
    """Group rows of one change together, in the order of the first row of each group."""
    groups: dict[tuple[str, ReviewState], list[AlertRow]] = {}
    for row in rows:
        groups.setdefault((row.group or row.uid, row.state), []).append(row)
    return list(groups.values())
