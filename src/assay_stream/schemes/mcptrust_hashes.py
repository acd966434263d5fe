"""MCPTrust (mcptrust/mcptrust): the hashes of a tool, its canonical form, and the risk level.

Tools are read as a Go program reads them: ``null`` is absent, a lone surrogate becomes U+FFFD, and a field of the wrong
type makes the whole tool invalid.
"""

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import orjson

from assay_stream.canonical.decode import NegativeZero
from assay_stream.canonical.digest import canonicalize, plain_form
from assay_stream.errors import InputError
from assay_stream.schemes.assay_tool import Tool

RISK_WORDS = (
    "exec", "shell", "write", "delete", "fs", "run", "execute", "bash", "command", "sudo", "rm", "remove", "kill",
    "spawn", "eval", "system", "popen", "subprocess", "terminal",
)  # fmt: skip
"""The words that make a risk level, wherever they stand: ``rm`` is found in ``format`` too."""

RISK_LEVELS = ("LOW", "MEDIUM", "HIGH")
"""By how many of the words are found: none, one, or more."""

_SURROGATES = re.compile("[\ud800-\udfff]")
_HTML = {b"<": rb"\u003c", b">": rb"\u003e", b"&": rb"\u0026", b"\xe2\x80\xa8": rb"\u2028", b"\xe2\x80\xa9": rb"\u2029"}
_ESCAPE = re.compile(rb"\\.")
_OLDER_ESCAPES = {rb"\b": rb"\u0008", rb"\f": rb"\u000c"}
_DEPTH_MAX = 254
"""Nested containers that can be written, as in ``canonical.digest``."""


def description_hash(tool: Tool) -> str:
    """Return the hash of the raw description (scheme ``mcptrust.description_hash``)."""
    return text_hash(_read_tool(tool)[1])


def input_schema_hash(tool: Tool) -> str:
    """Return the hash of the input schema (scheme ``mcptrust.input_schema_hash``), empty if that is absent or empty."""
    schema = _read_tool(tool)[2]
    return f"sha256:{sha256(go_canonical(schema)).hexdigest()}" if schema else ""


def input_schema_hash_before_go_1_22(tool: Tool) -> str | None:
    """Return the hash of the input schema as computed by builds with Go 1.21 or older.

    Go 1.22 changed how U+0008 and U+000C are escaped, so MCPTrust's hash depends on the compiler.

    Returns:
        ``sha256:<hex>``, or ``None`` if both versions give the same hash.

    Raises:
        InputError: as ``input_schema_hash``.
    """
    form = go_canonical(_read_tool(tool)[2])
    older = _ESCAPE.sub(lambda found: _OLDER_ESCAPES.get(found[0], found[0]), form)
    return None if older == form else f"sha256:{sha256(older).hexdigest()}"


def risk_level(tool: Tool) -> str:
    """Return ``LOW``, ``MEDIUM`` or ``HIGH`` for none, one, or more risk words in name and description."""
    name, description, _ = _read_tool(tool)
    # Go lowers each character to one other; Python lowers U+0130 to two.
    text = f"{name} {description}".replace("\u0130", "i").lower()
    found = sum(word in text for word in RISK_WORDS)
    return RISK_LEVELS[min(found, 2)]


def normalized_hash(text: str) -> str:
    r"""Return the hash of a text with line ends normalised to ``\n`` and trailing blanks and tabs removed."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return text_hash("\n".join(line.rstrip(" \t") for line in lines))


def go_canonical(value: Any) -> bytes:
    """Return JSON with sorted keys as Go's ``encoding/json`` writes it (MCPTrust's canonical form v1).

    Every number is a double; ``<``, ``>``, ``&``, U+2028 and U+2029 are escaped; keys are in code point order.

    Raises:
        InputError: ``not_canonicalizable`` or ``too_deep``.
    """
    try:
        text = plain_form(value)
    except InputError:
        text = None
    if text is None:
        written = bytearray()
        _write_go(value, 0, written)
        text = bytes(written)
    for character, escape in _HTML.items():
        text = text.replace(character, escape)
    return text


def _write_go(value: Any, depth: int, out: bytearray) -> None:
    # Into one buffer: nested generators pass each part through as many frames as it is deep, and each part that is
    # kept holds on to what orjson reserved for it, kilobytes.
    if depth > _DEPTH_MAX:
        raise InputError("too_deep", "the value is nested too deeply")
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise InputError("not_canonicalizable", "object keys must be text")
        # Keys are repaired before they are sorted, as the reader does it; of two that become one the last stays.
        members = {_repaired(key): item for key, item in value.items()}
        opening = b"{"
        for key in sorted(members):
            out += opening + orjson.dumps(key) + b":"
            _write_go(members[key], depth + 1, out)
            opening = b","
        out += b"}" if members else b"{}"
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            out += b"," if index else b"["
            _write_go(item, depth + 1, out)
        out += b"]" if value else b"[]"
    else:
        out += _go_scalar(value)


def _go_scalar(value: Any) -> bytes:
    if isinstance(value, str):
        return orjson.dumps(_repaired(value))
    if isinstance(value, NegativeZero):
        return b"-0"
    if isinstance(value, float) and value == 0:
        return b"-0" if str(value).startswith("-") else b"0"
    # ECMAScript and Go print all other doubles alike.
    return canonicalize(value)


def _read_tool(tool: Tool) -> tuple[str, str, Mapping[str, Any]]:
    schema = tool.get("inputSchema")
    if schema is not None and not isinstance(schema, dict):
        raise InputError("input_schema_not_object", "the input schema must be a JSON object", path="$.inputSchema")
    return read_text(tool, "name"), read_text(tool, "description"), schema or {}


def read_text(item: Mapping[str, Any], name: str) -> str:
    """Return a string member as Go reads it: empty if absent or ``null``.

    Raises:
        InputError: ``wrong_type``.
    """
    value = item.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InputError("wrong_type", "must be a string", path=f"$.{name}")
    return _repaired(value)


def _repaired(text: str) -> str:
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def text_hash(text: str) -> str:
    return f"sha256:{sha256(text.encode()).hexdigest()}"
