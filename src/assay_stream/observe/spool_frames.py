"""Frames of a spool's segments: the length of a record, its salted CRC-32, and the record.

After damage, reading goes on at the next sound record.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import orjson

from assay_stream.observe.observation import Observation

_FRAME = struct.Struct(">II")
_BEGIN = b'["'
"""How the body of a frame begins."""

_CHECKED_SHARE_MAX = 4
"""How often the bytes of a segment are looked through, at most, for the next sound record behind a damaged one."""


def framed(observation: Observation, salt: int) -> bytes:
    """Return the frame of a record; checksums begin with the salt."""
    head = [
        observation.kind,
        observation.timestamp_ms,
        observation.key.decode("latin-1"),
        [(name, value.decode("latin-1")) for name, value in observation.headers],
    ]
    body = orjson.dumps(head) + b"\n" + observation.value
    return _FRAME.pack(len(body), zlib.crc32(body, salt)) + body


def frames(data: bytes, salt: int) -> Iterator[tuple[int, int, Observation]]:
    """Yield each sound record with how many damaged ones stand before it, and the size of all these."""
    start = since = 0
    checked_bytes_max = _CHECKED_SHARE_MAX * len(data)
    while start < len(data):
        place, body = start, _body_at(data, start)
        while (observation := _sound(data, place, body, salt)) is None:
            # Its length may be damaged as well: what counts is where the next sound record begins.
            checked_bytes_max -= len(body)
            place = data.find(_BEGIN, place + _FRAME.size + 1) - _FRAME.size
            if place < start or checked_bytes_max < 0:
                return
            body = _body_at(data, place)
        start = place + _FRAME.size + len(body)
        yield start - since, _between(data, since, place), observation
        since = start


def _body_at(data: bytes, place: int) -> bytes:
    """Return the body of the frame at a place; nothing if there can be none."""
    if len(data) - place < _FRAME.size:
        return b""
    length, _ = _FRAME.unpack_from(data, place)
    begin = place + _FRAME.size
    return data[begin : begin + length] if length <= len(data) - begin and data.startswith(_BEGIN, begin) else b""


def _sound(data: bytes, place: int, body: bytes, salt: int) -> Observation | None:
    is_sound = body and _FRAME.unpack_from(data, place)[1] == zlib.crc32(body, salt)
    return _observation(body) if is_sound else None


def _between(data: bytes, start: int, end: int) -> int:
    """Count the damaged records from one place to another: one if their lengths do not say."""
    count = 0
    while start + _FRAME.size <= end:
        start += _FRAME.size + _FRAME.unpack_from(data, start)[0]
        count += 1
    return count if start == end else 1


def _observation(body: bytes) -> Observation | None:
    """Return the record of a frame, unless another version or program wrote it."""
    head, _, value = body.partition(b"\n")
    try:
        kind, timestamp_ms, key, headers = orjson.loads(head)
        return Observation(
            kind=kind,
            key=key.encode("latin-1"),
            value=value,
            headers=tuple((name, text.encode("latin-1")) for name, text in headers),
            timestamp_ms=timestamp_ms,
        )
    except (ValueError, TypeError, AttributeError):
        return None
