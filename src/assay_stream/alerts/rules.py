"""Rules of the alert stage: how severe a finding is, and how often an alert may be written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay_stream.drift import Change
from assay_stream.drift.severity import DEFAULT_PROFILE, Level, SeverityProfile, assess, covers
from assay_stream.model.fields import ChangeDirection
from assay_stream.model.finding import Finding, SuppressionRule
from assay_stream.model.kinds import KINDS, SAME_NAME, Kind
from assay_stream.schemes.assay_manifest import action_class

_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pacing:
    """How often an alert may be written.

    Args:
        update_interval_us: minimum interval between updates without another trigger.
        settle_us: how long no observer must see it before it is closed.
        repeat_interval_us: after this a lasting alert is written again.
        forget_us: after this an ended alert is forgotten.
    """

    update_interval_us: int = 3_600 * _SECOND_US
    settle_us: int = 600 * _SECOND_US
    repeat_interval_us: int = 24 * 3_600 * _SECOND_US
    forget_us: int = 400 * 24 * 3_600 * _SECOND_US


def severity_under(profile: SeverityProfile) -> Callable[[Finding], int]:
    """Return the function that maps a finding to its OCSF severity id.

    Findings not covered by a peer's table are informational under it: they stay in the log, and raise no alarm.

    Args:
        profile: one of ``drift.severity.PROFILES``.
    """

    def severity(finding: Finding) -> int:
        if finding.kind is Kind.DETECTION and finding.detection is not None:
            # Whoever wrote the agent said how severe this is.
            return finding.detection.severity_id
        changes = [Change(code, path, None, None, ChangeDirection(way)) for code, path, way in finding.changes]
        if not covers(profile, finding.kind.value, changes):
            return int(Level.INFORMATIONAL)
        level = assess(
            profile,
            finding.kind.value,
            changes,
            [level for _, level, _ in finding.indicators],
            privileged=finding.tool_name is not None and action_class(finding.tool_name) is not None,
            default=default_level(finding.kind, finding.reason),
        )
        for kind, _, reason in (label.partition(":") for label in finding.also):
            if covers(profile, kind):
                level = max(level, assess(profile, kind, default=default_level(Kind(kind), reason or None)))
        return int(level)

    return severity


def default_level(kind: Kind, reason: str | None) -> Level:
    """Return the level of a kind of finding that a profile does not list."""
    # Fleets hold many versions of one product: an equal name alone is no alarm.
    if kind is Kind.TOOL_SHADOWED and reason == SAME_NAME:
        return Level.LOW
    return Level(KINDS[kind].severity_id)


DEFAULT_PACING = Pacing()
_SEVERITY = severity_under(DEFAULT_PROFILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRules:
    """Configuration of the alert stage.

    Args:
        version: version of this software, for ``metadata.product``.
        severity: returns the OCSF severity id of a finding.
        suppressions: those in force for the server of an alert.
    """

    version: str
    severity: Callable[[Finding], int] = _SEVERITY
    pacing: Pacing = DEFAULT_PACING
    suppressions: Sequence[SuppressionRule] = ()
