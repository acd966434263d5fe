"""Findings: facts about drift and about calls, as they were found. Attention is the alert stage's business."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import orjson

from assay_stream.canonical.digest import canonicalize, jcs_digest
from assay_stream.errors import IntegrityError
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin, Output, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing found in one record.

    Args:
        kind: what was found.
        server_id: on which server.
        tool_name: about which tool, ``None`` where it is about none.
        item_name: about which prompt, by name, or which resource template, by URI template.
        observer_id: who saw it, ``None`` where that is not known.
        time_us: event time of the record it was found in, microseconds since the epoch; of a late one, when that
            showed.
        origin: that record.
        snapshot_id: the snapshot it was found in, if any.
        before: full digest of the definition before.
        after: full digest of the definition after.
        changed_fields: top-level fields of the definition that differ.
        known: another observation of this server had shown the same before.
        approved: it is known, and matches what operators pinned.
        offered_elsewhere: it is known, and another observer is still offered it.
        left_out: of an analysis that was cut short, codes of what was left out.
        counted: of a rationed list, kinds of findings that were counted instead of reported, and how many of each.
        reason: the stable code behind it, where the kind alone does not say enough; for keys, the key.
        scheme: of a pin, the scheme that it is under.
        expected: of a pin, the value that was approved.
        observed: of a pin, the value that was observed.
        enforcement: of a policy, what it asks for.
        action: of a policy, what it would have done.
        renamed_to: of a renamed tool, its new name.
        changes: what changed, by meaning: code, path and direction; of one code in one field the first.
        signs: what new text brings: rule, OCSF severity id and path.
        late_ms: of a late list, how long before the latest one its event time lies.
    """

    kind: Kind
    server_id: str
    time_us: int
    origin: Origin
    tool_name: str | None = None
    item_name: str | None = None
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
    renamed_to: str | None = None
    changes: tuple[tuple[str, str, str], ...] = ()
    signs: tuple[tuple[str, int, str], ...] = ()
    late_ms: int | None = None
    approved: bool = False
    offered_elsewhere: bool = False
    left_out: tuple[str, ...] = ()
    counted: tuple[tuple[str, int], ...] = ()

    def uid(self) -> str:
        """Return the identity of what was found: the same on every observer, every time, live or replayed."""
        full = self.after or self.before
        return uid_of(self.kind, self.server_id, self.tool_name, full, self.reason, item_name=self.item_name)

    def encode(self) -> bytes:
        """Return the finding as the finding topic carries it (JCS)."""
        return canonicalize(finding_fields(self))

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
        return finding_of(orjson.loads(value or b""))
    except (ValueError, TypeError, KeyError):
        raise IntegrityError(
            "unknown_finding",
            "the finding topic holds a record this version cannot read: run the version that wrote it",
        ) from None


def uid_of(
    kind: Kind,
    server_id: str,
    tool_name: str | None,
    full: str | None,
    reason: str | None,
    *,
    item_name: str | None = None,
) -> str:
    """Return the identity of what is found, from what it is about.

    Args:
        kind: what is found.
        server_id: on which server.
        tool_name: about which tool, if about one.
        full: full digest of the definition it is about, if about one.
        reason: the stable code behind it, if there is one.
        item_name: about which prompt or resource template, if about one.
    """
    what = [kind.value, server_id, tool_name, full, reason]
    if item_name is not None:
        what.append(item_name)
    try:
        # A list of texts is canonical as orjson writes it.
        return sha256(orjson.dumps(what)).hexdigest()
    except orjson.JSONEncodeError:
        return jcs_digest(what).hex


def finding_fields(finding: Finding) -> dict[str, Any]:
    """Return a finding as a JSON object, without what is absent.

    Args:
        finding: the finding.
    """
    fields = {
        "kind": finding.kind.value,
        "uid": finding.uid(),
        "server_id": finding.server_id,
        "tool_name": finding.tool_name,
        "item_name": finding.item_name,
        "observer_id": finding.observer_id,
        "time_us": finding.time_us,
        "origin": finding.origin.as_json(),
        "snapshot_id": finding.snapshot_id,
        "before": finding.before,
        "after": finding.after,
        "changed_fields": list(finding.changed_fields),
        "known": finding.known,
        "reason": finding.reason,
        "scheme": finding.scheme,
        "expected": finding.expected,
        "observed": finding.observed,
        "enforcement": finding.enforcement,
        "action": finding.action,
        "renamed_to": finding.renamed_to,
        "changes": [list(change) for change in finding.changes] or None,
        "signs": [list(sign) for sign in finding.signs] or None,
        "late_ms": finding.late_ms,
        "approved": finding.approved or None,
        "offered_elsewhere": finding.offered_elsewhere or None,
        "left_out": list(finding.left_out) or None,
        "counted": [list(kind) for kind in finding.counted] or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def finding_of(fields: Mapping[str, Any]) -> Finding:
    """Return the finding that a JSON object holds.

    Args:
        fields: what ``finding_fields`` gave.

    Raises:
        KeyError, ValueError or TypeError: where it is no finding.
    """
    given = dict(fields)
    given.pop("uid")
    given["kind"] = Kind(given["kind"])
    given["origin"] = Origin(**given["origin"])
    given["changed_fields"] = tuple(given["changed_fields"])
    given["changes"] = tuple((code, path, way) for code, path, way in given.get("changes", ()))
    given["left_out"] = tuple(given.get("left_out", ()))
    given["counted"] = tuple((kind, number) for kind, number in given.get("counted", ()))
    given["signs"] = tuple((rule, level, path) for rule, level, path in given.get("signs", ()))
    return Finding(**given)
