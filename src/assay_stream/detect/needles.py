"""What must stand in a text before a pattern can match it, looked for in one pass over many texts.

Both kinds of search only skip texts that cannot match: the pattern itself decides.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from itertools import accumulate
from typing import Final

from ahocorasick_rs import AhoCorasick

from assay_stream.work import Work

_SEPARATOR = "\x00"
# Letters that a case-insensitive pattern takes for another one, though its lowercase is not that one.
_OTHER_CASES = dict(zip("İıᲀᲁᲂᲃᲄᲅᲆᲇᲈ", "iiвдосттъѣꙋ", strict=True))
UNITS_PER_HIT: Final = 3
"""Units of work per needle found."""
CHARS_PER_UNIT: Final = 5
"""Characters scanned per unit of work, in one pass over texts."""


class Joined:
    """Texts searched in one pass.

    Args:
        texts: none may contain U+0000 if a pattern that matches it is searched.
    """

    __slots__ = ("starts", "text")

    def __init__(self, texts: Sequence[str]) -> None:
        self.text = _SEPARATOR.join(texts)
        self.starts = list(accumulate((len(text) + 1 for text in texts[:-1]), initial=0))

    def index_at(self, place: int) -> int:
        """Return the index of the text that contains an offset."""
        return bisect_right(self.starts, place) - 1


class Needles:
    """The literal texts of rules, found all at once by one automaton.

    Args:
        needles: id of a rule to texts in the form of ``lowered``, one of which occurs in each of its matches.
    """

    def __init__(self, needles: Mapping[str, tuple[str, ...]]) -> None:
        rules: dict[str, list[str]] = {}
        for rule, listed in needles.items():
            for needle in listed:
                rules.setdefault(needle, []).append(rule)
        self._rules = list(rules.values())
        self._automaton = AhoCorasick(list(rules))

    def rules_of(self, lowered: str, work: Work) -> Set[str]:
        """Return the rules that have a needle in a text."""
        work.spend(len(lowered) // CHARS_PER_UNIT)
        rules, hits = self.found_in(Joined([lowered]))
        work.spend(UNITS_PER_HIT * hits[0])
        return rules.get(0, frozenset())

    def found_in(self, lowered: Joined) -> tuple[dict[int, set[str]], Counter[int]]:
        """Return the rules that have a needle in a text, and its number of needles, by the index of the text."""
        found: dict[int, set[str]] = {}
        hits: Counter[int] = Counter()
        for needle, start, _ in self._automaton.find_matches_as_indexes(lowered.text, overlapping=True):
            index = lowered.index_at(start)
            hits[index] += 1
            found.setdefault(index, set()).update(self._rules[needle])
        return found, hits


def lowered(seen: str) -> str:
    """Return a visible text as a case-insensitive pattern compares it with lowercase ASCII letters."""
    if seen.isascii():
        return seen.lower()
    for other, letter in _OTHER_CASES.items():
        if other in seen:
            seen = seen.replace(other, letter)
    return seen.lower()


def gated(gate: re.Pattern[str], texts: Joined) -> set[int]:
    """Return the indexes of the texts in which a pattern matches. The pattern must not match U+0000."""
    found = set()
    match = gate.search(texts.text)
    while match is not None:
        index = texts.index_at(match.start())
        found.add(index)
        if index + 1 == len(texts.starts):
            break
        match = gate.search(texts.text, texts.starts[index + 1])
    return found
