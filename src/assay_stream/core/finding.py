"""Findings: facts about drift and about calls, as they were found. Attention is the alert stage's business."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from assay_stream.core.digest import canonicalize, jcs_digest
from assay_stream.core.errors import IntegrityError
from assay_stream.core.record import Origin, Output, Role


class Kind(StrEnum):
    """What was found. ``KINDS`` says what each means."""

    TOOL_ADDED = "tool_added"
    TOOL_REMOVED = "tool_removed"
    TOOL_CHANGED = "tool_changed"
    DEFINITION_AMBIGUOUS = "definition_ambiguous"
    SNAPSHOT_REJECTED = "snapshot_rejected"
    SERVER_MISROUTED = "server_misrouted"
    CALL_TO_UNLISTED_TOOL = "call_to_unlisted_tool"
    PIN_MISMATCH = "pin_mismatch"
    UNPINNED_TOOL = "unpinned_tool"
    BLOCKED_TOOL_CALLED = "blocked_tool_called"
    SIGNATURE_INVALID = "signature_invalid"
    SIGNATURE_MISSING = "signature_missing"
    KEY_CHANGED = "key_changed"
    KEY_REVOKED = "key_revoked"
    CONTRACT_VIOLATION = "contract_violation"


@dataclass(frozen=True, slots=True, kw_only=True)
class KindInfo:
    """How a kind of finding reads to an analyst.

    Args:
        title: one line, without names.
        severity_id: OCSF severity, 1 informational to 5 critical.
        explanation: why it deserves attention.
    """

    title: str
    severity_id: int
    explanation: str


KINDS: dict[Kind, KindInfo] = {
    Kind.TOOL_ADDED: KindInfo(
        title="A server offers a tool it did not offer before",
        severity_id=3,
        explanation="A new tool widens what agents can be made to do. Review its definition.",
    ),
    Kind.TOOL_REMOVED: KindInfo(
        title="A server no longer offers a tool",
        severity_id=1,
        explanation="A complete list lacks a tool that was there before.",
    ),
    Kind.TOOL_CHANGED: KindInfo(
        title="The definition of a tool changed",
        severity_id=4,
        explanation="Agents read the definition as instructions. Compare both versions.",
    ),
    Kind.DEFINITION_AMBIGUOUS: KindInfo(
        title="A list holds one tool name twice, with different definitions",
        severity_id=4,
        explanation="Which definition an agent sees is up to its client. No digest is attached to its calls.",
    ),
    Kind.SNAPSHOT_REJECTED: KindInfo(
        title="A server's tool list could not be accepted",
        severity_id=4,
        explanation="Calls to the server stay unbound until the next good list. The original is in the "
        "rejected topic.",
    ),
    Kind.SERVER_MISROUTED: KindInfo(
        title="Records of a server stand in a partition that is not its own",
        severity_id=2,
        explanation="A producer partitions otherwise than murmur2 of server_id. Order between its records "
        "and others' is not kept: set the producer's partitioner.",
    ),
    Kind.CALL_TO_UNLISTED_TOOL: KindInfo(
        title="An agent called a tool that the server does not list",
        severity_id=4,
        explanation="The catalogue in force is complete and lacks the tool.",
    ),
    Kind.PIN_MISMATCH: KindInfo(
        title="A tool's definition differs from its pin",
        severity_id=5,
        explanation="The definition in force is not the one an operator pinned, or it is one that was rejected.",
    ),
    Kind.UNPINNED_TOOL: KindInfo(
        title="A tool has no pin, and the policy asks for one",
        severity_id=3,
        explanation="Nobody has decided on this definition. Review it, then approve or reject it.",
    ),
    Kind.BLOCKED_TOOL_CALLED: KindInfo(
        title="A call was allowed that the policy would have blocked",
        severity_id=5,
        explanation="The proxy let the call through. Have it enforce the verdict topic, or set its own policy.",
    ),
    Kind.SIGNATURE_INVALID: KindInfo(
        title="A tool's signature does not hold",
        severity_id=4,
        explanation="The definition is not what the holder of the domain's key signed, or the key cannot be told.",
    ),
    Kind.SIGNATURE_MISSING: KindInfo(
        title="A tool that came signed before comes without a signature",
        severity_id=4,
        explanation="Whoever changes a signed definition must drop its signature. Ask its developer.",
    ),
    Kind.KEY_CHANGED: KindInfo(
        title="A tool is signed with another key than the one it is pinned to",
        severity_id=5,
        explanation="A new key counts only after an operator accepts it. Ask its developer by another way.",
    ),
    Kind.KEY_REVOKED: KindInfo(
        title="A tool is signed with a revoked key",
        severity_id=5,
        explanation="Its developer or an operator took the key back. Do not rely on anything it signed.",
    ),
    Kind.CONTRACT_VIOLATION: KindInfo(
        title="A tool changed what it may do without a new major version",
        severity_id=4,
        explanation="Side effects and required capabilities are a promise that only a major version may change.",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing found in one record.

    Args:
        kind: what was found.
        server_id: on which server.
        tool_name: about which tool, ``None`` where it is about the server.
        observer_id: who saw it, ``None`` where that is not known.
        time_us: event time of the record it was found in, microseconds since the epoch.
        origin: that record.
        snapshot_id: the snapshot it was found in, if any.
        before: full digest of the definition before.
        after: full digest of the definition after.
        changed_fields: top-level fields of the definition that differ.
        known: another observation of this server had shown the same before.
        reason: the stable code behind it, where the kind alone does not say enough; for keys, the key.
        scheme: of a pin, the scheme that it is under.
        expected: of a pin, the value that was approved.
        observed: of a pin, the value that was observed.
        enforcement: of a policy, what it asks for.
        action: of a policy, what it would have done.
    """

    kind: Kind
    server_id: str
    time_us: int
    origin: Origin
    tool_name: str | None = None
    observer_id: str | None = None
    snapshot_id: str | None = None
    before: str | None = None
    after: str | None = None
    changed_fields: tuple[str, ...] = ()
    known: bool = False
    reason: str | None = None
    scheme: str | None = None
    expected: str | None = None
    observed: str | None = None
    enforcement: str | None = None
    action: str | None = None

    def uid(self) -> str:
        """Return the identity of what was found: the same on every observer, every time, live or replayed."""
        subject = [self.kind.value, self.server_id, self.tool_name, self.after or self.before, self.reason]
        return jcs_digest(subject).hex

    def encode(self) -> bytes:
        """Return the finding as the finding topic carries it (JCS)."""
        fields = {
            "kind": self.kind.value,
            "uid": self.uid(),
            "server_id": self.server_id,
            "tool_name": self.tool_name,
            "observer_id": self.observer_id,
            "time_us": self.time_us,
            "origin": self.origin.as_json(),
            "snapshot_id": self.snapshot_id,
            "before": self.before,
            "after": self.after,
            "changed_fields": list(self.changed_fields),
            "known": self.known,
            "reason": self.reason,
            "scheme": self.scheme,
            "expected": self.expected,
            "observed": self.observed,
            "enforcement": self.enforcement,
            "action": self.action,
        }
        return canonicalize({name: value for name, value in fields.items() if value is not None})

    def output(self) -> Output:
        """Return the finding as a record for the finding topic."""
        return Output(
            role=Role.FINDINGS,
            key=self.server_id.encode(),
            value=self.encode(),
            timestamp_ms=self.time_us // 1_000,
            label=f"finding:{self.kind.value}",
        )


def decode_finding(value: bytes | None) -> Finding:
    """Return the finding that a record of the finding topic holds.

    Args:
        value: value bytes.

    Raises:
        IntegrityError: where the record is not a finding that this version knows.
    """
    try:
        fields: dict[str, Any] = orjson.loads(value or b"")
        fields.pop("uid")
        fields["kind"] = Kind(fields["kind"])
        fields["origin"] = Origin(**fields["origin"])
        fields["changed_fields"] = tuple(fields["changed_fields"])
        return Finding(**fields)
    except (ValueError, TypeError, KeyError):
        raise IntegrityError(
            "unknown_finding",
            "the finding topic holds a record this version cannot read: run the version that wrote it",
        ) from None
