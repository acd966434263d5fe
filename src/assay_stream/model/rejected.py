"""Records that are refused: what is written for them, in the topic and in files."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from assay_stream.errors import InputError
from assay_stream.model.cloudevents import identifier_of, log_time_us
from assay_stream.model.fields import Base64, Closed, Digits
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


class RejectedError(Closed):
    """The ``error.*`` headers of a rejected record."""

    code: str
    message: str
    topic: str
    partition: Digits
    offset: Digits


class RejectedHeaders(RejectedError):  # noqa: N818 -- no exception
    """Kafka headers of a rejected record. The original headers stand before them; value and key are kept."""

    model_config = ConfigDict(extra="allow", alias_generator="error.{}".format)


class RejectedLine(Closed):
    """A rejected record as a line of ``rejected.ndjson``; ``*_base64`` holds bytes that are no UTF-8."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": ["key"]}, {"required": ["key_base64"]}],
            "anyOf": [{"required": ["value"]}, {"required": ["value_base64"]}],
        }
    )

    error: RejectedError
    key: Annotated[str | None, Field(json_schema_extra={"type": ["string", "null"]})] = None
    key_base64: Base64 | None = None
    value: Annotated[str | None, Field(json_schema_extra={"type": ["string", "null"]})] = None
    value_base64: Base64 | None = None
    headers: list[tuple[str, str]]
    headers_base64: list[tuple[str, Base64]] | None = None
