"""Canonical JSON (RFC 8785, JCS) as Assay computes it, and digests over it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import orjson
import rfc8785

from assay_stream.errors import InputError

_EXACT_INTEGER_MAX = 2**53 - 1
_DEPTH_MAX = 254
"""Nested containers that can be written: orjson's bound, kept on the other path too. Input nests 127 at most."""
_HEX = re.compile(r"[0-9a-f]{64}")
_SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_SUBCLASS


@dataclass(frozen=True, slots=True, order=True)
class Digest:
    """A SHA-256 digest; no other algorithm can be represented.

    Args:
        hex: 64 lowercase hexadecimal digits.
    """

    hex: str

    def __post_init__(self) -> None:
        if not _HEX.fullmatch(self.hex):
            raise InputError("bad_digest", "a SHA-256 digest is 64 lowercase hexadecimal digits")

    def __str__(self) -> str:
        return f"sha256:{self.hex}"

    @classmethod
    def parse(cls, text: str) -> Digest:
        """Parse a digest.

        Args:
            text: ``sha256:`` and 64 lowercase hexadecimal digits.

        Raises:
            InputError: ``bad_digest``.
        """
        algorithm, _, digits = text.partition(":")
        if algorithm != "sha256":
            raise InputError("bad_digest", "a digest is written sha256:<64 lowercase hexadecimal digits>")
        return cls(digits)


def sha256_of(raw: bytes) -> Digest:
    return Digest(sha256(raw).hexdigest())


def jcs_digest(value: Any) -> Digest:
    """Return the SHA-256 digest of a value's canonical form.

    Raises:
        InputError: as ``canonicalize``.
    """
    return sha256_of(canonicalize(value))


class Canonicalized(dict[str, Any]):
    """An object that keeps its canonical form, for one that stands in several values which are hashed.

    Args:
        members: a JSON object; it must not change from now on.

    Attributes:
        form: its canonical form (RFC 8785).
        is_plain: whether every serialiser that sorts keys writes it alike, but for the escapes in its texts.

    Raises:
        InputError: as ``canonicalize``.
    """

    __slots__ = ("form", "is_plain")

    def __init__(self, members: dict[str, Any]) -> None:
        form = plain_form(members)
        self.is_plain = form is not None
        self.form = canonicalize(members) if form is None else form
        super().__init__(members)


def canonicalize(value: Any) -> bytes:
    """Return the canonical form of a JSON value (RFC 8785).

    Integers beyond 2^53 become doubles first, as Assay and every JavaScript reader have them.

    Raises:
        InputError: ``not_canonicalizable``, ``lone_surrogate`` or ``too_deep``.
    """
    if type(value) is Canonicalized:
        return value.form
    form = plain_form(value)
    if form is not None:
        return form
    try:
        return rfc8785.dumps(_as_doubles(value, 0))
    except UnicodeEncodeError:
        raise InputError("lone_surrogate", "an unpaired surrogate is not valid Unicode") from None
    except RecursionError:
        raise InputError("too_deep", "the value is nested too deeply") from None
    except rfc8785.CanonicalizationError as error:
        if isinstance(error.__cause__, UnicodeEncodeError):
            raise InputError("lone_surrogate", "an unpaired surrogate is not valid Unicode") from None
        raise InputError("not_canonicalizable", "the value is not JSON, or a number is not finite") from None


def compact_copy(form: bytes) -> bytes:
    """Return bytes that orjson wrote in a block of their own size, for those that stay in memory.

    orjson leaves one to four kilobytes behind whatever it writes.
    """
    return bytes(memoryview(form))


def plain_form(value: Any) -> bytes | None:
    """Return the canonical form of a value that every serialiser which sorts keys writes alike.

    They differ in the escapes within texts. Of a value with other keys than ASCII, with fractions, or with
    integers that no double holds there is no such form.

    Raises:
        InputError: as ``canonicalize``.
    """
    if type(value) is Canonicalized:
        return value.form if value.is_plain else None
    try:
        return orjson.dumps(value, default=_form_of, option=_SORTED) if _is_plain(value) else None
    except orjson.JSONEncodeError as error:
        if "surrogates" in str(error):
            raise InputError("lone_surrogate", "an unpaired surrogate is not valid Unicode") from None
        raise InputError("too_deep", "the value is nested too deeply") from None
    except RecursionError:
        raise InputError("too_deep", "the value is nested too deeply") from None


def _form_of(value: Canonicalized) -> orjson.Fragment:
    return orjson.Fragment(value.form)


def _is_plain(value: Any) -> bool:
    """Return True if sorted orjson output is the canonical form.

    It is for ASCII keys, whose byte order is their UTF-16 order, and for integers that a double holds exactly.
    """
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or not key.isascii() or not (type(item) is str or _is_plain(item)):
                return False
        return True
    if kind is list:
        return all(map(_is_plain, value))
    if kind is Canonicalized:
        return bool(value.is_plain)
    return kind is int and -_EXACT_INTEGER_MAX <= value <= _EXACT_INTEGER_MAX


def _as_doubles(value: Any, depth: int) -> Any:
    if depth > _DEPTH_MAX:
        raise InputError("too_deep", "the value is nested too deeply")
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if -_EXACT_INTEGER_MAX <= value <= _EXACT_INTEGER_MAX:
            return int(value)
        try:
            return float(value)
        except OverflowError:
            raise InputError("not_canonicalizable", "an integer does not fit a double") from None
    if isinstance(value, list | tuple):
        return [_as_doubles(item, depth + 1) for item in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise InputError("not_canonicalizable", "object keys must be text")
        return {key: _as_doubles(item, depth + 1) for key, item in value.items()}
    return value
