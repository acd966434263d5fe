"""What the rules find in one wording of a text: by their patterns, its words and its phrases."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from functools import cache

from assay_stream.detect.catalog import CATALOG, LEVELS, RULES, DetectionRule
from assay_stream.detect.excuses import is_excused, is_harmless_address, level_of
from assay_stream.detect.match import Key, Match, key_of
from assay_stream.detect.page import Page, Visit
from assay_stream.detect.phrase_filter import AS_IT_STANDS, PhraseFilter, WordReadings
from assay_stream.detect.phrases import PhraseBook
from assay_stream.detect.places import Places, names_in
from assay_stream.detect.surfaces import Place
from assay_stream.detect.symbols import OfferedNames
from assay_stream.detect.tool_names import OtherTools, Span
from assay_stream.text.words import Words, mixed_words, mixes_scripts
from assay_stream.work import Work

_PATTERNS = [(rule, re.compile(rule.regex, re.IGNORECASE | re.MULTILINE)) for rule in RULES if rule.pattern]
_UNLESS = {rule.id: re.compile(rule.unless_followed_by, re.IGNORECASE) for rule in RULES if rule.unless_followed_by}
_MATCHES_MAX = 200
_UNITS_PER_PATTERN = 10
_CHARS_PER_UNIT = 2
_UNITS_PER_MATCH = 20

_Counted = dict[str, set[Key]]


@cache
def phrase_filter() -> PhraseFilter:
    """Return all phrases, by the words that they can be told from: made where a text is first searched."""
    return PhraseFilter(PhraseBook(CATALOG.phrases))


@cache
def _notes() -> PhraseBook:
    return PhraseBook(CATALOG.note_phrases)


class RuleSearch:
    """The search of one wording after the other. Arguments are those of ``Reader``."""

    def __init__(self, others: OtherTools, offered: OfferedNames, readings: WordReadings, work: Work) -> None:
        self._others = others
        self._offered = offered
        self._readings = readings
        self._work = work
        self.place: Place = None
        """Where the text stands."""
        self.is_note = False
        """Whether it describes a parameter that may hold anything."""

    def as_it_stands(self, visit: Visit, *, is_raw: bool = True) -> Iterator[Match]:
        """Yield what a text gives without being decoded.

        Args:
            is_raw: whether to look at what its reader does not see, too.
        """
        page, hints = visit.page, visit.page.hints
        if hints.rules or hints.is_unseen or hints.is_wide:
            for rule, pattern in _PATTERNS:
                if rule.searched_in == "raw":
                    if is_raw and (hints.is_wide if rule.needs == "wide" else hints.is_unseen):
                        yield from self._by_pattern(rule, pattern, page.raw)
                elif rule.id in hints.rules and (not rule.hints or any(hint in page.lowered for hint in rule.hints)):
                    yield from self._by_pattern(rule, pattern, page.seen)
        yield from self._by_words(visit)

    def _by_pattern(self, rule: DetectionRule, pattern: re.Pattern[str], text: str) -> Iterator[Match]:
        self._work.spend(_UNITS_PER_PATTERN + len(text) // _CHARS_PER_UNIT)
        seen: set[Key] = set()
        for match in pattern.finditer(text):
            self._work.spend(_UNITS_PER_MATCH)
            key = key_of(rule, match[0])
            if key not in seen and not is_harmless_address(rule, key) and not is_excused(rule.id, text, match.start()):
                seen.add(key)
                level = level_of(rule, key, text, match.start())
                yield Match(rule.id, level, text, match.start(), match.end(), key, self.place)
            if len(seen) == _MATCHES_MAX:
                break

    def _by_words(self, visit: Visit) -> Iterator[Match]:
        """Yield what the words of a text give as it stands."""
        page = visit.page
        for found in visit.steering(self._offered, self._work):
            yield Match(found.rule, found.level, page.seen, found.start, found.end, found.key, self.place)
        others = self._others
        counted: _Counted = {}
        is_tool_named = visit.names_tool(others, self._work)
        names: Set[str] = frozenset()
        possible: Sequence[int] = ()
        if is_tool_named or self.is_note or page.asked >> AS_IT_STANDS & 1:
            names = names_on(page, page.hints.rules, is_tool_named=is_tool_named)
            possible = self.possible(page, AS_IT_STANDS, names)
        if possible or self.is_note:
            yield from self.by_phrases(visit.words(self._work), names, counted, possible or None)
        if is_tool_named:
            words = visit.words(self._work)
            for span in others.spans(words, self._work):
                yield from self._once("other_tool_named", words, span, counted)
        if not page.is_plain and any(mixes_scripts(word) for word in mixed_words(page.seen)):
            words = visit.words(self._work)
            for index, (start, stop) in enumerate(words.spans):
                if not words.forms[index].isascii() and mixes_scripts(page.seen[start:stop]):
                    yield from self._once("mixed_script_word", words, (index, index + 1), counted)

    def possible(self, page: Page, way: int, names: Set[str]) -> Sequence[int]:
        """Return the phrases that can stand in a text, read one way, with what names in braces may stand for."""
        if not (page.asked >> way & 1 or {"tool", "address"} <= names):
            return ()
        readings = page.readings or {}
        possible = phrase_filter().possible(readings.values(), way, names, self._work)
        if possible and len(page.forms) > 2 * phrase_filter().reach:
            windows = self._readings.windows(page.forms, readings)
            possible = phrase_filter().possible_near(possible, windows, way, self._work)
        return possible

    def by_phrases(
        self, words: Words, names: Set[str], counted: _Counted, possible: Sequence[int] | None
    ) -> Iterator[Match]:
        """Yield what phrases give, of those that are possible, and notes where the text is for them."""
        notes = range(len(_notes().phrases)) if self.is_note else None
        for book, numbers in ((phrase_filter().book, possible), (_notes(), notes)):
            if numbers is not None:
                places = Places(words, self._others, names, self._work)
                for rule, span in book.search(words, places.spans, self._work, numbers):
                    yield from self._once(rule, words, span, counted)

    def _once(self, rule: str, words: Words, span: Span, counted: _Counted) -> Iterator[Match]:
        first, end = span
        if rule in _UNLESS and _UNLESS[rule].match(words.text, words.spans[end - 1][1]):
            return
        if is_excused(rule, words.text, words.spans[first][0]):
            return
        key = tuple(words.forms[first:end])
        known = counted.setdefault(rule, set())
        if key not in known and len(known) < _MATCHES_MAX:
            known.add(key)
            start, stop = words.spans[first][0], words.spans[end - 1][1]
            yield Match(rule, LEVELS[rule], words.text, start, stop, key, self.place)


def names_on(page: Page, rules: Set[str] | None, *, is_tool_named: bool) -> set[str]:
    """Return what names in braces may stand for in a text."""
    has_account = rules is not None and page.has_account
    return names_in(
        page.seen, rules, is_tool_named=is_tool_named, is_addressed=page.has_address, has_account=has_account
    )
