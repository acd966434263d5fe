"""One difference between a replay and what was recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from assay_stream.model.record import Origin
from assay_stream.replay.evidence_record import Recorded
from assay_stream.verify.alert_ledger import ORDER_OF_READING


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One difference between the replay and what was recorded.

    Args:
        what: ``evidence`` or ``alert``.
        causes: why, sorted.
        server_id: the server that it is about.
        tool_name: the tool that it is about.
        call: of evidence, the call.
        record_id: ``id`` of the evidence, or ``uid`` of the alert.
        paths: the members that differ, as JSON paths.
        left_out: the first record of each log that the recorded run did not have.
        records: of an alert, which of its records differ.
        kind: of an alert, what was found.
    """

    what: str
    causes: tuple[str, ...]
    server_id: str | None = None
    tool_name: str | None = None
    call: Origin | None = None
    record_id: str | None = None
    paths: tuple[str, ...] = ()
    left_out: tuple[Origin, ...] = ()
    records: tuple[str, ...] = ()
    kind: str | None = None

    @property
    def counts(self) -> bool:
        """Whether it is one: what follows the order of reading is told, and is none."""
        return self.causes != (ORDER_OF_READING,)

    def as_json(self) -> dict[str, Any]:
        """Return the difference as one JSON object, without what is absent."""
        fields: dict[str, Any] = {
            "what": self.what,
            "kind": self.kind,
            "causes": list(self.causes),
            "server_id": self.server_id,
            "tool_name": self.tool_name,
            "call": None if self.call is None else self.call.as_json(),
            "id": self.record_id,
            "paths": list(self.paths),
            "left_out": [origin.as_json() for origin in self.left_out],
            "records": list(self.records),
        }
        return {name: value for name, value in fields.items() if value not in (None, [])}


def of_evidence(
    evidence: Recorded, *causes: str, paths: tuple[str, ...] = (), left_out: tuple[Origin, ...] = ()
) -> Difference:
    """Return a difference of evidence.

    Args:
        evidence: the record, or what the replay has in its place.
        causes: why.
        paths: the members that differ.
        left_out: the first record of each log that the recorded run did not have.
    """
    record_id = evidence.content.get("id")
    return Difference(
        what="evidence",
        causes=tuple(sorted(causes)),
        server_id=evidence.text("server_id"),
        tool_name=evidence.text("tool"),
        call=evidence.call,
        record_id=record_id if isinstance(record_id, str) else None,
        paths=paths,
        left_out=left_out,
    )
