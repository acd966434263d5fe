"""What the Unicode normalisation of a text costs, told before it is normalised.

Normalisation sorts runs of combining marks by insertion, which takes time in the square of a run's length, and
some characters become up to eighteen.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

_FIRST, _END = 0xA0, 0x20000
"""Code points that can cost more: every non-starter and every long expansion is among them."""
_HANGUL = range(0xAC00, 0xD7A4)
_BLOCK = 32
"""Code points that are looked at together. The range is so many times a number."""
_EXPANSION_MIN = 4
_RUN_MIN = 8
_STREAM_SAFE_MAX = 30
_UNITS_PER_CHAR = 3
_UNITS_PER_EXPANDING_CHAR = 25
_RUN_SQUARE_PER_UNIT = 4


def units_to_normalize(text: str) -> int:
    """Return the units of work that it takes to bring a text into NFKC, fold its case and split it into words."""
    if text.isascii():
        return len(text) // 4
    units = _UNITS_PER_CHAR * len(text)
    expanding, sorted_ = _characters()
    if not expanding.set.isdisjoint(text):
        units += _UNITS_PER_CHAR * len(text)
        units += _UNITS_PER_EXPANDING_CHAR * sum(len(run) for run in expanding.runs.findall(text))
    if not sorted_.set.isdisjoint(text):
        units += _UNITS_PER_CHAR * len(text)
        units += sum(len(run) ** 2 // _RUN_SQUARE_PER_UNIT for run in sorted_.runs.findall(text))
    return units


def without_long_runs(text: str) -> str:
    """Return a text whose runs of combining marks end after as many as stream-safe text has (UAX 15, section 13)."""
    if text.isascii():
        return text
    sorted_ = _characters()[1]
    if sorted_.set.isdisjoint(text):
        return text
    return sorted_.runs.sub(lambda run: run[0][:_STREAM_SAFE_MAX], text)


class _Characters(NamedTuple):
    set: frozenset[str]
    runs: re.Pattern[str]


@cache
def _characters() -> tuple[_Characters, _Characters]:
    """Return the characters that become many, and those whose runs are sorted."""
    expanding, sorted_ = [], []
    for code in _decomposed():
        form = unicodedata.normalize("NFKD", chr(code))
        if unicodedata.combining(form[0]):
            sorted_.append(chr(code))
        elif len(form) >= _EXPANSION_MIN:
            expanding.append(chr(code))
    return (
        _Characters(frozenset(expanding), re.compile(f"[{''.join(expanding)}]+")),
        _Characters(frozenset(sorted_), re.compile(f"[{''.join(sorted_)}]{{{_RUN_MIN},}}")),
    )


def _decomposed() -> Iterator[int]:
    """Yield every code point that a decomposition changes or moves, but Hangul; most blocks have none."""
    for first in range(_FIRST, _END, _BLOCK):
        codes = range(first, first + _BLOCK)
        block = "".join(map(chr, codes))
        if not unicodedata.is_normalized("NFKD", block) or any(map(unicodedata.combining, block)):
            yield from (code for code in codes if code not in _HANGUL)
