"""What is written for a record that is refused: its copy, and a finding where it was set aside unread."""

from __future__ import annotations

from assay_stream.errors import InputError
from assay_stream.model.cloudevents import identifier_of, log_time_us
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
            server_id=identifier_of(record.key) or UNKNOWN_SERVER,
            time_us=log_time_us(record),
            origin=record.origin,
            reason=error.code,
        )
        outputs.append(finding.output())
    return outputs
