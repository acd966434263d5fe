"""CloudEvents 1.0 in Kafka: both content modes in, one validated model out; and times as people write them.

Structured mode: the value is the whole event (``content-type: application/cloudevents+json``).
Binary mode: attributes in ``ce_*`` headers, the value is the data (Kafka protocol binding 1.0, section 3.2).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import ValidationError

from assay_stream.canonical.decode import decode_json
from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.model.control import CONTROL_MODELS
from assay_stream.model.observation import (
    CallData,
    CallEvent,
    CallModel,
    CallProfile,
    Envelope,
    ListChangedEvent,
    LossEvent,
    SnapshotEvent,
)
from assay_stream.model.plain_call import NativeCall, read_native, read_native_many, read_plain
from assay_stream.model.record import (
    CALL_TYPE,
    LIST_CHANGED_TYPE,
    LOSS_TYPE,
    OBSERVER_HEADER,
    SNAPSHOT_TYPE,
    Headers,
    Record,
    Role,
    erased_by,
    set_aside_error,
)
from assay_stream.schemes import assay_tool as assay, handshake_event as handshake
from assay_stream.text.times import time_us_of

_DAY_US = 86_400_000_000

Call = CallEvent | NativeCall

_MODELS: dict[Role, Mapping[str, type[Envelope]]] = {
    Role.SNAPSHOTS: {SNAPSHOT_TYPE: SnapshotEvent, LIST_CHANGED_TYPE: ListChangedEvent, LOSS_TYPE: LossEvent},
    Role.CALLS: {CALL_TYPE: CallModel},
    Role.CONTROL: CONTROL_MODELS,
}

_CODE_OF_PYDANTIC_TYPE = {
    "missing": "missing_field",
    "literal_error": "unknown_value",
    "string_too_long": "too_long",
    "string_too_short": "empty_value",
    "string_pattern_mismatch": "bad_format",
    "greater_than_equal": "out_of_range",
    "less_than_equal": "out_of_range",
    "finite_number": "out_of_range",
    "value_error": "bad_format",
    "too_long": "too_long",
}

_FIX_OF_CODE = {
    "missing_field": "the field is required: add it",
    "unknown_value": "the value is not one of the allowed ones",
    "too_long": "the text or list is longer than the limit allows: shorten it",
    "empty_value": "the text must not be empty",
    "bad_format": "the text does not have the required form",
    "out_of_range": "the number is out of range",
    "wrong_type": "the value has the wrong JSON type",
}


def read_event(record: Record, *, limits: Limits = DEFAULT_LIMITS) -> Envelope | CallEvent:
    """Decode and validate one observation or control record.

    Returns:
        The model of the event's type; a call is a ``CallEvent``.

    Raises:
        InputError: for anything other than a valid event of a type that belongs in the record's topic.
    """
    if record.role is Role.CALLS:
        return read_whole_call(record, limits=limits)
    if record.set_aside:
        raise set_aside_error()
    validated = _validated(record, limits)
    _check_time(event_time_us(validated), record, limits)
    if isinstance(validated, SnapshotEvent) and len(validated.data.tools) > limits.tools_max:
        raise InputError("too_many_tools", f"a snapshot may list {limits.tools_max} tools at most", path="$.data.tools")
    return validated


def read_call(record: Record, *, limits: Limits = DEFAULT_LIMITS, call_profile: CallProfile = "assay") -> Call:
    """Decode and validate one call, by the fast path where possible.

    Raises:
        InputError: for anything other than a valid call.
    """
    if record.set_aside:
        raise set_aside_error()
    call: Call | None = None
    if call_profile == "assay" and _may_go_short(record):
        value = record.value or b""
        call = read_native(value, limits) or read_plain(value, limits)
    if call is None:
        return read_whole_call(record, limits=limits, call_profile=call_profile)
    _check_time(call.time_us, record, limits)
    return call


def read_calls(
    records: Sequence[Record], *, limits: Limits = DEFAULT_LIMITS, call_profile: CallProfile = "assay"
) -> list[Call | InputError]:
    """Return what ``read_call`` returns or raises for each. The extension reads plain calls at lower cost."""
    short: list[NativeCall | None] = [None] * len(records)
    if call_profile == "assay":
        short = read_native_many(
            [(record.value or b"") if _may_go_short(record) else b"" for record in records], limits
        )
    time_max_us, future_max_ms = limits.time_max_s * 1_000_000, limits.future_max_ms
    calls: list[Call | InputError] = []
    for record, call in zip(records, short, strict=True):
        if call is not None:
            time_us, logged_ms = call.time_us, record.timestamp_ms
            if 0 <= time_us <= time_max_us and (logged_ms <= 0 or time_us <= (logged_ms + future_max_ms) * 1_000):
                calls.append(call)
                continue
        try:
            calls.append(read_call(record, limits=limits, call_profile=call_profile))
        except InputError as error:
            calls.append(error)
    return calls


def _may_go_short(record: Record) -> bool:
    return record.value is not None and not record.set_aside and not (record.headers and is_binary(record.headers))


def read_whole_call(
    record: Record, *, limits: Limits = DEFAULT_LIMITS, call_profile: CallProfile = "assay"
) -> CallEvent:
    """Decode and validate one call with all its fields.

    Args:
        call_profile: what every call must satisfy, whatever profile it names itself.

    Raises:
        InputError: for anything other than a valid call.
    """
    if record.set_aside:
        raise set_aside_error()
    model = _validated(record, limits)
    if not isinstance(model, CallModel):
        raise AssertionError(f"the calls topic gave a {type(model).__name__}")
    time_us = event_time_us(model)
    _check_time(time_us, record, limits)
    if not _CLUSTER_FIELDS.isdisjoint(model.data):
        assay.check_policy_cluster(model.data)
        assay.check_definition_cluster(model.data)
    if call_profile == "handshake" or model.data.get("profile") == "handshake":
        handshake.check_observed_call(model.data)
    data = _without_nulls(model.data)
    return CallEvent(
        model.source,
        model.id,
        model.time,
        time_us,
        model.traceparent,
        data["server_id"],
        data["tool_name"],
        data["observer_id"],
        data.get("snapshot_id"),
        data["decision"],
        data,
    )


def _without_nulls(given: CallData) -> CallData:
    """Return the fields of a call that are present; arguments and results may be null."""
    data: dict[str, Any] = {
        name: value for name, value in given.items() if value is not None or name in ("args", "result")
    }
    for name in ("error", "timing", "actor", "inputs", "task"):
        if name in data:
            data[name] = {key: value for key, value in data[name].items() if value is not None}
    return cast(CallData, data)


def _validated(record: Record, limits: Limits) -> Envelope:
    event = _attributes_and_data(record, limits)
    models = _MODELS[record.role]
    model = models.get(str(event.get("type")))
    if model is None:
        allowed = ", ".join(sorted(models))
        raise InputError("unknown_type", f"this topic takes events of type {allowed}", path="$.type")
    try:
        return model.model_validate(event)
    except ValidationError as error:
        raise _first_error(error) from None


def event_time_us(event: Envelope | CallEvent) -> int:
    """Return the event time in microseconds since the epoch.

    Raises:
        InputError: ``bad_time`` for a date that does not exist.
    """
    return event.time_us if isinstance(event, CallEvent) else time_us_of(event.time)


def _attributes_and_data(record: Record, limits: Limits) -> dict[str, Any]:
    if (erasure := erased_by(record)) is not None:
        raise InputError("erased", f"the record was erased on record: {erasure[:80]!r}")
    if record.value is None:
        raise InputError("tombstone", "a record without a value says nothing: publish the event as the value")
    if not (record.headers and is_binary(record.headers)):
        event = decode_json(record.value, limits=limits)
        if not isinstance(event, dict):
            raise InputError("not_an_event", "the value must be one CloudEvents JSON object", path="$")
        return event
    attributes: dict[str, Any] = {}
    for name, value in record.headers:
        attribute = name.removeprefix("ce_") if name.startswith("ce_") else None
        if name == "content-type":
            attribute = "datacontenttype"
        if attribute is None or attribute == "data":
            continue
        if attribute in attributes:
            raise InputError("duplicate_key", f"the header {name[:80]!r} appears twice: send it once")
        try:
            attributes[attribute] = (value or b"").decode()
        except UnicodeDecodeError:
            raise InputError("not_utf8", f"the header {name[:80]!r} is not UTF-8") from None
    attributes["data"] = decode_json(record.value, limits=limits)
    return attributes


def is_binary(headers: Headers) -> bool:
    """Distinguish binary from structured mode by the content type (Kafka protocol binding 1.0, section 3)."""
    for name, value in headers:
        if name == "content-type" and (value or b"").lower().startswith(b"application/cloudevents"):
            return False
    return any(name == "ce_specversion" for name, _ in headers)


def observer_in_header(headers: Headers, *, limits: Limits = DEFAULT_LIMITS) -> str | None:
    """Return the observer that a record's headers name, ``None`` unless they name exactly one."""
    named = [value for name, value in headers if name == OBSERVER_HEADER]
    return identifier_of(named[0], limits=limits) if len(named) == 1 else None


def identifier_of(raw: bytes | None, *, limits: Limits = DEFAULT_LIMITS) -> str | None:
    """Return the identifier in a key or a header; ``None`` if it is invalid, or null, as Kafka allows."""
    if not raw or len(raw) > limits.identifier_chars_max * 4:
        return None
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    return text if len(text) <= limits.identifier_chars_max and text.strip() else None


def check_observer(record: Record, observer_id: str, *, limits: Limits = DEFAULT_LIMITS) -> bool:
    """Check that a record's header names the same observer as its data; return True if there is such a header.

    Raises:
        InputError: ``observer_mismatch``.
    """
    if all(name != OBSERVER_HEADER for name, _ in record.headers):
        return False
    if observer_in_header(record.headers, limits=limits) != observer_id:
        raise InputError(
            "observer_mismatch",
            f"the header {OBSERVER_HEADER} must be there once and hold the event's observer_id, or be left out",
            path="$.data.observer_id",
        )
    return True


def _first_error(error: ValidationError) -> InputError:
    # A literal's or a union's branches each report; the first one is the outermost and says enough.
    first = error.errors(include_url=False, include_context=True, include_input=False)[0]
    code = _CODE_OF_PYDANTIC_TYPE.get(first["type"], "wrong_type")
    path = "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    fix = _FIX_OF_CODE[code]
    if code == "unknown_value":
        fix = f"{fix}: {first['ctx']['expected']}"
    elif first["type"] == "value_error":
        fix = str(first["ctx"]["error"])
    elif code == "wrong_type":
        fix = f"{fix}: {first['msg']}"
    return InputError(code, fix, path=path)


def log_time_us(record: Record, limits: Limits = DEFAULT_LIMITS) -> int:
    """Return a record's own timestamp in microseconds, at most the latest event time: writers can set any timestamp."""
    return min(record.timestamp_ms, limits.time_max_s * 1_000) * 1_000


def _check_time(time_us: int, record: Record, limits: Limits) -> None:
    if time_us < 0 or time_us > limits.time_max_s * 1_000_000:
        raise InputError("time_out_of_range", "event times lie between 1970 and 2100: correct the clock", path="$.time")
    if record.timestamp_ms > 0 and time_us > (record.timestamp_ms + limits.future_max_ms) * 1_000:
        raise InputError(
            "time_in_future",
            f"the event time is over {limits.future_max_ms} ms after the log's own time: correct the clock",
            path="$.time",
        )


_CLUSTER_FIELDS = frozenset(
    ("policy_snapshot_digest", *assay.POLICY_CLUSTER_CONSTANTS, "tool_definition_digest", *assay.CLUSTER_CONSTANTS)
)


ACCEPTED = "90s, 15m, 1h, 2d or 1w; now, today or yesterday; 2026-03-01 or 2026-03-01T10:00:00Z"
"""What ``operator_time_us`` reads, for help texts and errors."""

_SECOND_US = 1_000_000
_UNITS_US = {"s": _SECOND_US, "m": 60 * _SECOND_US, "h": 3_600 * _SECOND_US, "d": _DAY_US, "w": 7 * _DAY_US}
_SPAN = re.compile(r"([0-9]{1,6})([smhdw])", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def operator_time_us(text: str, *, now_us: int, ahead: bool = False) -> int:
    """Parse a time given by an operator into microseconds since the epoch. A day means its first moment in UTC.

    Args:
        now_us: the current time, microseconds since the epoch.
        ahead: whether a span is added to now, as for the end of a rule, rather than subtracted.

    Raises:
        InputError: ``bad_time``.
    """
    word = text.strip().lower()
    today_us = now_us - now_us % _DAY_US
    days = {"now": now_us, "today": today_us, "yesterday": today_us - _DAY_US}
    if word in days:
        return days[word]
    if span := _SPAN.fullmatch(word):
        length_us = int(span[1]) * _UNITS_US[span[2]]
        time_us = now_us + length_us if ahead else now_us - length_us
        if 0 <= time_us <= DEFAULT_LIMITS.time_max_s * _SECOND_US:
            return time_us
    try:
        return time_us_of(f"{word}T00:00:00Z" if _DATE.fullmatch(word) else word)
    except (InputError, TypeError):
        raise InputError("bad_time", f"{text[:40]!r} is not a time: write {ACCEPTED}") from None
