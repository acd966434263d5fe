"""Kafka records as lines of a file: all of them, to the byte, so that a replay gives what the live run gave::

    {"origin": {"topic": ..., "partition": 0, "offset": 0}, "role": "calls", "timestamp_ms": 0,
     "key": ..., "headers": [[name, value]], "value": ...}

with ``key_base64``, ``value_base64`` (and base64 header values under ``headers_base64``) for bytes that are no
UTF-8. ``"set_aside": true`` marks a record that the deployment refused unread (``record_kills_worker``).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection
from typing import Any, cast

import orjson

from assay_stream.canonical.lenient import read_leniently
from assay_stream.errors import InputError
from assay_stream.model.record import ERROR_HEADERS, Headers, Origin, Output, Record, Role
from assay_stream.text.escaping import json_bytes

INT64_MAX = 2**63 - 1
_SHORT_BYTES = 64 * 1_024
"""Shorter values are written as text whatever escapes they need."""


def record_line_parts(raw: bytes, place: Origin) -> Record | None:
    """Return the record that a record line holds, whatever its topic carries; ``None`` for another line.

    Args:
        raw: a line.
        place: its file and line.

    Raises:
        InputError: ``bad_record_line``.
    """
    content = read_leniently(raw)
    if not isinstance(content, dict) or not isinstance(content.get("origin"), dict) or "specversion" in content:
        return None
    return record_of_line(content, place, roles=tuple(Role))


def record_of_line(content: dict[str, Any], place: Origin, roles: Collection[Role]) -> Record:
    """Return the record that a decoded record line holds.

    Args:
        content: the line.
        place: its file and line.
        roles: what it may carry.

    Raises:
        InputError: ``bad_record_line``.
    """
    try:
        headers: Headers = tuple(
            [(_header_name(name), _header_value(value, _text_bytes)) for name, value in content.get("headers", [])]
            + [
                (_header_name(name), _header_value(value, _base64_bytes))
                for name, value in content.get("headers_base64", [])
            ]
        )
        role = Role(content["role"])
        if role not in roles:
            raise ValueError("no role that is read")
        return Record(
            role=role,
            origin=_origin(**content["origin"]),
            key=_bytes(content, "key"),
            value=_bytes(content, "value"),
            headers=headers,
            timestamp_ms=_whole_number(content["timestamp_ms"], -1),
            set_aside=_flag(content.get("set_aside", False)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            "bad_record_line",
            f"line {place.offset + 1} of {place.topic} is no record line ({type(error).__name__}): "
            "write the archive anew",
        ) from None


def _origin(*, topic: object, partition: object, offset: object) -> Origin:
    _text_bytes(topic)
    return Origin(topic=str(topic), partition=_whole_number(partition, 0), offset=_whole_number(offset, 0))


def _whole_number(value: object, least: int) -> int:
    # bool is an int to Python, and a record of partition true is none of ours.
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("no whole number")
    if not least <= value <= INT64_MAX:
        raise ValueError("out of range")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError("no flag")
    return value


def _header_name(name: object) -> str:
    _text_bytes(name)
    return str(name)


def _header_value(value: object, decoded: Callable[[object], bytes]) -> bytes:
    # Kafka knows headers without a value. None of ours is one, but somebody else's must keep what it is.
    return cast("bytes", None) if value is None else decoded(value)


def _text_bytes(text: object) -> bytes:
    if not isinstance(text, str):
        raise TypeError("no text")
    return text.encode()


def _base64_bytes(text: object) -> bytes:
    return base64.b64decode(_text_bytes(text), validate=True)


def _bytes(content: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in content:
        return _base64_bytes(content[f"{name}_base64"])
    text = content.get(name)
    return None if text is None else _text_bytes(text)


def record_line(record: Record) -> bytes:
    """Return a record as a record line, without its line feed: everything of it, to the byte.

    Args:
        record: a record of any topic.
    """
    line: dict[str, Any] = {
        "origin": record.origin.as_json(),
        "role": record.role.value,
        "timestamp_ms": record.timestamp_ms,
    }
    _put_bytes(line, "key", record.key)
    if any(value is not None and _text(value) is None for _, value in record.headers):
        # All of them, so that their order is kept.
        line["headers_base64"] = [[name, _optional(value, _base64)] for name, value in record.headers]
    elif record.headers:
        line["headers"] = [[name, _optional(value, _text)] for name, value in record.headers]
    _put_bytes(line, "value", record.value)
    if record.set_aside:
        line["set_aside"] = True
    return json_bytes(orjson.dumps(line))


def rejected_line(output: Output) -> bytes:
    """Return a rejected record as a line of a file: original bytes, key and headers, and the error.

    Args:
        output: an output of the rejected role.
    """
    # By place, not by name: a record that was rejected before has headers of these names of its own.
    own, ours = output.headers[: -len(ERROR_HEADERS)], output.headers[-len(ERROR_HEADERS) :]
    line: dict[str, Any] = {"error": {name.removeprefix("error."): value.decode() for name, value in ours}}
    _put_bytes(line, "key", output.key)
    _put_bytes(line, "value", output.value)
    _put_headers(line, own)
    return json_bytes(orjson.dumps(line, option=orjson.OPT_SORT_KEYS))


def _put_headers(line: dict[str, Any], headers: Headers) -> None:
    line["headers"] = [[name, _text(value)] for name, value in headers if _text(value) is not None]
    other = [[name, _base64(value)] for name, value in headers if _text(value) is None]
    if other:
        line["headers_base64"] = other


def _optional(value: bytes | None, written: Callable[[bytes], str | None]) -> str | None:
    return None if value is None else written(value)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _put_bytes(line: dict[str, Any], name: str, value: bytes | None) -> None:
    text = None if value is None else _text(value)
    if value is not None and len(value) > _SHORT_BYTES and len(orjson.dumps(text)) > 2 * len(value):
        # Of control characters each takes six bytes as text: base64 keeps every record within LINE_BYTES_MAX.
        text = None
    if value is not None and text is None:
        line[f"{name}_base64"] = _base64(value)
    else:
        line[name] = text


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
