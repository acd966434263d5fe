"""Forgiving readers, for finding out what a message *is* when it is not sound JSON.

Clients and servers forgive: they keep the last of two equal keys, take NaN, replace bytes that are no UTF-8,
nest deeper and hold more containers than we accept. A message that they understand must not escape notice because
we would not hash it. Nothing read here is ever hashed or taken for a definition.
"""

import json
import re
from io import StringIO
from typing import Any

from assay_stream.canonical.decode import check_containers
from assay_stream.errors import InputError
from assay_stream.limits.core import DEFAULT_LIMITS

_DEPTH_KEPT = 8
"""Containers kept of a message that nests too deeply; all that says what it is stands above that."""

_CONTAINERS_KEPT = DEFAULT_LIMITS.containers_max
"""Containers kept of a message that has too many; what says what it is comes first in all that is sent."""

# Possessive, and content with the end of the text for a quote that is never closed: linear in any text.
_STRING = r'"(?:[^"\\]|\\.)*+"?'
_TOKEN = re.compile(rf'{_STRING}|[\[\]{{}}]|[^"\[\]{{}}]+', re.DOTALL)
_MARK = re.compile(rf"{_STRING}|[\[\]{{}}:,]".encode(), re.DOTALL)


def read_leniently(raw: bytes) -> Any:
    """Return what a forgiving parser makes of a JSON text, ``None`` if nothing.

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
    """Return the text with ``null`` for every container that is too deep, or one too many."""
    kept = StringIO()
    depth = containers = 0
    skipped_at: int | None = None
    for match in _TOKEN.finditer(text):
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
