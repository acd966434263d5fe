"""What is written for a record that is refused: its copy, and a finding where it was set aside unread."""

from __future__ import annotations

from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Output, Record, rejected

UNKNOWN_SERVER = "(unknown)"
"""Server of a finding about a record whose key names none."""


def refusal(record: Record, error: InputError) -> list[Output]:
    outputs = [rejected(record, error)]
    if record.set_aside:
        finding = Finding(
            kind=Kind.RECORD_SET_ASIDE,
            server_id=server_named_by_key(record) or UNKNOWN_SERVER,
            time_us=record.timestamp_ms * 1_000,
            origin=record.origin,
            reason=error.code,
        )
        outputs.append(finding.output())
    return outputs


def server_named_by_key(record: Record, limits: Limits = DEFAULT_LIMITS) -> str | None:
    """Return the server that a record's key names; ``None`` where it names none."""
    if not record.key or len(record.key) > limits.identifier_chars_max * 4:
        return None
    try:
        server_id = record.key.decode()
    except UnicodeDecodeError:
        return None
    return server_id if len(server_id) <= limits.identifier_chars_max and server_id.strip() else None
