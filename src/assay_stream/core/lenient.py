"""Forgiving readers, for finding out what a message *is* when it is not sound JSON.

Clients and servers forgive: they keep the last of two equal keys, take NaN, replace bytes that are no UTF-8,
and nest deeper than we accept. A message that they understand must not escape notice because we would not
hash it. Nothing read here is ever hashed or taken for a definition.
"""

from __future__ import annotations

import json
import re
from typing import Any

_DEPTH_KEPT = 8
"""Containers kept of a message that nests too deeply; all that says what it is stands above that."""

# Possessive, and content with the end of the text for a quote that is never closed: linear in any text.
_STRING = r'"(?:[^"\\]|\\.)*+"?'
_TOKEN = re.compile(rf'{_STRING}|[\[\]{{}}]|[^"\[\]{{}}]+', re.DOTALL)
_MARK = re.compile(rf"{_STRING}|[\[\]{{}}:,]".encode(), re.DOTALL)


def read_leniently(raw: bytes) -> Any:
    """Return what a forgiving parser makes of a JSON text, ``None`` if nothing.

    What nests deeper than any parser of ours follows is left out.

    Args:
        raw: any bytes.
    """
    text = raw.decode("utf-8", "replace").lstrip("\ufeff")
    try:
        return _loads(text)
    except RecursionError:
        pass
    except ValueError:
        return None
    try:
        return _loads(_without_depths(text))
    except (ValueError, RecursionError):
        return None


def member_bytes(raw: bytes, name: str) -> bytes | None:
    """Return the bytes of a member of the outermost object, ``None`` if it has none of that name.

    Args:
        raw: a JSON object that some parser accepted.
        name: the member; of several the last one, as forgiving parsers have it.
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


def _without_depths(text: str) -> str:
    kept: list[str] = []
    depth = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        opens, closes = token in ("{", "["), token in ("}", "]")
        depth += opens
        if depth <= _DEPTH_KEPT:
            kept.append(token)
        elif opens and depth == _DEPTH_KEPT + 1:
            kept.append("null")
        depth -= closes
    return "".join(kept)
