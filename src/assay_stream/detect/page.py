"""One text of a definition, read once: what every rule shares."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from typing import Final, NamedTuple

from assay_stream.detect.catalog import RULES
from assay_stream.detect.decoders import gates_of
from assay_stream.detect.needles import CHARS_PER_UNIT, Joined, Needles, gated, lowered
from assay_stream.detect.phrase_filter import Readings, WordReadings
from assay_stream.detect.places import has_address
from assay_stream.detect.steering import Steering, steering_in
from assay_stream.detect.symbols import OfferedNames
from assay_stream.detect.tool_names import OtherTools
from assay_stream.text.normalization import units_to_normalize
from assay_stream.text.words import Words, forms_of, plain_forms, visible
from assay_stream.work import Work

RULE_NEEDLES: Final = Needles({rule.id: rule.needles for rule in RULES})
"""The needles of all patterns."""
_NULL = "\x00"
_UNITS_PER_PAGE = 40
_UNITS_PER_PAGE_CHAR = 1
_CHARS_PER_UNIT = 3
_UNITS_PER_WORD_OF_TEXT = 6

# Texts without any of these stand as their reader sees them.
_DRESSED = re.compile("[^\\n\\r\\t -~\\x00]")
# Signs that have no letters in them and no other form: words around them are read as in ASCII text.
_NOT_PLAIN = re.compile("[^\\n\\r\\t -~–—‘’“”•→←]")
_UNSEEN = re.compile(
    "[\\x01-\\x08\\x0e-\\x1f\\x9b\u00ad\u034f\u115f\u1160\u180e\u200b-\u200d\u202a-\u202e\u2060-\u2064\u2066-\u2069"
    "\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e01ef]"
)
_WIDE = re.compile("[ \t\u00a0\u2000-\u200a\u3000]{80}")
_RESPELT = re.compile(r"[&%\\+]")
_BLANKS = " " * 80
_EMPTY_LINES = re.compile("\n[ \t]{0,40}\r?\n[ \t]{0,40}\r?\n")


class PageHints(NamedTuple):
    """What can stand in a text at all.

    Args:
        rules: ids of the rules whose pattern may match it as it is seen.
        is_unseen: whether it has characters that a reader does not see.
        is_wide: whether it has a long run of white space.
        views: ways in which it may be decoded.
    """

    rules: Set[str] = frozenset()
    is_unseen: bool = False
    is_wide: bool = False
    views: Set[str] = frozenset()


NO_HINTS: Final = PageHints()
"""Of a text in which nothing but words can be found."""


class Page:
    """One wording of a text, wherever it stands, and its readings.

    Args:
        raw: the text exactly as it stands.
        seen: the text as its reader sees it.
    """

    __slots__ = (
        "_has_address",
        "_has_beginning",
        "_is_respelt",
        "_steering",
        "_words",
        "asked",
        "forms",
        "hints",
        "is_plain",
        "lowered",
        "raw",
        "readings",
        "seen",
    )

    def __init__(self, raw: str, seen: str) -> None:
        self.raw = raw
        self.seen = seen
        self.hints = NO_HINTS
        self.is_plain = (seen.isascii() and seen.isprintable()) or _NOT_PLAIN.search(seen) is None
        """Whether its words are ASCII, so that they can be read otherwise one by one."""
        self.lowered = lowered(seen)
        """The text as needles are looked for in it."""
        self.forms = plain_forms(self.lowered) if self.is_plain else forms_of(seen)
        """Its words in their plain form."""
        self.readings: Sequence[Readings] | None = None
        """What its words give to phrases, once they were read."""
        self.asked = 0
        """The ways of reading it in which some phrase is looked up by one of its words, as bits."""
        self._has_address: bool | None = None
        self._is_respelt: bool | None = None
        self._words: Words | None = None
        self._has_beginning: bool | None = None
        self._steering: tuple[Steering, ...] | None = None

    @property
    def has_address(self) -> bool:
        """Whether it may hold an address, in whatever way it is read."""
        if self._has_address is None:
            self._has_address = has_address(self.seen)
        return self._has_address

    @property
    def is_respelt(self) -> bool:
        """Whether it has a sign that some spellings of a text begin with."""
        if self._is_respelt is None:
            self._is_respelt = _RESPELT.search(self.raw) is not None
        return self._is_respelt

    def read(self, readings: WordReadings) -> Sequence[Readings]:
        """Return what its words give to phrases. The work is spent each time."""
        if self.readings is None:
            self.readings = readings.of(self.forms)
            for each in self.readings:
                self.asked |= each.asked
        else:
            readings.work.spend(len(self.forms))
        return self.readings

    def names_tool(self, others: OtherTools, work: Work) -> bool:
        """Tell whether it has the words of some tool's name. The work is spent each time."""
        if self._has_beginning is None:
            self._has_beginning = others.have_beginning(self.forms)
        return self._has_beginning and others.may_be_named(self.forms, work)

    def words(self, work: Work) -> Words:
        """Return its words with their places. The work is spent once."""
        if self._words is None:
            work.spend(_UNITS_PER_WORD_OF_TEXT * len(self.forms) + len(self.seen) // _CHARS_PER_UNIT)
            self._words = Words(self.seen)
        return self._words

    def steering(self, offered: OfferedNames, work: Work) -> tuple[Steering, ...]:
        """Return what it does to a model. The work is spent once, since a page belongs to one definition."""
        if self._steering is None:
            self._steering = tuple(steering_in(self.seen, offered, work))
        return self._steering


def pages_of(texts: Iterable[str], work: Work) -> dict[str, Page]:
    """Return a page with hints for each text. One that stands in many places is read once."""
    raws = list(dict.fromkeys(texts))
    if not raws:
        return {}
    work.spend(_UNITS_PER_PAGE * len(raws) + _UNITS_PER_PAGE_CHAR * sum(map(len, raws)))
    joined = Joined(raws)
    dressed = gated(_DRESSED, joined, work) | _with_null(joined, raws)
    pages = [Page(raw, shown(raw, work) if index in dressed else raw) for index, raw in enumerate(raws)]
    _give_hints(pages, joined, work, is_dressed=bool(dressed))
    return dict(zip(raws, pages, strict=True))


def decoded_page(text: str, work: Work) -> Page:
    """Return a page with hints for what a text says once it is decoded."""
    page = Page(text, shown(text, work))
    _give_hints([page], Joined([text]), work, is_dressed=True)
    return page


def shown(raw: str, work: Work) -> str:
    """Return a text as its reader sees it."""
    work.spend(units_to_normalize(raw))
    seen = visible(raw)
    # Compatibility forms can be eighteen times as long as what they stand for, and their words are normalised too.
    work.spend(units_to_normalize(seen) if seen != raw else 0)
    return seen


def _give_hints(pages: Sequence[Page], raws: Joined, work: Work, *, is_dressed: bool) -> None:
    """Find out what can stand in pages, in a few passes over all of them together."""
    rules = RULE_NEEDLES.rules_of(Joined([page.lowered for page in pages]), work)
    unseen: set[int] = set()
    if is_dressed:
        unseen = gated(_UNSEEN, raws, work) | _with_null(raws, [page.raw for page in pages])
    wide = _wide(raws, work) | gated(_EMPTY_LINES, raws, work)
    views: dict[int, set[str]] = {}
    for view, indexes in gates_of(raws, work).items():
        for index in indexes:
            views.setdefault(index, set()).add(view)
    for index in rules.keys() | unseen | wide | views.keys():
        pages[index].hints = PageHints(
            rules=rules.get(index, frozenset()),
            is_unseen=index in unseen,
            is_wide=index in wide,
            views=views.get(index, frozenset()),
        )


def _with_null(joined: Joined, raws: Sequence[str]) -> set[int]:
    if joined.text.count(_NULL) < len(raws):
        return set()
    return {index for index, raw in enumerate(raws) if _NULL in raw}


def _wide(raws: Joined, work: Work) -> set[int]:
    """Return the indexes of the texts with a long run of white space."""
    text = raws.text
    if text.isascii() and "\t" not in text and _BLANKS not in text:
        work.spend(len(text) // CHARS_PER_UNIT)
        return set()
    return gated(_WIDE, raws, work)
