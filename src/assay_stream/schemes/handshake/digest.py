"""Handshake (Nuntissura/Handshake): the digest of arguments and results, after redaction.

The canonical form is no JCS: keys in UTF-8 order, everything beyond ASCII as uppercase ``\\uXXXX`` (a surrogate
pair where it must be), no white space, and one line feed at the end, which is hashed too. The digest is bare
hexadecimal.

Redaction is by text values only: no key is changed, and no value is replaced for its key's name. Its patterns are
this project's own, under Handshake's ids and categories. So the digest equals Handshake's wherever both find
nothing or the same; a secret that only one of them recognises makes two digests.
"""

import math
import re
from hashlib import sha256
from typing import Any

import orjson

from assay_stream.canonical.redaction_rules import RULES
from assay_stream.errors import InputError

_DEPTH_MAX = 254
_SIGNED_MIN, _UNSIGNED_MAX = -(2**63), 2**64 - 1

_CATEGORIES = {
    "secret_api_key": "api_key",
    "secret_github_pat": "api_key",
    "secret_slack_app_token": "api_key",
    "secret_slack_token": "api_key",
    "secret_google_api_key": "api_key",
    "secret_aws": "aws",
    "secret_db_url": "db_url",
    "secret_private_key": "private_key",
    "secret_password": "password",
    "secret_token": "token",
    "pii_email": "pii",
    "pii_phone": "pii",
    "path_absolute": "path",
    "env_var": "env",
}

# Handshake takes a path for a secret only where it tells of the machine: home, temporary and drive paths.
_MACHINE_PATH = (
    r"""(?<![^\s"'=:(\[<`,;])(?:(?i:[a-z]):[\\/][^\s"',;)\]>`]*+|\\\\[^\s"']++"""
    r"""|/(?:Users|home|tmp|var)(?![^/\s"',;)\]>`])(?:/[^\s"',;)\]>`]*+)?)"""
)
_PATTERNS = {rule.id: _MACHINE_PATH if rule.id == "path_absolute" else rule.regex for rule in RULES}
_REPLACEMENTS = {id_: f"[REDACTED:{category}:{id_}]" for id_, category in _CATEGORIES.items()}
_SECRET = re.compile(
    "|".join(
        # The first alternatives keep what was replaced before as it is.
        [*map(re.escape, _REPLACEMENTS.values()), *(f"(?P<{id_}>{regex})" for id_, regex in _PATTERNS.items())]
    )
)

_ESCAPED = re.compile(r'["\\\x00-\x1f]|[^\x00-\x7f]')
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def args_digest(value: Any) -> str:
    """Return Handshake's digest of arguments or of a result: 64 hexadecimal digits without a prefix.

    Raises:
        InputError: ``not_canonicalizable``, ``lone_surrogate`` or ``too_deep``.
    """
    return sha256(canonical_form(value)).hexdigest()


def canonical_form(value: Any) -> bytes:
    """Return what ``args_digest`` hashes: the redacted value in Handshake's canonical form, with its line feed.

    Raises:
        InputError: as ``args_digest``.
    """
    parts: list[str] = []
    try:
        _write(value, parts, 0)
    except RecursionError:
        raise _too_deep() from None
    parts.append("\n")
    return "".join(parts).encode("ascii")


def redact_text(text: str) -> str:
    """Return a text with what looks like a secret replaced by ``[REDACTED:<category>:<pattern id>]``."""
    return _SECRET.sub(lambda match: _REPLACEMENTS[match.lastgroup] if match.lastgroup else match[0], text)


def _write(value: Any, parts: list[str], depth: int) -> None:
    if value is None:
        parts.append("null")
    elif isinstance(value, bool):
        parts.append("true" if value else "false")
    elif isinstance(value, str):
        parts.append(_quoted(redact_text(value)))
    elif isinstance(value, int | float):
        parts.append(_number(value))
    elif isinstance(value, dict):
        _write_object(value, parts, depth + 1)
    elif isinstance(value, list | tuple):
        _check_depth(depth + 1)
        parts.append("[")
        for index, item in enumerate(value):
            parts.append("," if index else "")
            _write(item, parts, depth + 1)
        parts.append("]")
    else:
        raise InputError("not_canonicalizable", "the value is not JSON")


def _write_object(value: dict[Any, Any], parts: list[str], depth: int) -> None:
    _check_depth(depth)
    if not all(isinstance(name, str) for name in value):
        raise InputError("not_canonicalizable", "object keys must be text")
    parts.append("{")
    # Code point order is UTF-8 byte order.
    for index, name in enumerate(sorted(value)):
        parts += ("," if index else "", _quoted(name), ":")
        _write(value[name], parts, depth)
    parts.append("}")


def _check_depth(depth: int) -> None:
    if depth > _DEPTH_MAX:
        raise _too_deep()


def _too_deep() -> InputError:
    return InputError("too_deep", "the value is nested too deeply")


def _quoted(text: str) -> str:
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    short = _SHORT_ESCAPES.get(character)
    if short is not None:
        return short
    code = ord(character)
    if 0xD800 <= code <= 0xDFFF:
        raise InputError("lone_surrogate", "an unpaired surrogate is not valid Unicode")
    if code <= 0xFFFF:
        return f"\\u{code:04X}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04X}\\u{0xDC00 + (code & 0x3FF):04X}"


def _number(value: float) -> str:
    """Return a number as serde_json 1.0.145 prints it: integers of 64 bits exactly, all else as a double."""
    if isinstance(value, int) and _SIGNED_MIN <= value <= _UNSIGNED_MAX:
        return str(int(value))
    try:
        double = float(value)
    except OverflowError:
        double = math.inf
    if not math.isfinite(double):
        raise InputError("not_canonicalizable", "a number is not finite, or does not fit a double")
    # Both print the shortest digits and change to exponents at the same places; only the plus sign differs.
    return orjson.dumps(double).decode().replace("e+", "e")
