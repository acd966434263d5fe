"""What else stands in the finding topic: what puts an end to alerts, and what an operator will not hear of.

They are written by the registry, into the partition of the findings that they are about, so that the alert stage
reads all of it in one order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import orjson

from assay_stream.canonical.digest import canonicalize
from assay_stream.errors import IntegrityError
from assay_stream.model.control_facts import SuppressionDecision
from assay_stream.model.finding import Finding, decode_finding
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin, Output, Role
from assay_stream.model.suppression import ANY_SERVER, SuppressionRule
from assay_stream.registry.name_claim import CLAIM, NameClaim, claim_of

RESOLUTION = "resolution"
SUPPRESSION = "suppression"
TICK = "tick"
FLOOD_END = "flood_end"

Reason = Literal["definition_returned", "list_completed", "signature_returned", "decided", "no_longer_offered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """Something that alerts were about stands no more.

    Args:
        server_id: the server.
        uids: the alerts.
        reason: what put an end to it.
        observer_id: for which observer, ``None`` for the whole fleet.
        everywhere: nobody else is known to see it; what was told of no observer by name has ended with it.
        time_us: event time, microseconds since the epoch.
        origin: the record that it follows from.
    """

    server_id: str
    uids: tuple[str, ...]
    reason: Reason
    observer_id: str | None
    time_us: int
    origin: Origin
    everywhere: bool = False

    def output(self) -> Output:
        """Return the resolution as a record for the finding topic."""
        fields = {
            "kind": RESOLUTION,
            "server_id": self.server_id,
            "uids": list(self.uids),
            "reason": self.reason,
            "observer_id": self.observer_id,
            "time_us": self.time_us,
            "origin": self.origin.as_json(),
            "everywhere": self.everywhere,
        }
        return Output(
            role=Role.FINDINGS,
            key=self.server_id.encode(),
            value=canonicalize({name: value for name, value in fields.items() if value is not None}),
            timestamp_ms=self.time_us // 1_000,
            label=f"resolution:{self.reason}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression:
    """A suppression rule was set, or taken back.

    Args:
        rule: the rule.
        is_set: whether it is in force from now on.
        time_us: event time, microseconds since the epoch.
    """

    rule: SuppressionRule
    is_set: bool
    time_us: int

    def output(self, *, partition: int | None = None) -> Output:
        """Return the record for the finding topic.

        Args:
            partition: where it goes; ``None`` for the partition of its server.
        """
        fields = {
            "kind": SUPPRESSION,
            "rule": self.rule.as_json(),
            "is_set": self.is_set,
            "time_us": self.time_us,
        }
        return Output(
            role=Role.FINDINGS,
            key=self.rule.server_id.encode(),
            value=canonicalize(fields),
            timestamp_ms=self.time_us // 1_000,
            partition=partition,
            label=f"suppression:{'set' if self.is_set else 'removed'}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has come this far: what is due may be written, though nothing was found.

    The alert stage writes it into the partitions that it owns, so that time arrives as a record like all else.

    Args:
        time_us: microseconds since the epoch.
    """

    time_us: int

    def encode(self) -> bytes:
        """Return the tick as the finding topic carries it (JCS)."""
        return canonicalize({"kind": TICK, "time_us": self.time_us})


@dataclass(frozen=True, slots=True, kw_only=True)
class FloodEnd:
    """Everything found in a record stands before this: written where that is more than is alerted one by one.

    Args:
        server_id: the server.
        findings: how many findings there were.
        time_us: their event time, microseconds since the epoch.
        origin: the record that they follow from.
    """

    server_id: str
    findings: int
    time_us: int
    origin: Origin

    def output(self) -> Output:
        """Return the end as a record for the finding topic."""
        fields = {
            "kind": FLOOD_END,
            "server_id": self.server_id,
            "findings": self.findings,
            "time_us": self.time_us,
            "origin": self.origin.as_json(),
        }
        return Output(
            role=Role.FINDINGS,
            key=self.server_id.encode(),
            value=canonicalize(fields),
            timestamp_ms=self.time_us // 1_000,
            label="flood_end",
        )


def suppression_records(decision: SuppressionDecision, partitions: int) -> list[Output]:
    """Return the records that hand a rule to the alert stage: in the partition of its server, or in all of them.

    All it is for every server, and where alerts of shadowed tools are among what the rule covers.

    Args:
        decision: what the operator decided.
        partitions: how many partitions the finding topic has.
    """
    rule = SuppressionRule(
        id=decision.id,
        server_id=decision.server_id,
        tool=decision.tool,
        kind=decision.kind,
        field=decision.field,
        until_us=decision.until_us,
        author=decision.author,
        reason=decision.reason,
    )
    entry = Suppression(rule=rule, is_set=decision.is_set, time_us=decision.time_us)
    # Alerts of shadowed tools stand where the look-alikes of the name do, whichever partition that is.
    if rule.server_id != ANY_SERVER and rule.kind not in (None, Kind.TOOL_SHADOWED.value):
        return [entry.output()]
    return [entry.output(partition=number) for number in range(partitions)]


Entry = Finding | FloodEnd | NameClaim | Resolution | Suppression | Tick


def decode_entry(value: bytes | None) -> Entry:
    """Return what a record of the finding topic holds.

    Args:
        value: value bytes.

    Raises:
        IntegrityError: ``unknown_finding`` where it is nothing that this version knows.
    """
    try:
        fields: dict[str, Any] = orjson.loads(value or b"")
        if fields["kind"] == RESOLUTION:
            return Resolution(
                server_id=fields["server_id"],
                uids=tuple(fields["uids"]),
                reason=fields["reason"],
                observer_id=fields.get("observer_id"),
                time_us=fields["time_us"],
                origin=Origin(**fields["origin"]),
                everywhere=fields["everywhere"],
            )
        if fields["kind"] == CLAIM:
            return claim_of(fields)
        if fields["kind"] == TICK:
            return Tick(time_us=int(fields["time_us"]))
        if fields["kind"] == FLOOD_END:
            return FloodEnd(
                server_id=fields["server_id"],
                findings=int(fields["findings"]),
                time_us=int(fields["time_us"]),
                origin=Origin(**fields["origin"]),
            )
        if fields["kind"] == SUPPRESSION:
            rule = SuppressionRule.from_json(fields["rule"])
            return Suppression(rule=rule, is_set=fields["is_set"], time_us=fields["time_us"])
    except (ValueError, TypeError, KeyError):
        raise IntegrityError(
            "unknown_finding",
            "the finding topic holds a record this version cannot read: run the version that wrote it",
        ) from None
    return decode_finding(value)
