"""The texts of a definition, each prepared once for all rules and cached for later definitions."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence, Set
from functools import cached_property
from threading import RLock
from typing import Any, Final, NamedTuple

from assay_stream.detect.catalog import RULES
from assay_stream.detect.decoders import (
    CHARS_PER_UNIT,
    GATES,
    UNITS_PER_HIT,
    Needles,
    backwards,
    gates_of,
    lowered,
    rot13,
)
from assay_stream.detect.match import Match, has_address, may_have_account
from assay_stream.detect.phrases import RESPELLINGS, PhraseFilter, Readings, Vocabulary, units_to_read, vocabulary_of
from assay_stream.detect.steering import steering_in
from assay_stream.detect.symbols import Name, OfferedNames, names_of
from assay_stream.detect.tool_names import OtherTools
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.text.words import Words, as_read, forms_of, plain_forms, units_to_normalize
from assay_stream.work import Work

RULE_NEEDLES: Final = Needles({rule.id: rule.needles for rule in RULES})
_NULL = "\x00"
_UNITS_PER_PAGE = 40
_UNITS_PER_PAGE_CHAR = 1

# Texts without any of these stand as their reader sees them.
_DRESSED = re.compile("[^\\n\\r\\t -~\\x00]")
_UNSEEN = re.compile(
    "[\\x01-\\x08\\x0e-\\x1f\\x9b\u00ad\u034f\u115f\u1160\u180e\u200b-\u200d\u202a-\u202e\u2060-\u2064\u2066-\u2069"
    "\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e01ef]"
)
_WIDE = re.compile("[ \t\u00a0\u2000-\u200a\u3000]{80}")
_EMPTY_LINES = re.compile("\n[ \t]{0,40}\r?\n[ \t]{0,40}\r?\n")
_SHORT_CHARS_MAX = 64
"""Texts up to this length recur in many definitions: a type, a name, a few words about a parameter."""
_CHARS_PER_UNIT = 3
_UNITS_PER_WORD_OF_TEXT = 6
_NAMES_ASKED_MAX = 8

# Signs that have no letters in them and no other form: words around them are read as in ASCII text.
_NOT_PLAIN = re.compile("[^\\n\\r\\t -~–—‘’“”•→←]")
_RESPELT = re.compile(r"[&%\\+]")
# Words that hardly any directive does without: a text that has one of them respelt is read respelt as a whole.
TELLTALES: Final = {
    way: frozenset(map(respell, ("the", "and", "you", "must", "call", "before", "first", "always", "user", "ignore")))
    for way, (_, respell) in RESPELLINGS.items()
}


class PageHints(NamedTuple):
    """What may occur in a text as it is seen, what its reader does not see, and how it may be decoded."""

    rules: Set[str] = frozenset()
    is_unseen: bool = False
    is_wide: bool = False
    views: Set[str] = frozenset()


class Page:
    """One wording of a text, independent of the definition.

    All of it follows from the text alone, so it is cached across searches, with its cost.

    Args:
        raw: the text exactly as it stands.
        seen: the text as its reader sees it.
        is_dressed: whether it may have to be undressed to be seen.
        units: cost of that.
    """

    def __init__(self, raw: str, seen: str, *, is_dressed: bool, units: int) -> None:
        self.raw = raw
        self.seen = seen
        self.is_dressed = is_dressed
        self.units = units
        self.is_plain = (seen.isascii() and seen.isprintable()) or _NOT_PLAIN.search(seen) is None
        """Whether its words are ASCII, so that they can be respelt one by one."""
        small = lowered(seen)
        self.lowered_chars = len(small)
        """Its length in the form searched for needles."""
        self.forms = plain_forms(small) if self.is_plain else forms_of(seen)
        self.readings: Mapping[str, Readings] | None = None
        """What its words contribute to phrases, once they were read."""
        self.asked = 0
        """The ways of reading it, as bits, in which one of its words leads to a phrase."""
        self.outcomes: dict[Hashable, Any] = {}
        """Results of searching it; maintained by the search."""
        self._question: tuple[object, Sequence[Name] | None] = (None, None)

    @property
    def lowered(self) -> str:
        """The text in the form searched for needles."""
        return lowered(self.seen)

    @cached_property
    def needles(self) -> tuple[Set[str], int]:
        """The rules that have a needle in it, and its number of needles."""
        return RULE_NEEDLES.found_in(self.lowered)

    @cached_property
    def hints(self) -> PageHints:
        return PageHints(
            rules=self.needles[0],
            is_unseen=self.is_dressed and (_NULL in self.raw or _UNSEEN.search(self.raw) is not None),
            is_wide=_WIDE.search(self.raw) is not None or _EMPTY_LINES.search(self.raw) is not None,
            views=gates_of(self.raw),
        )

    @cached_property
    def has_account(self) -> bool:
        """Whether it may contain an account number."""
        return may_have_account(self.seen, is_long=self.seen is not self.raw or "run" in self.hints.views)

    @cached_property
    def has_address(self) -> bool:
        """Whether it may contain an address, however it is read."""
        return has_address(self.seen)

    @cached_property
    def is_respelt(self) -> bool:
        """Whether it has a sign that some spellings of a text begin with."""
        return _RESPELT.search(self.raw) is not None

    @cached_property
    def is_read_otherwise(self) -> bool:
        """Whether another text may come out of it once it is decoded."""
        return (
            bool(self.hints.views)
            or self.hints.is_unseen
            or self.is_respelt
            or not all(telltales.isdisjoint(self.vocabulary.words) for telltales in TELLTALES.values())
        )

    @cached_property
    def names(self) -> Sequence[Name]:
        """The names whose kind depends on what is offered."""
        return names_of(self.seen)

    def names_asked(self, others: OtherTools) -> Sequence[Name] | None:
        """Return the names that its matches in any definition depend on; ``None`` where some tool may be named."""
        identity, names = self._question
        if identity is not others.identity:
            is_few = self.is_plain and not self.is_read_otherwise and len(self.names) <= _NAMES_ASKED_MAX
            names = None if not is_few or others.have_beginning(self.words_any_way) else self.names
            self._question = others.identity, names
        return names

    @cached_property
    def words(self) -> Words:
        return Words(self.seen)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return vocabulary_of(self.forms)

    @cached_property
    def words_any_way(self) -> Set[str]:
        """Its words as they stand, backwards and as ROT13."""
        words = self.vocabulary.words
        joined = " ".join(words)
        return words.union(backwards(joined).split(), rot13(joined).split())

    def read(self, phrases: PhraseFilter, work: Work) -> None:
        """Look up what its words contribute to phrases. The work is spent each time."""
        work.spend(len(self.forms) + units_to_read(self.vocabulary))
        if self.readings is None:
            readings = phrases.readings_of(self.vocabulary)
            for each in readings.values():
                self.asked |= each.asked
            # Last: another partition's thread that finds them takes the rest as complete.
            self.readings = readings


class Visit:
    """A page as read for one definition. What it is asked is paid for once."""

    def __init__(self, page: Page, others: OtherTools, offered: OfferedNames, work: Work) -> None:
        self.page = page
        self._others, self._offered, self._work = others, offered, work

    @cached_property
    def names_tool(self) -> bool:
        """Whether it has the words of some tool's name."""
        page = self.page
        return self._others.have_beginning(page.vocabulary.words) and self._others.is_named(page.forms, self._work)

    @cached_property
    def words(self) -> Words:
        """Its words with their places."""
        page = self.page
        self._work.spend(_UNITS_PER_WORD_OF_TEXT * len(page.forms) + len(page.seen) // _CHARS_PER_UNIT)
        return page.words

    @cached_property
    def steering(self) -> tuple[Match, ...]:
        return tuple(steering_in(self.page.seen, self._offered, self._work))


class _Kept:
    """Pages of recently read texts.

    Nothing in them depends on what was read before, so the cache changes no finding and no unit. The threads of all
    partitions share it.

    Args:
        chars_max: number of characters of all their texts.
    """

    def __init__(self, pages_max: int, chars_max: int) -> None:
        self._pages: dict[str, Page] = {}
        self._pages_max = pages_max
        self._chars_max = chars_max
        self._chars_left = chars_max
        self._lock = RLock()
        self.get = self._pages.get

    def put(self, page: Page) -> None:
        """Keep a page, and drop all others where there is no room."""
        chars = len(page.raw) + len(page.seen)
        with self._lock:
            if self._chars_left < chars or len(self._pages) >= self._pages_max:
                self.forget()
            if chars <= self._chars_max:
                self._pages[page.raw] = page
                self._chars_left -= chars

    def forget(self) -> None:
        with self._lock:
            self._pages.clear()
            self._chars_left = self._chars_max


# Lists share their short texts. A longer one is met again where a definition that changed is searched in whole.
_SHORT = _Kept(DEFAULT_LIMITS.short_pages_max, DEFAULT_LIMITS.short_pages_max * _SHORT_CHARS_MAX)
_LONG = _Kept(DEFAULT_LIMITS.long_pages_max, DEFAULT_LIMITS.long_pages_chars_max)


def forget() -> None:
    """Drop all cached pages: what they hold is valid for one set of rules."""
    _SHORT.forget()
    _LONG.forget()


def _cache_of(raw: str) -> _Kept:
    return _SHORT if len(raw) <= _SHORT_CHARS_MAX else _LONG


def pages_of(texts: Iterable[str], work: Work) -> dict[str, Page]:
    """Return a page for each text. One that stands in many places is read once."""
    found = {text: _cache_of(text).get(text) for text in texts}
    if not found:
        return {}
    chars = sum(map(len, found))
    work.spend(_UNITS_PER_PAGE * len(found) + _UNITS_PER_PAGE_CHAR * chars)
    work.spend((chars + len(found) - 1) // CHARS_PER_UNIT)
    work.spend(sum([page.units for page in found.values() if page is not None and page.is_dressed]))
    pages = {raw: _new_page(raw, work) if page is None else page for raw, page in found.items()}
    _spend_on_hints(pages.values(), work, is_dressed=any(page.is_dressed for page in pages.values()))
    return pages


def decoded_page(text: str, work: Work) -> Page:
    kept = _cache_of(text).get(text)
    page = _new_page(text, work) if kept is None else kept
    if kept is not None or not page.is_dressed:
        work.spend(page.units)
    _spend_on_hints([page], work, is_dressed=True)
    return page


def _new_page(raw: str, work: Work) -> Page:
    """Return the page of a text, and keep it. Where the text is dressed, to undress it is paid for."""
    if _DRESSED.search(raw) is None and _NULL not in raw:
        page = Page(raw, raw, is_dressed=False, units=units_to_normalize(raw))
    else:
        before = work.spent
        seen = shown(raw, work)
        page = Page(raw, seen, is_dressed=True, units=work.spent - before)
    _cache_of(raw).put(page)
    return page


def shown(raw: str, work: Work) -> str:
    """Return a text as its reader sees it."""
    work.spend(units_to_normalize(raw))
    seen = as_read(raw)
    # Compatibility forms can be eighteen times as long as what they stand for, and their words are normalised too.
    work.spend(units_to_normalize(seen) if seen != raw else 0)
    return seen


def _spend_on_hints(pages: Collection[Page], work: Work, *, is_dressed: bool) -> None:
    """Spend the work for the hints of pages, in a few passes over all of them.

    Args:
        is_dressed: whether characters are looked for that a reader does not see.
    """
    between = len(pages) - 1
    work.spend((sum([page.lowered_chars for page in pages]) + between) // CHARS_PER_UNIT)
    passes = len(GATES) + 3 if is_dressed else len(GATES) + 2
    work.spend(passes * ((sum([len(page.raw) for page in pages]) + between) // CHARS_PER_UNIT))
    work.spend(UNITS_PER_HIT * sum([page.needles[1] for page in pages]))
