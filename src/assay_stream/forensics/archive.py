"""Recorded observations in files: one JSON object a line.

Two kinds of line are read. An *event* line is a CloudEvent as a proxy publishes it; its origin is the file and
the line. A *record* line is a Kafka record with its place in the log::

    {"origin": {"topic": ..., "partition": 0, "offset": 0}, "role": "calls", "timestamp_ms": 0,
     "key": ..., "headers": [[name, value]], "value": ...}

with ``key_base64``, ``value_base64`` (and base64 header values under ``headers_base64``) for bytes that are no
UTF-8. Record lines keep everything, so a replay of them gives the bytes of the live run.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from assay_stream.core.errors import InputError
from assay_stream.core.lenient import read_leniently
from assay_stream.core.limits import DEFAULT_LIMITS
from assay_stream.core.observation import CALL_TYPE, SNAPSHOT_TYPE
from assay_stream.core.record import Headers, Origin, Output, Record, Role

_ROLE_OF_TYPE = {SNAPSHOT_TYPE: Role.SNAPSHOTS, CALL_TYPE: Role.CALLS}
_CONTROL_PREFIX = "assay.control."


def read_file(path: Path) -> Iterator[Record]:
    """Yield the records of a file, in its order. A line that is neither kind becomes a record all the same.

    What is wrong with it is for the engine to say, so that it ends in the rejected records with its reason.

    Args:
        path: an NDJSON file.

    Raises:
        InputError: ``unreadable_file``.
    """
    try:
        with path.open("rb") as lines:
            yield from read_lines(lines, name=path.name)
    except OSError as error:
        raise InputError("unreadable_file", f"cannot read {path}: {error.strerror}") from None


def read_lines(lines: Iterable[bytes], *, name: str) -> Iterator[Record]:
    """Yield the records of some lines.

    Args:
        lines: lines with or without their line feed.
        name: what the origin of event lines calls their file.
    """
    timestamp_ms = 0
    for number, line in enumerate(lines):
        raw = line.rstrip(b"\r\n")
        if not raw:
            continue
        record = _record(raw, Origin(topic=name, partition=0, offset=number), timestamp_ms)
        timestamp_ms = record.timestamp_ms
        yield record


def _record(raw: bytes, place: Origin, previous_ms: int) -> Record:
    # Lenient on purpose: this only finds out where the line belongs. The engine decodes it strictly.
    content = read_leniently(raw)
    if not isinstance(content, dict):
        return Record(role=Role.CALLS, origin=place, key=None, value=raw, timestamp_ms=previous_ms)
    if isinstance(content.get("origin"), dict) and "specversion" not in content:
        return _record_line(content, place)
    kind = str(content.get("type"))
    role = Role.CONTROL if kind.startswith(_CONTROL_PREFIX) else _ROLE_OF_TYPE.get(kind, Role.CALLS)
    data = content.get("data")
    server_id = data.get("server_id") if isinstance(data, dict) else None
    key = server_id.encode("utf-8", "replace") if isinstance(server_id, str) else None
    from_time = event_timestamp_ms(content.get("time"))
    if from_time is not None and not 0 <= from_time <= DEFAULT_LIMITS.time_max_s * 1_000:
        from_time = None  # a broken clock: the line before tells better when this was
    return Record(
        role=role,
        origin=place,
        key=key,
        value=raw,
        timestamp_ms=previous_ms if from_time is None else from_time,
    )


def event_timestamp_ms(text: object) -> int | None:
    """Return an RFC 3339 time in milliseconds since the epoch, or ``None`` if it is not one.

    Args:
        text: the ``time`` attribute as it stands in an event.
    """
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text.upper())
        return int(moment.timestamp() * 1_000) if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None


def _record_line(content: dict[str, Any], place: Origin) -> Record:
    try:
        headers: Headers = tuple(
            [(str(name), str(value).encode()) for name, value in content.get("headers", [])]
            + [
                (str(name), base64.b64decode(value, validate=True))
                for name, value in content.get("headers_base64", [])
            ]
        )
        return Record(
            role=Role(content["role"]),
            origin=Origin(**content["origin"]),
            key=_bytes(content, "key"),
            value=_bytes(content, "value"),
            headers=headers,
            timestamp_ms=int(content["timestamp_ms"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            "bad_record_line",
            f"line {place.offset + 1} of {place.topic} is no record line ({type(error).__name__}): "
            "write the archive anew",
        ) from None


def _bytes(content: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in content:
        return base64.b64decode(content[f"{name}_base64"], validate=True)
    text = content.get(name)
    return None if text is None else str(text).encode()


def rejected_line(output: Output) -> bytes:
    """Return a rejected record as a line of a file: original bytes, key and headers, and the error.

    Args:
        output: an output of the rejected role.
    """
    errors = {name: value.decode() for name, value in output.headers if name.startswith("error.")}
    headers = [(name, value) for name, value in output.headers if not name.startswith("error.")]
    line: dict[str, Any] = {"error": {name.removeprefix("error."): text for name, text in errors.items()}}
    _put_bytes(line, "key", output.key)
    _put_bytes(line, "value", output.value)
    line["headers"] = [[name, _text(value)] for name, value in headers if _text(value) is not None]
    other = [[name, base64.b64encode(value).decode()] for name, value in headers if _text(value) is None]
    if other:
        line["headers_base64"] = other
    return orjson.dumps(line, option=orjson.OPT_SORT_KEYS)


def _put_bytes(line: dict[str, Any], name: str, value: bytes | None) -> None:
    text = None if value is None else _text(value)
    if value is not None and text is None:
        line[f"{name}_base64"] = base64.b64encode(value).decode()
    else:
        line[name] = text


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
