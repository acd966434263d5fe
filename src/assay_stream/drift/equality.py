"""Decide which JSON values of a comparison are equal, in order or as sets, and what each costs to write.

Equal values have one class. A class is built bottom-up from the classes of a value's members, so that two visited
values are compared in constant time at every level and from every place.

A program that writes a set into a default or a text may use another order each time it starts.
"""

from __future__ import annotations

import math
import re
import struct
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import orjson

from assay_stream.canonical.decode import is_unicode
from assay_stream.canonical.digest import canonicalize
from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.work import UNLIMITED, Work

_EXACT_INTEGER_MAX = 2**53 - 1

# Units of work. Where one number is no plain integer, or one key no ASCII, all of a value is written the slow way.
_LOOK_CONTAINER, _LOOK_MEMBER, _LOOK_CHARS_PER_UNIT = 20, 5, 32
_WRITE_NUMBER, _WRITE_TEXT, _WRITE_CHAR, _WRITE_CONTAINER = 40, 10, 2, 10
_WRITE_PLAIN_PART, _PLAIN_CHARS_PER_UNIT = 3, 8
_WRITTEN_BYTES_MAX, _WRITTEN_KEPT = 8_192, 512
"""Of the containers that most releases leave as they are: the schemas."""


@dataclass(slots=True, eq=False)
class _Class:
    """One class of equal containers, told from others by its identity; parts and characters are those of all levels."""

    parts: int
    chars: int
    is_plain: bool


_NUMBER = struct.Struct("d")
_TRUE, _FALSE, _NULL, _LIST, _OBJECT = (object() for _ in range(5))
_READY: Final = object()
"""Precedes a container whose members have their classes."""
_CONTAINERS = (dict, list)


class Values:
    """The values of one comparison.

    Args:
        work: the budget of the comparison; ``None`` for that of one definition.
    """

    __slots__ = ("_class_of", "_interned", "_roots", "work")

    def __init__(self, work: Work | None = None) -> None:
        self.work = Work(DEFAULT_LIMITS.definition_work_units_max) if work is None else work
        self._class_of: dict[int, _Class] = {}
        self._interned: dict[tuple[Any, ...], _Class] = {}
        self._roots: list[Any] = []
        """Visited values, kept alive so that their ids are not reused."""

    def same(self, before: Any, after: Any) -> bool:
        """Return True if two values are equal as JSON; unlike in Python, ``true`` is not 1.

        Raises:
            InputError: as ``canonicalize``.
        """
        if before is after or self._is_written_alike(before, after):
            return True
        one, other = self.class_of(before), self.class_of(after)
        return one is other or (isinstance(one, str | bytes) and bool(one == other))

    def _is_written_alike(self, before: Any, after: Any) -> bool:
        """Return True if two containers that were not looked at are written alike. It costs what looking does."""
        sides = before, after
        if not all(isinstance(side, _CONTAINERS) and id(side) not in self._class_of for side in sides):
            return False
        try:
            # An older definition comes out of its canonical form, and a newer one as its server wrote it.
            written = orjson.dumps(before, option=orjson.OPT_SORT_KEYS)
            # What is no JSON number is written as null.
            if (
                len(written) > _WRITTEN_BYTES_MAX
                or b"null" in written
                or written != orjson.dumps(after, option=orjson.OPT_SORT_KEYS)
            ):
                return False
        except TypeError:
            return False
        self.work.spend(2 * _units_to_look_at(written))
        return True

    def class_of(self, value: Any) -> Any:
        """Return an object that compares equal for two values exactly if they are equal; raise as ``canonicalize``."""
        if isinstance(value, str):
            self.work.spend(1 + len(value) // _LOOK_CHARS_PER_UNIT)
            return _scalar(value)
        if not isinstance(value, dict | list):
            return _scalar(value) if value is None or isinstance(value, bool | int | float) else value
        found = self._class_of.get(id(value))
        if found is None:
            self._roots.append(value)
            self._look_at(value)
            found = self._class_of[id(value)]
        return found

    def units_to_write(self, value: Any) -> int:
        """Return the units of work for the canonical form of a value."""
        if isinstance(value, dict | list):
            known: _Class = self.class_of(value)
            if known.is_plain:
                return _WRITE_PLAIN_PART * (1 + known.parts) + known.chars // _PLAIN_CHARS_PER_UNIT
            return _WRITE_NUMBER * (1 + known.parts) + _WRITE_CHAR * known.chars
        return _WRITE_TEXT + _WRITE_CHAR * len(value) if isinstance(value, str) else _WRITE_NUMBER

    def form(self, value: Any) -> bytes:
        """Return the canonical form of a value.

        Raises:
            InputError: as ``canonicalize``.
        """
        self.work.spend(self.units_to_write(value))
        return canonicalize(value)

    def _look_at(self, root: Any) -> None:
        """Classify a container and all within it, members first."""
        classes, spend = self._class_of, self.work.spend
        waiting = [root]
        while waiting:
            value = waiting.pop()
            if value is _READY:
                value = waiting.pop()
            elif id(value) in classes:
                continue
            else:
                units = _LOOK_CONTAINER + _LOOK_MEMBER * len(value)
                spend(units)
                members = value.values() if isinstance(value, dict) else value
                inner = [each for each in members if isinstance(each, _CONTAINERS) and id(each) not in classes]
                if inner:
                    spend(units)
                    waiting += (value, _READY, *inner)
                    continue
            classes[id(value)] = self._class(value)

    def _class(self, value: dict[Any, Any] | list[Any]) -> _Class:
        """Return the class of a container whose containers are already classified."""
        key: list[Any]
        if isinstance(value, list):
            key, members, parts, chars, is_plain = [_LIST], value, len(value), 0, True
        else:
            try:
                names = sorted(value)
                joined = "".join(names)
            except TypeError:
                raise InputError("not_canonicalizable", "object keys must be text") from None
            chars, is_plain = len(joined), joined.isascii()
            if chars >= _LOOK_CHARS_PER_UNIT:
                self.work.spend(chars // _LOOK_CHARS_PER_UNIT)
            key, members = [_OBJECT, *(names if is_plain else map(_scalar, names))], [value[name] for name in names]
            parts = 2 * len(value)
        classes = self._class_of
        for member in members:
            if isinstance(member, str):
                if len(member) >= _LOOK_CHARS_PER_UNIT:
                    self.work.spend(len(member) // _LOOK_CHARS_PER_UNIT)
                chars += len(member)
                key.append(member if member.isascii() else _scalar(member))
            elif isinstance(member, _CONTAINERS):
                known = classes[id(member)]
                parts += known.parts
                chars += known.chars
                is_plain = is_plain and known.is_plain
                key.append(known)
            else:
                if member is not None and not isinstance(member, bool):
                    is_plain = is_plain and isinstance(member, int) and abs(member) <= _EXACT_INTEGER_MAX
                key.append(_scalar(member))
        content = tuple(key)
        found = self._interned.get(content)
        if found is None:
            found = self._interned[content] = _Class(parts, chars, is_plain)
        return found


@lru_cache(_WRITTEN_KEPT)
def _units_to_look_at(written: bytes) -> int:
    values = Values(Work(UNLIMITED))
    values.class_of(orjson.loads(written))
    return values.work.spent


def _scalar(value: Any) -> Any:
    """Return a key shared by equal scalars, and no others."""
    if isinstance(value, str):
        if not value.isascii() and not is_unicode(value):
            raise InputError("lone_surrogate", "an unpaired surrogate is not valid Unicode")
        return value
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return _TRUE if value else _FALSE
    if not isinstance(value, int | float):
        raise InputError("not_canonicalizable", "the value is not JSON, or a number is not finite")
    try:
        number = float(value)
    except OverflowError:
        raise InputError("not_canonicalizable", "an integer does not fit a double") from None
    if not math.isfinite(number):
        raise InputError("not_canonicalizable", "the value is not JSON, or a number is not finite")
    # As bytes: anyone can find numbers whose hashes are equal, and lists of them would share one place of a table.
    # Negative zero is zero, and integers beyond 2^53 are doubles: the canonical form has them so too.
    return _NUMBER.pack(number + 0.0)


def same(before: Any, after: Any) -> bool:
    """Return True if two JSON values, or ``ABSENT``, are equal; unlike in Python, ``true`` is not 1.

    For values compared only once. Those of one comparison have ``Values.same``.
    """
    # Equal for Python: only booleans and numbers are left to tell apart.
    return before is after or bool(before == after and canonicalize(before) == canonicalize(after))


_BRACKETS = re.compile(r"([\[\]{}])")
_CHARS_PER_UNIT = 4
_ITEM_UNITS = 8


def is_reordered(before: Any, after: Any, values: Values) -> bool:
    """Return True if two lists of scalars, or two texts with lists in them, are the same but for their order."""
    if isinstance(before, str) and isinstance(after, str):
        return is_text_reordered(before, after, values.work)
    if not isinstance(before, list) or not isinstance(after, list) or len(before) != len(after):
        return False
    values.work.spend(_ITEM_UNITS * len(before))
    if any(isinstance(each, dict | list) for each in (*before, *after)):
        return False
    return Counter(map(values.class_of, before)) == Counter(map(values.class_of, after))


def is_text_reordered(before: str, after: str, work: Work) -> bool:
    """Return True if two texts are the same but for the order of the items between square brackets or braces."""
    if len(before) != len(after):
        return False
    work.spend(len(before) // _CHARS_PER_UNIT)
    was, now = _BRACKETS.split(before), _BRACKETS.split(after)
    if len(was) != len(now):
        return False
    for index, (old, new) in enumerate(zip(was, now, strict=True)):
        if old != new:
            work.spend(_CHARS_PER_UNIT * len(old))
            # Brackets stand at odd places, what is between them at even ones.
            is_listing = 0 < index < len(was) - 1 and was[index - 1] + was[index + 1] in ("[]", "{}")
            if not is_listing or _items(old) != _items(new):
                return False
    return True


def _items(listing: str) -> list[str]:
    return sorted(item.strip() for item in listing.split(","))
