"""What the logs say around one alert: who saw it, what ended it, which rules suppress it, which calls used the tool."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from assay_stream.alerts.shadowing import shadow_of
from assay_stream.alerts.state import FURTHER_OBSERVERS
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.alert_state import UNNAMED_OBSERVER
from assay_stream.model.finding import Finding
from assay_stream.model.finding_topic import Entry, NameClaim, Resolution, Suppression
from assay_stream.model.suppression import ANY_SERVER, SuppressionRule

_ENDS_MAX = 20


@dataclass(slots=True)
class Sighting:
    """What one observer saw.

    Args:
        count: findings.
        first_us: event time of the earliest, microseconds since the epoch.
        last_us: event time of the latest.
    """

    count: int
    first_us: int
    last_us: int


class End(NamedTuple):
    """Why the alert ended.

    Args:
        time_us: event time, microseconds since the epoch.
        observer_id: the observer it ended for, ``None`` for all.
    """

    time_us: int
    reason: str
    observer_id: str | None


class Sightings:
    """Entries of the finding topic about one alert.

    Args:
        tool_name: its tool, ``None`` where it is about none.
    """

    def __init__(self, uid: str, server_id: str, tool_name: str | None) -> None:
        self._uid = uid
        self._server_id = server_id
        self._tool_name = tool_name
        self.by_observer: dict[str, Sighting] = {}
        self.last: Finding | None = None
        self.ends: deque[End] = deque(maxlen=_ENDS_MAX)
        self.rules: dict[tuple[str, str], SuppressionRule] = {}

    def add(self, entry: Entry) -> None:
        """Add an entry of the alert's partition. Entries come in the order of the log."""
        match entry:
            case Finding():
                mine = (self._server_id, self._tool_name) == (entry.server_id, entry.tool_name)
                if mine and entry.uid() == self._uid:
                    self._seen(entry)
            case NameClaim():
                self._claimed(entry)
            case Resolution():
                if self._uid in entry.uids:
                    self.ends.append(End(entry.time_us, entry.reason, entry.observer_id))
            case Suppression():
                key = (entry.rule.server_id, entry.rule.id)
                if not entry.is_set:
                    self.rules.pop(key, None)
                elif entry.rule.server_id in (self._server_id, ANY_SERVER):
                    self.rules[key] = entry.rule

    def rule(self, rule_id: str) -> SuppressionRule | None:
        """Return the rule of this name in force for the server, its own before one for every server."""
        return self.rules.get((self._server_id, rule_id)) or self.rules.get((ANY_SERVER, rule_id))

    def _claimed(self, claim: NameClaim) -> None:
        """Record a claim: the topic has no finding of a shadowed tool, so claims show when it came and went."""
        if claim.server_id != self._server_id or shadow_of(claim, self._uid) is None:
            return
        if claim.is_offered and not claim.approved:
            self._count(UNNAMED_OBSERVER, claim.time_us)
        else:
            self.ends.append(End(claim.time_us, "decided" if claim.approved else "no_longer_offered", None))

    def _seen(self, finding: Finding) -> None:
        self.last = finding
        self._count(finding.observer_id or UNNAMED_OBSERVER, finding.time_us)

    def _count(self, name: str, time_us: int) -> None:
        if name not in self.by_observer and len(self.by_observer) >= DEFAULT_LIMITS.alert_observers_max:
            name = FURTHER_OBSERVERS
        known = self.by_observer.setdefault(name, Sighting(0, time_us, time_us))
        known.count += 1
        known.first_us = min(known.first_us, time_us)
        known.last_us = max(known.last_us, time_us)


CALLS_NAMED_MAX = 20
"""Calls that are listed individually."""


class CallSummary(NamedTuple):
    """One call.

    Args:
        time_ms: event time, milliseconds since the epoch.
        tool_call_id: the id given by the proxy.
        observer_id: the proxy.
        decision: what the proxy did.
    """

    time_ms: int
    evidence_id: str
    tool_call_id: str
    observer_id: str
    decision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallsSince:
    """The calls of one tool since a time, grouped by the definition that they were bound to.

    Args:
        full_digest: the definition asked about, ``None`` where every call counts.
        since_ms: event time, milliseconds since the epoch.
        used: calls bound to it.
        unbound: calls bound to no definition.
        other: calls bound to another one.
        latest: those that used it, latest first.
    """

    full_digest: str | None
    since_ms: int
    used: int = 0
    unbound: int = 0
    other: int = 0
    latest: tuple[CallSummary, ...] = ()
