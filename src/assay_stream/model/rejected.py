"""What becomes of events: what ``ingest`` answers and remembers, and what is written for records that are refused."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Annotated, Literal

import orjson
from pydantic import ConfigDict, Field, StringConstraints
from typing_extensions import TypedDict

from assay_stream.errors import InputError, IntegrityError
from assay_stream.model.cloudevents import identifier_of, log_time_us
from assay_stream.model.fields import Base64, Closed, Digits, Natural
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Output, Record, rejected

MARK_BYTES = 16
"""Of the digest of an event's identity: a second event with the same ones is not to be found by trying."""

Mark = bytes
"""What stands for an event: a digest of its observer, its source and its id."""

OutcomeCode = Literal["accepted", "duplicate", "refused", "unavailable"]


class ErrorDetail(Closed):
    """Why something was refused. The code is that of ``assay.rejected`` where a stage would refuse the event, too."""

    code: str
    message: str
    path: Annotated[str | None, Field(description="JSON path of the field that is wrong.")] = None


class EventOutcome(Closed):
    """What became of one event.

    ``accepted``: acknowledged by Kafka. ``duplicate``: it was accepted before. ``refused``: it never will be accepted.
    ``unavailable``: not known to be stored; send it again. ``recorded``: a refused list that was published all the
    same, so that calls are no longer bound to the list before it.
    """

    index: Annotated[Natural, Field(description="Place of the event in the request.")]
    outcome: OutcomeCode
    recorded: bool = False
    error: ErrorDetail | None = None
    ignored: Annotated[
        list[str] | None, Field(description="Up to 8 members of a call's data that its schema does not have.")
    ] = None


class IngestAnswer(Closed):
    """What became of each event of a request, in the order of the request."""

    outcomes: list[EventOutcome]


class RequestRefusal(Closed):
    """Why a request was refused as a whole. Nothing of it was published."""

    error: ErrorDetail


class AcceptedEvents(TypedDict):
    """Events that were accepted and acknowledged together."""

    ids: list[Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]]


def mark_of(observer_id: str, source: str, event_id: str) -> Mark:
    return sha256(orjson.dumps([observer_id, source, event_id])).digest()[:MARK_BYTES]


def write_accepted(marks: Sequence[Mark]) -> bytes:
    return orjson.dumps({"ids": [mark.hex() for mark in marks]})


def read_accepted(value: bytes | None) -> list[Mark]:
    """Return the events that a record of the topic names.

    Raises:
        IntegrityError: ``unknown_fact`` if it is anything else.
    """
    try:
        marks = [bytes.fromhex(text) for text in orjson.loads(value or b"")["ids"]]
    except (ValueError, TypeError, KeyError):
        marks = [b""]
    if any(len(mark) != MARK_BYTES for mark in marks):
        raise IntegrityError(
            "unknown_fact", "the topic of accepted events holds a record that ingest did not write: see who may write"
        )
    return marks


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
