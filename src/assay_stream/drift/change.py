"""One change between two definitions: its code, its path, the values, and its direction."""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import Any, NamedTuple

from assay_stream.canonical.digest import canonicalize, sha256_of
from assay_stream.limits import DEFAULT_LIMITS

_CONTEXT_CHARS = 64
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class Direction(StrEnum):
    """Which way a change goes: more is possible after it, less, or neither can be told.

    Of a schema: more or fewer values satisfy it. Of a text: words came, or words went. Of a hint: the tool claims
    to do more, or less.
    """

    WIDENS = "widens"
    NARROWS = "narrows"
    NEUTRAL = "neutral"

    def mirrored(self) -> Direction:
        """Return the direction of the opposite change."""
        return _MIRRORED[self]


_MIRRORED = {
    Direction.WIDENS: Direction.NARROWS,
    Direction.NARROWS: Direction.WIDENS,
    Direction.NEUTRAL: Direction.NEUTRAL,
}


class Change(NamedTuple):
    """One change.

    Args:
        code: what changed, a key of ``CODES``.
        path: where, from the definition's root: ``$.inputSchema.properties.path.type``.
        before: the JSON value before, ``None`` where there was none; a long one is cut (``bounded``).
        after: the JSON value after, in the same way.
        direction: which way it goes.
    """

    code: str
    path: str
    before: Any
    after: Any
    direction: Direction


class Absent:
    """The type of ``ABSENT``: no value, where ``null`` is one."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = Absent()


def member(path: str, name: str) -> str:
    """Return the path of an object's member; a long name is cut.

    Args:
        path: the object's.
        name: the member's key.
    """
    if len(name) > DEFAULT_LIMITS.field_name_chars_max:
        name = _cut(name, DEFAULT_LIMITS.field_name_chars_max)
    elif _PLAIN_NAME.fullmatch(name):
        return f"{path}.{name}"
    return f"{path}[{json.dumps(name)}]"


def bounded(value: Any) -> Any:
    """Return a value as a change carries it: whole, or cut with a mark that names its length and digest.

    What was no text before the cut is cut as canonical JSON, and so becomes one.

    Args:
        value: a JSON value, or ``ABSENT``, which becomes ``None``.
    """
    chars_max = DEFAULT_LIMITS.change_value_chars_max
    if value is ABSENT:
        return None
    if isinstance(value, dict | list):
        form = canonicalize(value)
        if len(form) <= chars_max:
            return value
        return _cut(form.decode(), chars_max)
    return _cut(value, chars_max) if isinstance(value, str) and len(value) > chars_max else value


def bounded_pair(before: Any, after: Any) -> tuple[Any, Any]:
    """Return two values as a change carries them: of long texts that begin alike, from a little before they part.

    Args:
        before: a JSON value, or ``ABSENT``.
        after: the same.
    """
    if isinstance(before, str) and isinstance(after, str):
        chars_max = DEFAULT_LIMITS.change_value_chars_max
        if max(len(before), len(after)) > chars_max:
            start = max(0, parting(before, after) - _CONTEXT_CHARS)
            return _cut(before, chars_max, start), _cut(after, chars_max, start)
    return bounded(before), bounded(after)


def parting(one: str, other: str) -> int:
    """Return the length of what two texts begin with alike.

    Args:
        one: a text.
        other: another one.
    """
    alike, apart = 0, min(len(one), len(other)) + 1
    while apart - alike > 1:
        middle = (alike + apart) // 2
        if one[alike:middle] == other[alike:middle]:
            alike = middle
        else:
            apart = middle
    return alike


def _cut(text: str, chars_max: int, start: int = 0) -> str:
    shown = f"{'…' if start else ''}{text[start : start + chars_max]}"
    return f"{shown}… (cut: {len(text)} characters, {sha256_of(text.encode())})"
