"""Who judges an arrival: our system and the two baselines, each as one function that gives a level.

``assay_stream`` is what ``score`` measures as our system.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay_stream.alerts.processor import apply_entry
from assay_stream.alerts.remembered import Alerts
from assay_stream.alerts.rules import AlertRules
from assay_stream.canonical.digest import jcs_digest
from assay_stream.drift.severity import DEFAULT_PROFILE
from assay_stream.model.fields import Subject
from assay_stream.model.finding import NameClaim
from assay_stream.model.record import Origin, Output
from assay_stream.registry.name_claims import OfferedClaims, claims_between
from assay_stream.report.drift import RecordedLists, drift_findings
from assay_stream.schemes import mcptrust_lockfile as lockfile
from assay_stream.schemes.mcptrust_lockfile import lock

Tool = Mapping[str, Any]

INFORMATIONAL, LOW, MEDIUM, HIGH, CRITICAL = range(1, 6)

_OURS = "the server that is judged"
_RULES = AlertRules(version="bench")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What else is known when a list arrives.

    Args:
        known: digests of every definition that any observer has seen on this server.
        others: the tools of other servers, by server.
        is_complete: whether the list that arrived is complete.
    """

    known: frozenset[str] = frozenset()
    others: Mapping[str, Sequence[Tool]] = field(default_factory=dict)
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


MCPTRUST_LEVELS = {
    lockfile.McpTrustSeverity.INFO: INFORMATIONAL,
    lockfile.McpTrustSeverity.MODERATE: MEDIUM,
    lockfile.McpTrustSeverity.CRITICAL: CRITICAL,
}


def mcptrust(before: Sequence[Tool], after: Sequence[Tool], fleet: Fleet) -> int:  # noqa: ARG001 -- a Judge
    """Judge by the severity table that MCPTrust publishes.

    Args:
        before: what the observer had seen.
        after: what it sees.
        fleet: not looked at.
    """
    items = lockfile.drift(lock({"tools": list(before)}), {"tools": list(after)})
    return max((MCPTRUST_LEVELS[lockfile.PUBLISHED[item.change]] for item in items), default=0)


def assay_stream(before: Sequence[Tool], after: Sequence[Tool], fleet: Fleet) -> int:
    """Judge as the stream does: by meaning, by what was introduced, and by whose names are taken; profile ``soc``.

    Args:
        before: what the observer had seen.
        after: what it sees.
        fleet: what the fleet knows.
    """
    was = RecordedLists(lists={Subject.TOOL: [dict(tool) for tool in before]}, complete=True)
    now = RecordedLists(lists={Subject.TOOL: [dict(tool) for tool in after]}, complete=fleet.is_complete)
    findings = drift_findings(was, now, profile=DEFAULT_PROFILE, known=fleet.known)
    return max([*(int(finding.level) for finding in findings), *_shadowing_levels(before, after, fleet)], default=0)


def _shadowing_levels(before: Sequence[Tool], after: Sequence[Tool], fleet: Fleet) -> Iterator[int]:
    """Yield the level of each shadow that the arrival adds to what was there: other servers first, then ours."""
    offered_before = _offered(before)
    offered_after = _offered(after) if fleet.is_complete else {**offered_before, **_offered(after)}
    claims = [
        *(claim for server, tools in fleet.others.items() for claim in _claims({}, _offered(tools), server, offset=0)),
        *_claims({}, offered_before, _OURS, offset=1),
    ]
    alerts = Alerts(_RULES)
    for offset, claim in enumerate(claims):
        _read(alerts, claim, offset)
    for offset, claim in enumerate(_claims(offered_before, offered_after, _OURS, offset=2), len(claims)):
        yield from (json.loads(alert.value or b"")["severity_id"] for alert in _read(alerts, claim, offset))


def _offered(tools: Sequence[Tool]) -> OfferedClaims:
    return {(tool["name"], str(jcs_digest(tool))): False for tool in tools}


def _claims(before: OfferedClaims, after: OfferedClaims, server_id: str, *, offset: int) -> Iterator[NameClaim]:
    origin = Origin(topic="bench", partition=0, offset=offset)
    return claims_between(before, after, server_id, (offset, origin), had_complete=bool(before))


def _read(alerts: Alerts, claim: NameClaim, offset: int) -> list[Output]:
    return apply_entry(alerts, claim, place=Origin(topic="bench", partition=0, offset=offset))


JUDGES: dict[str, Judge] = {"assay-stream": assay_stream, "any change": any_change, "mcptrust": mcptrust}
"""Who is scored, by the name in the table."""
