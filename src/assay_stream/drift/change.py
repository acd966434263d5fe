"""One change between two definitions: its code (``codes.toml``), its path, the values, and its direction."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, NamedTuple

from assay_stream.canonical.digest import canonicalize, sha256_of
from assay_stream.drift.equality import Values
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.fields import ChangeDirection


@dataclass(frozen=True, slots=True)
class CodeInfo:
    """Meaning of a code.

    Args:
        title: one line for a person.
        direction: direction of such a change.
        opposite: the code of the opposite change; its own where that is of the same kind.
        level: name of its level under the profile ``soc``.
    """

    title: str
    direction: ChangeDirection
    opposite: str
    level: str


CODES: Mapping[str, CodeInfo] = {
    code: CodeInfo(entry["title"], ChangeDirection(entry["direction"]), entry["opposite"], entry["level"])
    for code, entry in tomllib.loads((files(__package__) / "codes.toml").read_text(encoding="utf-8")).items()
}

_CONTEXT_CHARS = 64
_CHANGE_UNITS = 100
_CUT_CHARS_PER_UNIT, _KEPT_CHARS_PER_UNIT = 10, 2
_NAME_UNITS, _NAME_CHARS_PER_UNIT = 10, 8
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class Change(NamedTuple):
    """One change.

    Args:
        code: a key of ``CODES``.
        path: from the definition's root: ``$.inputSchema.properties.path.type``.
        before: the JSON value before, ``None`` where there was none; a long one is cut (``bounded``).
        after: the JSON value after, in the same way.
    """

    code: str
    path: str
    before: Any
    after: Any
    direction: ChangeDirection


class Absent:
    """The type of ``ABSENT``: no value, as distinct from ``null``."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = Absent()


def member(path: str, name: str) -> str:
    """Return the path of an object's member; a long name is cut."""
    if len(name) > DEFAULT_LIMITS.field_name_chars_max:
        name = _cut(name, DEFAULT_LIMITS.field_name_chars_max)
    elif _PLAIN_NAME.fullmatch(name):
        return f"{path}.{name}"
    return f"{path}[{json.dumps(name)}]"


class Path:
    """One place of a definition: a chain of steps, rendered as text only if there is something to report.

    Places share their beginnings: as texts, those that wait in a deep definition would take a kilobyte each.
    """

    __slots__ = ("_is_name", "_parent", "_step", "_text")

    def __init__(self, text: str) -> None:
        self._parent: Path | None = None
        self._step = ""
        self._is_name = False
        self._text: str | None = text

    def keyword(self, name: str) -> Path:
        """Return the path of a member whose name is known to be plain."""
        return self._next(f".{name}", is_name=False)

    def member(self, name: str) -> Path:
        return self._next(name, is_name=True)

    def item(self, index: int) -> Path:
        return self._next(f"[{index}]", is_name=False)

    def _next(self, step: str, *, is_name: bool) -> Path:
        path = Path.__new__(Path)
        path._parent, path._step, path._is_name, path._text = self, step, is_name, None
        return path

    def __str__(self) -> str:
        """Return the text of the path; a long one is cut, with a mark that makes it unique."""
        chain: list[Path] = []
        node: Path | None = self
        while node is not None and node._text is None:
            chain.append(node)
            node = node._parent
        text = "" if node is None or node._text is None else node._text
        for node in reversed(chain):
            text = _cut_path(member(text, node._step) if node._is_name else text + node._step)
            node._text = text
        return text


def _cut_path(text: str) -> str:
    chars_max = DEFAULT_LIMITS.path_chars_max
    return text if len(text) <= chars_max else f"{text[:chars_max]}… (cut: {sha256_of(text.encode())})"


def bounded(value: Any) -> Any:
    """Return a value as a change carries it: in full, or cut with a mark that holds its length and digest.

    A value that is not a string is cut as canonical JSON, and so becomes one.
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
    """Return two values as a change carries them: long texts with a common prefix start shortly before they differ."""
    if isinstance(before, str) and isinstance(after, str):
        chars_max = DEFAULT_LIMITS.change_value_chars_max
        if max(len(before), len(after)) > chars_max:
            start = max(0, parting(before, after) - _CONTEXT_CHARS)
            return _cut(before, chars_max, start), _cut(after, chars_max, start)
    return bounded(before), bounded(after)


def parting(one: str, other: str) -> int:
    """Return the length of the common prefix of two texts."""
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


def changed(code: str, path: Path, before: Any, after: Any, values: Values) -> Change:
    """Return a change of this code, with its values, each of which may be ``ABSENT``, bounded."""
    work = values.work
    work.spend(_CHANGE_UNITS)
    for side in (before, after):
        if isinstance(side, dict | list):
            work.spend(values.units_to_write(side))
        elif isinstance(side, str):
            work.spend(len(side) // _CUT_CHARS_PER_UNIT)
    change = Change(code, str(path), *bounded_pair(before, after), CODES[code].direction)
    # What is kept takes room: this bounds that too.
    chars = len(change.path) + sum(len(side) for side in change[2:4] if isinstance(side, str))
    work.spend(chars // _KEPT_CHARS_PER_UNIT)
    return change


def sorted_names(values: Values, *sides: Collection[str]) -> list[str]:
    """Return the distinct names of the members of some objects, sorted."""
    for side in sides:
        values.work.spend(_NAME_UNITS * len(side) + sum(map(len, side)) // _NAME_CHARS_PER_UNIT)
    return sorted(set().union(*sides))


def paired(
    path: Path, was: Mapping[str, Any], now: Mapping[str, Any], values: Values
) -> Iterator[tuple[str, Path, Any, Any]]:
    """Yield each member of two objects, sorted by name, with its path and its value in either, or ``ABSENT``."""
    for name in sorted_names(values, was, now):
        yield name, path.member(name), was.get(name, ABSENT), now.get(name, ABSENT)


def at_least(
    code: str, changes: Iterable[Change], path: Path, before: Any, after: Any, values: Values
) -> Iterator[Change]:
    """Yield the changes of a place that differs, or one of this code: no difference goes without one."""
    found = False
    for change in changes:
        found = True
        yield change
    if not found:
        yield changed(code, path, before, after, values)
