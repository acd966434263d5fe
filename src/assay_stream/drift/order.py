"""Lists that stand for sets: whether two values are the same but for the order in which something lists its items.

A program that writes a set into a default or a text may use another order each time it starts.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from assay_stream.drift.equality import Values
from assay_stream.work import Work

_BRACKETS = re.compile(r"([\[\]{}])")
_CHARS_PER_UNIT = 4
_ITEM_UNITS = 8


def is_reordered(before: Any, after: Any, values: Values) -> bool:
    """Return True if two lists of scalars, or two texts with lists in them, are the same but for their order.

    Raises:
        WorkExhaustedError: if the budget of the comparison is used up.
    """
    if isinstance(before, str) and isinstance(after, str):
        return is_text_reordered(before, after, values.work)
    if not isinstance(before, list) or not isinstance(after, list) or len(before) != len(after):
        return False
    values.work.spend(_ITEM_UNITS * len(before))
    if any(isinstance(each, dict | list) for each in (*before, *after)):
        return False
    return Counter(map(values.class_of, before)) == Counter(map(values.class_of, after))


def is_text_reordered(before: str, after: str, work: Work) -> bool:
    """Return True if two texts are the same but for the order of the items between square brackets or braces.

    Raises:
        WorkExhaustedError: if the budget is used up.
    """
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
