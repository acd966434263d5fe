"""Strict, total JSON decoding: any bytes give a value or an ``InputError``.

What popular decoders let pass is refused, because a digest over it would not mean what it seems to mean:
duplicate keys, NaN and infinities, numbers that overflow a double, lone surrogates, and nesting beyond what
Assay's own parser takes (RFC 8259, I-JSON: RFC 7493 section 2).
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

import orjson

from assay_stream.core.errors import InputError
from assay_stream.core.limits import DEFAULT_LIMITS, Limits

_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def decode_json(raw: bytes | bytearray | memoryview, *, limits: Limits = DEFAULT_LIMITS) -> Any:
    """Decode one JSON text.

    Args:
        raw: UTF-8 bytes.
        limits: bounds on size, depth and integer digits.

    Raises:
        InputError: for anything but one well-formed, unambiguous JSON value.
    """
    text = bytes(raw)
    if len(text) > limits.record_bytes_max:
        raise InputError("too_large", f"{len(text)} bytes, {limits.record_bytes_max} are allowed")
    # If writing the value gives the very bytes that were read, nothing can have been lost on the way: no
    # second key, no changed number. Bytes of another form (white space, escapes) take the strict path.
    try:
        value = orjson.loads(text)
        if orjson.dumps(value) == text and _is_shallow(value, text, limits.depth_max):
            return value
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        pass
    return decode_json_strict(text, limits=limits)


def decode_json_strict(raw: bytes, *, limits: Limits = DEFAULT_LIMITS) -> Any:
    """Decode one JSON text by the slow path alone; ``decode_json`` gives the same.

    Args:
        raw: UTF-8 bytes.
        limits: bounds on depth and integer digits.

    Raises:
        InputError: as ``decode_json``.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError("not_utf8", f"byte {error.start} is not UTF-8: send UTF-8") from None
    _check_depth(raw, limits)
    reader = _Reader(limits)
    try:
        value = json.loads(
            text,
            object_pairs_hook=reader.object,
            parse_constant=reader.constant,
            parse_float=reader.float,
            parse_int=reader.int,
        )
    except json.JSONDecodeError as error:
        raise InputError("not_json", f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise InputError("too_deep", f"more than {limits.depth_max} nested containers") from None
    if _SURROGATE_ESCAPE.search(text):
        _check_surrogates(value)
    return value


class _Reader:
    """The hooks that refuse what the standard library lets pass."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            raise InputError("duplicate_key", "an object has the same key twice: send each key once")
        return members

    def constant(self, name: str) -> NoReturn:
        raise InputError("non_finite_number", f"{name} is no JSON number: send null or a number")

    def float(self, digits: str) -> float:
        number = float(digits)
        if math.isinf(number):
            raise InputError("number_overflow", "a number does not fit a double")
        return number

    def int(self, digits: str) -> int:
        if len(digits) > self._limits.integer_digits_max + 1:
            raise InputError(
                "number_overflow", f"an integer has more than {self._limits.integer_digits_max} digits"
            )
        number = int(digits)
        try:
            float(number)
        except OverflowError:
            raise InputError("number_overflow", "an integer does not fit a double") from None
        return number


def _is_shallow(value: Any, text: bytes, depth_max: int) -> bool:
    if text.count(b"{") + text.count(b"[") <= depth_max:
        return True
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(depth_max):
        level = [
            child
            for container in level
            for child in (container.values() if type(container) is dict else container)
            if type(child) is dict or type(child) is list
        ]
        if not level:
            return True
    return False


def _check_depth(raw: bytes, limits: Limits) -> None:
    """Refuse deep nesting before any recursive parser sees it."""
    if raw.count(b"{") + raw.count(b"[") <= limits.depth_max:
        return
    depth = 0
    for token in _STRUCTURE.finditer(raw):
        mark = token[0]
        if mark in (b"{", b"["):
            depth += 1
            if depth > limits.depth_max:
                raise InputError(
                    "too_deep", f"more than {limits.depth_max} nested containers at byte {token.start()}"
                )
        elif mark in (b"}", b"]"):
            depth -= 1


def _check_surrogates(root: Any) -> None:
    pending: list[tuple[Any, str]] = [(root, "$")]
    while pending:
        value, path = pending.pop()
        if isinstance(value, str):
            _check_text(value, path)
        elif isinstance(value, list):
            pending.extend((item, f"{path}[{index}]") for index, item in enumerate(value))
        elif isinstance(value, dict):
            for key, item in value.items():
                _check_text(key, path)
                pending.append((item, f"{path}.{key}"))


def _check_text(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError("lone_surrogate", "half a surrogate pair is no Unicode text", path=path) from None
