"""Who judges an arrival: our system and the two baselines, each as one function that gives a level.

``assay_stream`` is what ``score`` measures as our system.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay_stream.core.digest import jcs_digest
from assay_stream.core.meaning import Subject
from assay_stream.core.severity import DEFAULT_PROFILE
from assay_stream.forensics.drift_report import Offer, drift_findings
from assay_stream.schemes import mcptrust_drift

Tool = Mapping[str, Any]

INFORMATIONAL, LOW, MEDIUM, HIGH, CRITICAL = range(1, 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What else is known when a list arrives.

    Args:
        known: digests of every definition that any observer has seen on this server.
        others: the tools of other servers.
        is_complete: whether the list that arrived is complete.
    """

    known: frozenset[str] = frozenset()
    others: Sequence[Tool] = field(default_factory=tuple)
    is_complete: bool = True


Judge = Callable[[Sequence[Tool], Sequence[Tool], Fleet], int]
"""The level of the gravest thing that an arrival shows; 0 where it shows nothing."""


def any_change(before: Sequence[Tool], after: Sequence[Tool], fleet: Fleet) -> int:  # noqa: ARG001 -- a Judge
    """Judge as a plain comparison does: whatever differs is an alert.

    Args:
        before: what the observer had seen.
        after: what it sees.
        fleet: not looked at.
    """
    return HIGH if [jcs_digest(tool) for tool in before] != [jcs_digest(tool) for tool in after] else 0


_MCPTRUST_LEVELS = {
    mcptrust_drift.Severity.INFO: INFORMATIONAL,
    mcptrust_drift.Severity.MODERATE: MEDIUM,
    mcptrust_drift.Severity.CRITICAL: CRITICAL,
}


def mcptrust(before: Sequence[Tool], after: Sequence[Tool], fleet: Fleet) -> int:  # noqa: ARG001 -- a Judge
    """Judge by the severity table that MCPTrust publishes.

    Args:
        before: what the observer had seen.
        after: what it sees.
        fleet: not looked at.
    """
    items = mcptrust_drift.drift_between({"tools": list(before)}, {"tools": list(after)})
    return max((_MCPTRUST_LEVELS[mcptrust_drift.PUBLISHED[item.change]] for item in items), default=0)


def assay_stream(before: Sequence[Tool], after: Sequence[Tool], fleet: Fleet) -> int:
    """Judge as the stream does: by meaning and by what was introduced, under the profile ``soc``.

    Args:
        before: what the observer had seen.
        after: what it sees.
        fleet: what the fleet knows; other servers' tools are not looked at.
    """
    was = Offer(lists={Subject.TOOL: [dict(tool) for tool in before]}, complete=True)
    now = Offer(lists={Subject.TOOL: [dict(tool) for tool in after]}, complete=fleet.is_complete)
    findings = drift_findings(was, now, profile=DEFAULT_PROFILE, known=fleet.known)
    return max((int(finding.level) for finding in findings), default=0)


JUDGES: dict[str, Judge] = {
    "assay-stream": assay_stream,
    "any change": any_change,
    "mcptrust": mcptrust,
}
"""Who is scored, by the name in the table."""
