"""Strict, total JSON decoding, any bytes give a value or an ``InputError``, and forgiving readers for the rest.

What popular decoders let pass is refused, because a digest over it would not mean what it seems to mean:
duplicate keys, NaN and infinities, numbers that overflow a double, lone surrogates, and nesting beyond what
Assay's own parser takes (RFC 8259, I-JSON: RFC 7493 section 2).

Clients and servers forgive: they keep the last of two equal keys, take NaN, replace bytes that are no UTF-8,
nest deeper and hold more containers than we accept. A message that they understand must not escape notice because
we would not hash it. Nothing read here is ever hashed or taken for a definition.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import StringIO
from typing import Any, Final, NoReturn, TypeVar

import orjson

from assay_stream.canonical.digest import Digest
from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS, Limits


class NegativeZero(int):
    """The JSON number ``-0``: zero to Python, JavaScript and Rust's JCS; ``-0`` to readers that keep doubles."""

    __slots__ = ()

    def __new__(cls) -> NegativeZero:
        return super().__new__(cls, 0)


# A text without its closing quote is taken to the end: looking for another start would cost quadratic time.
_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)
# Numbers end where the parser ends them: behind the refused one anything may stand.
_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
_TOKEN = re.compile(rf'"(?:[^"\\]|\\.)*+"|[\[\]{{}},]|NaN|-?Infinity|{_NUMBER}', re.DOTALL)
_CONSTANTS = frozenset(("NaN", "Infinity", "-Infinity"))
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_NAME_CHARS_MAX = 64
_FAST_DIGITS = 20
"""Digits of the longest integer that the fast path reads as one: 2^64 - 1."""
_DOUBLE_DIGITS_MAX = 309
"""Digits of the largest double. Python itself does not read integers of over 4,300 digits."""
_COUNTED_BYTES_MAX = 4_096
_PROBED_DEPTH_MAX = 1_024
"""Nested containers that ``orjson`` reads: it never gives a deeper value."""
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def decode_json(raw: bytes | bytearray | memoryview, *, limits: Limits = DEFAULT_LIMITS) -> Any:
    """Decode one JSON text.

    Raises:
        InputError: for anything but one well-formed, unambiguous JSON value.
    """
    text = bytes(raw)
    if len(text) > limits.record_bytes_max:
        raise InputError("too_large", f"{len(text)} bytes, {limits.record_bytes_max} are allowed")
    check_containers(text, limits)
    # If writing the value gives the very bytes that were read, nothing can have been lost on the way: no
    # second key, no changed number. Bytes of another form (white space, escapes) take the strict path.
    try:
        value = orjson.loads(text)
        if _is_as_written(value, text, limits):
            return value
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        pass
    return decode_json_strict(text, limits=limits)


def check_containers(raw: bytes, limits: Limits = DEFAULT_LIMITS) -> None:
    """Refuse a long text with too many objects and arrays before anything is built of it."""
    if len(raw) <= limits.containers_max or raw.count(b"{") + raw.count(b"[") <= limits.containers_max:
        return
    _check_structure(raw, limits)


def _check_structure(raw: bytes, limits: Limits) -> None:
    found = depth = 0
    # Braces within texts are none.
    for token in _STRUCTURE.finditer(raw):
        mark = token[0]
        if mark in (b"{", b"["):
            found, depth = found + 1, depth + 1
            if depth > limits.depth_max:
                raise InputError("too_deep", f"more than {limits.depth_max} nested containers at byte {token.start()}")
            if found > limits.containers_max:
                raise InputError(
                    "too_many_containers", f"more than {limits.containers_max} objects and arrays: split the record"
                )
        elif mark in (b"}", b"]"):
            depth -= 1


def is_faithful(raw: bytes, limits: Limits = DEFAULT_LIMITS) -> bool:
    """Return True if ``decode_json`` certainly accepts a JSON text; ``False`` leaves it open.

    Args:
        raw: UTF-8 bytes, not longer than the limit.
    """
    try:
        return _is_as_written(orjson.loads(raw), raw, limits)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return False


def _is_as_written(value: Any, text: bytes, limits: Limits) -> bool:
    if limits.integer_digits_max < _FAST_DIGITS:
        return False
    # Most texts are so short that counting brackets costs less than the lists around the value.
    if len(text) <= _COUNTED_BYTES_MAX and text.count(b"{") + text.count(b"[") <= limits.depth_max:
        return bool(orjson.dumps(value) == text)
    # In as many lists as the writer takes beyond the limit, a value that is too deep is refused where it is written.
    around = max(0, _WRITER_DEPTH_MAX - limits.depth_max)
    for _ in range(around):
        value = [value]
    return bool(orjson.dumps(value) == b"%b%b%b" % (b"[" * around, text, b"]" * around))


def _writer_depth_max() -> int:
    """Return how many nested containers ``orjson`` writes, which is its own constant."""
    value: list[Any] = []
    for depth in range(_PROBED_DEPTH_MAX):
        try:
            orjson.dumps(value)
        except orjson.JSONEncodeError:
            return depth
        value = [value]
    return _PROBED_DEPTH_MAX


_WRITER_DEPTH_MAX: Final = _writer_depth_max()


def decode_json_strict(raw: bytes, *, limits: Limits = DEFAULT_LIMITS) -> Any:
    """Decode one JSON text by the slow path alone; ``decode_json`` gives the same."""
    check_containers(raw, limits)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError("not_utf8", f"byte {error.start} is not UTF-8: send UTF-8") from None
    if raw.count(b"{") + raw.count(b"[") > limits.depth_max:
        # Before any recursive parser sees it.
        _check_structure(raw, limits)
    reader = _Reader(limits)
    try:
        value = json.loads(
            text,
            object_pairs_hook=reader.object,
            parse_constant=reader.constant,
            parse_float=reader.float,
            parse_int=reader.int,
        )
        if _SURROGATE_ESCAPE.search(text) and not is_unicode(json.dumps(value, ensure_ascii=False)):
            raise InputError("lone_surrogate", "an unpaired surrogate is not valid Unicode")
    except InputError as error:
        raise InputError(error.code, error.message, path=_locate(text, error.code, reader)) from None
    except json.JSONDecodeError as error:
        raise InputError("not_json", f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise InputError("too_deep", f"more than {limits.depth_max} nested containers") from None
    return value


class _Reader:
    """The hooks that refuse what the standard library lets pass."""

    def __init__(self, limits: Limits) -> None:
        self._digits_max = min(limits.integer_digits_max, _DOUBLE_DIGITS_MAX)

    def object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            raise InputError("duplicate_key", "an object has the same key twice: send each key once")
        return members

    def constant(self, name: str) -> NoReturn:
        raise InputError("non_finite_number", f"{name} is not a JSON number: send null or a number")

    def float(self, digits: str) -> float:
        number = float(digits)
        if math.isinf(number):
            raise InputError("number_overflow", "a number does not fit a double")
        return number

    def int(self, digits: str) -> int:
        if len(digits.removeprefix("-")) > self._digits_max:
            raise InputError("number_overflow", f"an integer has more than {self._digits_max} digits")
        if digits == "-0":
            return NegativeZero()
        number = int(digits)
        try:
            float(number)
        except OverflowError:
            raise InputError("number_overflow", "an integer does not fit a double") from None
        return number


def is_unicode(text: str) -> bool:
    """Return True if a text has no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(slots=True)
class _Place:
    """Position of the locator in one open container: its latest step, and the names so far."""

    is_object: bool
    awaits_key: bool
    step: str | int = 0
    names: set[str] = field(default_factory=set)


def _locate(text: str, code: str, reader: _Reader) -> str:
    """Return the path of the first value that is refused with a code; what stands before it is well-formed.

    Called after a refusal only: the path costs nothing while there is none.
    """
    places: list[_Place] = []
    for match in _TOKEN.finditer(text):
        mark = match[0]
        if mark in ("{", "["):
            places.append(_Place(mark == "{", mark == "{"))
        elif mark in ("}", "]"):
            places.pop()
        elif mark == ",":
            place = places[-1]
            place.awaits_key = place.is_object
            place.step = place.step + 1 if isinstance(place.step, int) else place.step
        elif places and places[-1].awaits_key:
            name = json.loads(mark)
            if code == "lone_surrogate" and not is_unicode(name):
                return _path(places[:-1])
            place = places[-1]
            place.step, place.awaits_key = name, False
            if name in place.names and code == "duplicate_key":
                return _path(places)
            place.names.add(name)
        elif _is_refused(mark, code, reader):
            return _path(places)
    return ""


def _is_refused(mark: str, code: str, reader: _Reader) -> bool:
    if mark.startswith('"'):
        return code == "lone_surrogate" and not is_unicode(json.loads(mark))
    read = reader.constant if mark in _CONSTANTS else reader.float if re.search("[.eE]", mark) else reader.int
    try:
        read(mark)
    except InputError as error:
        return error.code == code
    return False


def _path(places: list[_Place]) -> str:
    """Return a JSON path (RFC 9535), long names cut: they are the sender's text and end up in headers."""
    steps = []
    for place in places:
        if isinstance(place.step, str) and _PLAIN_NAME.fullmatch(place.step[:_NAME_CHARS_MAX]):
            steps.append(f".{place.step[:_NAME_CHARS_MAX]}")
        elif isinstance(place.step, str):
            name = json.dumps(place.step[:_NAME_CHARS_MAX])[1:-1].replace("'", "\\'").replace('\\"', '"')
            steps.append(f"['{name}']")
        else:
            steps.append(f"[{place.step}]")
    return "$" + "".join(steps)


def decode_base64(text: str) -> bytes | None:
    """Decode standard base64, ``None`` for any other text.

    Unused bits must be zero (RFC 4648, section 3.5): otherwise one signature has several encodings.
    """
    try:
        raw = binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except ValueError:
        return None
    return raw if base64.b64encode(raw).decode() == text else None


_DEPTH_KEPT = 8
"""Containers kept of a message that nests too deeply; all that says what it is stands above that."""

_CONTAINERS_KEPT = DEFAULT_LIMITS.containers_max
"""Containers kept of a message that has too many; what says what it is comes first in all that is sent."""

_TOKENS_MAX = 4_000_000
"""Brackets, texts and what lies between them, of a message that needs them looked at one by one: two seconds' work."""

# Possessive, and content with the end of the text for a quote that is never closed: linear in any text.
_STRING = r'"(?:[^"\\]|\\.)*+"?'
_LENIENT_TOKEN = re.compile(rf'{_STRING}|[\[\]{{}}]|[^"\[\]{{}}]+', re.DOTALL)
_MARK = re.compile(rf"{_STRING}|[\[\]{{}}:,]".encode(), re.DOTALL)


def read_leniently(raw: bytes) -> Any:
    """Return what a forgiving parser makes of a JSON text, ``None`` if nothing, or if that takes too long.

    What nests deeper than any parser of ours follows, and containers beyond those that are kept, are ``None``.
    """
    text = raw.decode("utf-8", "replace").lstrip("\ufeff")
    try:
        check_containers(raw)
        return _loads(text)
    except (InputError, RecursionError):
        pass
    except ValueError:
        return None
    try:
        return _loads(_pruned(text))
    except (ValueError, RecursionError):
        return None


def member_bytes(raw: bytes, name: str) -> bytes | None:
    """Return the raw bytes of a member of the outermost object, ``None`` if absent.

    Args:
        name: the last one wins if repeated, as in forgiving parsers.
    """
    found: bytes | None = None
    key: Any = None
    start: int | None = None
    depth = 0
    for mark in _MARK.finditer(raw):
        sign = mark[0][:1]
        ends_member = depth == 1 and sign in b",}"
        if ends_member and start is not None:
            found = raw[start : mark.start()].strip() if key == name else found
            start = None
        if sign in b"{[":
            depth += 1
        elif sign in b"}]":
            depth -= 1
        elif depth == 1 and start is None and sign == b'"':
            key = read_leniently(mark[0])
        elif depth == 1 and start is None and sign == b":":
            start = mark.end()
    return found


def _loads(text: str) -> Any:
    # Python refuses to read integers of over 4,300 digits; here only their being there matters.
    return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) < 4_000 else float(digits))


def _pruned(text: str) -> str:
    """Return the text with ``null`` for every container that is too deep, or one too many; or raise ``ValueError``."""
    kept = StringIO()
    depth = containers = 0
    skipped_at: int | None = None
    for number, match in enumerate(_LENIENT_TOKEN.finditer(text)):
        if number == _TOKENS_MAX:
            raise ValueError(f"more than {_TOKENS_MAX} tokens")
        token = match[0]
        if token in ("{", "["):
            depth += 1
            if skipped_at is None:
                containers += 1
                if depth > _DEPTH_KEPT or containers > _CONTAINERS_KEPT:
                    skipped_at = depth
                    kept.write("null")
        if skipped_at is None:
            kept.write(token)
        if token in ("}", "]"):
            if depth == skipped_at:
                skipped_at = None
            depth -= 1
    return kept.getvalue()


_KINDS: dict[type, str] = {
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    list: "a list",
    dict: "an object",
}

_Value = TypeVar("_Value")


class Members:
    """A JSON object whose members are removed as they are read.

    Args:
        value: any value; refused with ``wrong_type`` if it is not an object.

    Attributes:
        rest: the members not taken yet.
    """

    def __init__(self, value: Any, path: str = "$") -> None:
        self.path = path
        self.rest = dict(self._checked(value, dict, path))

    def __contains__(self, name: str) -> bool:
        return name in self.rest

    def take(self, name: str, kind: type[_Value], *, step: str | None = None) -> _Value:
        """Remove and return a member of the given type.

        Args:
            step: used in the path where the name is the sender's own text.

        Raises:
            InputError: ``missing_field`` or ``wrong_type``.
        """
        path = f"{self.path}.{name}" if step is None else self.path + step
        if name not in self.rest:
            raise InputError("missing_field", "is required", path=path)
        return self._checked(self.rest.pop(name), kind, path)

    def object(self, name: str) -> Members:
        return Members(self.take(name, dict), f"{self.path}.{name}")

    def objects(self, name: str) -> Iterator[Members]:
        """Yield the objects of a member that is a list."""
        for index, item in enumerate(self.take(name, list)):
            yield Members(item, f"{self.path}.{name}[{index}]")

    def one_of(self, name: str, allowed: tuple[str, ...]) -> Any:
        """Take a string that must be one of ``allowed``.

        Raises:
            InputError: ``unknown_value``, or as ``take``.
        """
        value = self.take(name, str)
        if value not in allowed:
            raise InputError("unknown_value", f"must be one of: {', '.join(allowed)}", path=f"{self.path}.{name}")
        return value

    def digest(self, name: str) -> Digest:
        """Take a digest.

        Raises:
            InputError: ``bad_digest``, or as ``take``.
        """
        text = self.take(name, str)
        try:
            return Digest.parse(text)
        except InputError as error:
            raise InputError(error.code, error.message, path=f"{self.path}.{name}") from None

    @staticmethod
    def _checked(value: Any, kind: type[_Value], path: str) -> _Value:
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise InputError("wrong_type", f"must be {_KINDS[kind]}", path=path)
        return value
