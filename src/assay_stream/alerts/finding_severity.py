"""How severe a finding is under a profile: by its kind, by what changed, and by what new text brings."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from assay_stream.drift import Change
from assay_stream.drift.severity import Level, Profile, assess, covers
from assay_stream.model.fields import Direction
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import KINDS, Kind
from assay_stream.registry.shadowing import SAME_NAME
from assay_stream.schemes.assay.manifest import action_class


class _Sign(NamedTuple):
    rule: str
    level: int


def severity_under(profile: Profile) -> Callable[[Finding], int]:
    """Return the function that tells how severe a finding is: an OCSF severity id.

    What a peer's table does not look at is informational under it: it stays in the log, and is no alarm.

    Args:
        profile: one of ``drift.severity.PROFILES``.
    """

    def severity(finding: Finding) -> int:
        changes = [Change(code, path, None, None, Direction(way)) for code, path, way in finding.changes]
        if not covers(profile, finding.kind.value, changes):
            return int(Level.INFORMATIONAL)
        level = assess(
            profile,
            finding.kind.value,
            changes,
            [_Sign(rule, level) for rule, level, _ in finding.signs],
            privileged=finding.tool_name is not None and action_class(finding.tool_name) is not None,
            default=default_level(finding.kind, finding.reason),
        )
        return int(level)

    return severity


def default_level(kind: Kind, reason: str | None) -> Level:
    """Return the level of a kind of finding where a profile says nothing of it."""
    # Fleets hold many versions of one product: an equal name alone is no alarm.
    if kind is Kind.TOOL_SHADOWED and reason == SAME_NAME:
        return Level.LOW
    return Level(KINDS[kind].severity_id)
