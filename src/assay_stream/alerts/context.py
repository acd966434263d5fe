"""What the logs say around one alert: who saw it, what ended it, which rules suppress it, which calls used the tool."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from assay_stream.alerts.shadowing import shadow_of
from assay_stream.alerts.state import FURTHER_OBSERVERS
from assay_stream.errors import InputError
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.alert_state import UNNAMED_OBSERVER
from assay_stream.model.cloudevents import time_us_of
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
    """What put an end to it.

    Args:
        time_us: event time, microseconds since the epoch.
        reason: what it was.
        observer_id: for whom, ``None`` for everybody.
    """

    time_us: int
    reason: str
    observer_id: str | None


class Sightings:
    """What the finding topic says of one alert.

    Args:
        uid: the alert's.
        server_id: its server.
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
        """Take one entry more, in the order of the log.

        Args:
            entry: of the partition that holds what is found about it.
        """
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
        """Return the rule of this name that is in force for the server, its own before one for every server."""
        return self.rules.get((self._server_id, rule_id)) or self.rules.get((ANY_SERVER, rule_id))

    def _claimed(self, claim: NameClaim) -> None:
        """Of a shadowed tool the topic holds no finding: the newcomer's own claims say when it came and went."""
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


LATEST_MAX = 20
"""Calls that are named one by one."""


class CallSummary(NamedTuple):
    """One call.

    Args:
        time_ms: event time, milliseconds since the epoch.
        evidence_id: id of its evidence record.
        tool_call_id: the proxy's id of it.
        observer_id: the proxy.
        decision: what the proxy did.
    """

    time_ms: int
    evidence_id: str
    tool_call_id: str
    observer_id: str
    decision: str


class Calls:
    """The calls of one tool since a time, told apart by the definition that they were bound to.

    Args:
        server_id: the server.
        tool_names: the tool, under each name that it goes by.
        full_digest: of the definition, ``None`` where the alert is about none: then every call counts.
        since_ms: from this event time on, milliseconds since the epoch.
    """

    def __init__(self, *, server_id: str, tool_names: frozenset[str], full_digest: str | None, since_ms: int) -> None:
        self._server_id = server_id
        self._tool_names = tool_names
        self.full_digest = full_digest
        self.since_ms = since_ms
        self.used = 0
        self.unbound = 0
        self.other = 0
        self._latest: list[CallSummary] = []

    def add(self, value: bytes | None) -> None:
        """Take one evidence record more, in any order.

        Args:
            value: value bytes.

        Raises:
            InputError: ``not_evidence``, or ``bad_time``.
        """
        try:
            event = orjson.loads(value or b"")
            data = event["data"]
            if data["server_id"] != self._server_id or data["tool"] not in self._tool_names:
                return
            bound = data["binding"].get("full_digest")
            named = (str(data[name]) for name in ("tool_call_id", "observer_id", "decision"))
            call = CallSummary(time_us_of(event["time"]) // 1_000, str(event["id"]), *named)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError("not_evidence", "this is no evidence record (assay.tool.decision)") from None
        if call.time_ms >= self.since_ms:
            self._count(call, bound)

    def latest(self) -> list[CallSummary]:
        return sorted(self._latest, reverse=True)

    def _count(self, call: CallSummary, bound: str | None) -> None:
        if self.full_digest is not None and bound != self.full_digest:
            if bound is None:
                self.unbound += 1
            else:
                self.other += 1
            return
        self.used += 1
        keep = heapq.heappush if len(self._latest) < LATEST_MAX else heapq.heappushpop
        keep(self._latest, call)
