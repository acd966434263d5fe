"""Which JSON values of one comparison are equal, and what each costs to write: every value is looked at once.

Equal values have one class. A class is found bottom-up from the classes of a value's members, so that a pair of
values that was looked at is held against each other in constant time at every level and from every place.
"""

from __future__ import annotations

import math
import struct
from typing import Any, Final

from assay_stream.canonical.digest import canonicalize
from assay_stream.errors import InputError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.work import Work

_EXACT_INTEGER_MAX = 2**53 - 1

# Units of work. Where one number is no plain integer, or one key no ASCII, all of a value is written the slow way.
_LOOK_CONTAINER, _LOOK_MEMBER, _LOOK_CHARS_PER_UNIT = 20, 5, 32
_WRITE_NUMBER, _WRITE_TEXT, _WRITE_CHAR, _WRITE_CONTAINER = 40, 10, 2, 10
_WRITE_PLAIN_PART, _PLAIN_CHARS_PER_UNIT = 3, 8


class _Class:
    """One class of equal containers.

    Args:
        parts: members and names of members, of all levels.
        chars: characters of texts and names, of all levels.
        is_plain: whether its canonical form is written the fast way.
    """

    __slots__ = ("chars", "is_plain", "parts")

    def __init__(self, parts: int, chars: int, is_plain: bool) -> None:
        self.parts = parts
        self.chars = chars
        self.is_plain = is_plain


_NUMBER = struct.Struct("d")


class _Mark:
    __slots__ = ()


_TRUE: Final = _Mark()
_FALSE: Final = _Mark()
_NULL: Final = _Mark()
_LIST: Final = _Mark()
_OBJECT: Final = _Mark()


class Values:
    """The values of one comparison.

    Args:
        work: the budget of the comparison, that of one definition without it.
    """

    __slots__ = ("_class_of", "_interned", "_roots", "work")

    def __init__(self, work: Work | None = None) -> None:
        self.work = Work(DEFAULT_LIMITS.definition_work_units_max) if work is None else work
        self._class_of: dict[int, _Class] = {}
        self._interned: dict[tuple[Any, ...], _Class] = {}
        self._roots: list[Any] = []
        """What was looked at, kept so that no other value gets its id."""

    def same(self, before: Any, after: Any) -> bool:
        """Tell whether two values are equal as JSON; other than for Python, ``true`` is not 1.

        Raises:
            InputError: as ``canonicalize``.
            WorkExhaustedError: where the budget is used up.
        """
        if before is after:
            return True
        one, other = self.class_of(before), self.class_of(after)
        return one is other or (isinstance(one, str | bytes) and bool(one == other))

    def class_of(self, value: Any) -> Any:
        """Return what two values have in common exactly where they are equal.

        Raises:
            InputError: as ``canonicalize``.
            WorkExhaustedError: where the budget is used up.
        """
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
        """Return how many units of work the canonical form of a value takes."""
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
            WorkExhaustedError: where the budget is used up.
        """
        self.work.spend(self.units_to_write(value))
        return canonicalize(value)

    def _look_at(self, root: Any) -> None:
        """Find the classes of a container and of all within it, members before what they are members of."""
        classes = self._class_of
        waiting = [root]
        while waiting:
            value = waiting[-1]
            if id(value) in classes:
                waiting.pop()
                continue
            self.work.spend(_LOOK_CONTAINER + _LOOK_MEMBER * len(value))
            members = value.values() if isinstance(value, dict) else value
            inner = [each for each in members if isinstance(each, dict | list) and id(each) not in classes]
            if inner:
                waiting.extend(inner)
            else:
                classes[id(value)] = self._class(value)
                waiting.pop()

    def _class(self, value: dict[Any, Any] | list[Any]) -> _Class:
        """Return the class of a container whose containers have theirs."""
        key: list[Any]
        if not isinstance(value, dict):
            key, found = [_LIST], _Class(0, 0, True)
            self._add_members(key, found, value)
        elif all(isinstance(name, str) for name in value):
            chars = sum(map(len, value))
            self.work.spend(chars // _LOOK_CHARS_PER_UNIT)
            names = sorted(value)
            key, found = [_OBJECT, *map(_scalar, names)], _Class(len(value), chars, all(map(str.isascii, names)))
            self._add_members(key, found, [value[name] for name in names])
        else:
            raise InputError("not_canonicalizable", "object keys must be text")
        return self._interned.setdefault(tuple(key), found)

    def _add_members(self, key: list[Any], found: _Class, members: list[Any]) -> None:
        parts, chars, is_plain = len(members), 0, found.is_plain
        for member in members:
            if isinstance(member, dict | list):
                known = self._class_of[id(member)]
                parts += known.parts
                chars += known.chars
                is_plain = is_plain and known.is_plain
                key.append(known)
                continue
            if isinstance(member, str):
                chars += len(member)
                self.work.spend(len(member) // _LOOK_CHARS_PER_UNIT)
            elif member is not None and not isinstance(member, bool):
                is_plain = is_plain and isinstance(member, int) and abs(member) <= _EXACT_INTEGER_MAX
            key.append(_scalar(member))
        found.parts += parts
        found.chars += chars
        found.is_plain = is_plain


def _scalar(value: Any) -> Any:
    """Return what equal scalars have in common, and no others.

    Raises:
        InputError: as ``canonicalize``.
    """
    if isinstance(value, str):
        if not value.isascii():
            _check_unicode(value)
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


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError("lone_surrogate", "half a surrogate pair is no Unicode text") from None
