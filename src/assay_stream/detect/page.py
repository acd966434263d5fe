"""One text of a definition, read once: what every rule shares."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple

from assay_stream.detect.decoders import backwards, rot13
from assay_stream.detect.needles import lowered
from assay_stream.detect.phrase_filter import Readings, Vocabulary, WordReadings, vocabulary_of
from assay_stream.detect.places import has_address, may_have_account
from assay_stream.detect.steering import Steering, steering_in
from assay_stream.detect.symbols import Name, OfferedNames, names_of
from assay_stream.detect.tool_names import OtherTools
from assay_stream.text.words import Words, forms_of, plain_forms
from assay_stream.work import UNLIMITED, Work

SHORT_CHARS_MAX: Final = 64
"""A text that is no longer may be the same in many definitions: a type, a name, a few words about a parameter."""
_CHARS_PER_UNIT = 3
_UNITS_PER_WORD_OF_TEXT = 6

# Signs that have no letters in them and no other form: words around them are read as in ASCII text.
_NOT_PLAIN = re.compile("[^\\n\\r\\t -~–—‘’“”•→←]")
_RESPELT = re.compile(r"[&%\\+]")


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
    """One wording of a text, whatever definition it stands in.

    All of it follows from the text alone, so it is kept beyond the search that first met it, with what that cost.

    Args:
        raw: the text exactly as it stands.
        seen: the text as its reader sees it.
        is_dressed: whether it may have to be undressed to be seen.
        units: what that takes.
    """

    __slots__ = (
        "_has_account",
        "_has_address",
        "_is_respelt",
        "_names",
        "_respelt_words",
        "_vocabulary",
        "_words",
        "asked",
        "forms",
        "hints",
        "hits",
        "is_dressed",
        "is_plain",
        "lowered_chars",
        "meetings",
        "outcomes",
        "raw",
        "readings",
        "seen",
        "silent_units",
        "units",
    )

    def __init__(self, raw: str, seen: str, *, is_dressed: bool, units: int) -> None:
        self.raw = raw
        self.seen = seen
        self.is_dressed = is_dressed
        self.units = units
        self.hints = NO_HINTS
        self.hits = 0
        """How often it has a needle of a rule."""
        self.is_plain = (seen.isascii() and seen.isprintable()) or _NOT_PLAIN.search(seen) is None
        """Whether its words are ASCII, so that they can be read otherwise one by one."""
        small = lowered(seen)
        self.lowered_chars = len(small)
        """Its length as needles are looked for in it."""
        self.forms = plain_forms(small) if self.is_plain else forms_of(seen)
        """Its words in their plain form."""
        self.readings: Mapping[str, Readings] | None = None
        """What its words give to phrases, once they were read."""
        self.asked = 0
        """The ways of reading it in which some phrase is looked up by one of its words, as bits."""
        self.meetings = 0
        """How often it was searched. What is met once is seldom met again, and not worth the keeping."""
        self.silent_units: int | None = None
        """What it took to find that it gives nothing, after its words were read, where it did and named no tool."""
        self.outcomes: dict[Hashable, Any] = {}
        """What searches of it gave; kept by the search."""
        self._vocabulary: Vocabulary | None = None
        self._has_account: bool | None = None
        self._has_address: bool | None = None
        self._is_respelt: bool | None = None
        self._respelt_words: frozenset[str] | None = None
        self._words: Words | None = None
        self._names: Sequence[Name] | None = None

    @property
    def is_short(self) -> bool:
        """Whether many definitions may have the same text."""
        return len(self.raw) <= SHORT_CHARS_MAX

    @property
    def lowered(self) -> str:
        """The text as needles are looked for in it."""
        return lowered(self.seen)

    @property
    def has_account(self) -> bool:
        """Whether it may hold the number of an account."""
        if self._has_account is None:
            self._has_account = may_have_account(
                self.seen, is_long=self.seen is not self.raw or "run" in self.hints.views
            )
        return self._has_account

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

    @property
    def names(self) -> Sequence[Name]:
        """The names that are one thing or another, depending on what is offered."""
        if self._names is None:
            self._names = names_of(self.seen)
        return self._names

    @property
    def words(self) -> Words:
        """Its words with their places."""
        if self._words is None:
            self._words = Words(self.seen)
        return self._words

    @property
    def vocabulary(self) -> Vocabulary:
        """Its words, each once."""
        if self._vocabulary is None:
            self._vocabulary = vocabulary_of(self.forms)
        return self._vocabulary

    @property
    def respelt_words(self) -> Set[str]:
        """Its words backwards and as ROT13."""
        if self._respelt_words is None:
            words = " ".join(self.vocabulary.words)
            self._respelt_words = frozenset((*backwards(words).split(), *rot13(words).split()))
        return self._respelt_words

    def read(self, readings: WordReadings) -> None:
        """Find out what its words give to phrases. The work is spent each time."""
        readings.spend(len(self.forms), self.vocabulary)
        if self.readings is None:
            self.readings = readings.of(self.vocabulary)
            for each in self.readings.values():
                self.asked |= each.asked


class Visit:
    """A page where it is read for one definition.

    Args:
        page: the text.
    """

    __slots__ = ("_naming", "_steering", "is_silent", "is_steered", "is_worded", "page")

    def __init__(self, page: Page) -> None:
        self.page = page
        self.is_silent: bool | None = None
        """Whether it gives nothing; ``None`` until that is known."""
        self.is_steered = False
        """Whether what it does to a model was paid for."""
        self.is_worded = False
        """Whether its words with their places were paid for."""
        self._naming: tuple[bool, int] | None = None
        self._steering: tuple[Steering, ...] | None = None

    def names_tool(self, others: OtherTools, work: Work) -> bool:
        """Tell whether it has the words of some tool's name. The work is spent each time."""
        if self._naming is None:
            before = work.spent
            is_named = others.have_beginning(self.page.vocabulary.words) and others.is_named(self.page.forms, work)
            self._naming = is_named, work.spent - before
        else:
            work.spend(self._naming[1])
        return self._naming[0]

    def words(self, work: Work) -> Words:
        """Return its words with their places. The work is spent once."""
        if not self.is_worded:
            work.spend(_UNITS_PER_WORD_OF_TEXT * len(self.page.forms) + len(self.page.seen) // _CHARS_PER_UNIT)
            self.is_worded = True
        return self.page.words

    def steering(self, offered: OfferedNames, work: Work) -> tuple[Steering, ...]:
        """Return what it does to a model. The work is spent once."""
        if self._steering is None:
            self._steering = tuple(steering_in(self.page.seen, offered, Work(UNLIMITED) if self.is_steered else work))
            self.is_steered = True
        return self._steering
