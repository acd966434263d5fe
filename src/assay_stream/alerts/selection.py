"""Which alerts an operator asks for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from assay_stream.alerts.formats.view import AlertView


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
