"""Phrases: word patterns that are found in linear time, in any script, and which of them can stand in a text at all.

``data/README.md`` documents the notation of phrases.

Each slot's places are listed once for a text, and a phrase walks through its slots' lists from left to right: the
cost is the number of words times the number of phrases that use them, whatever the text. ``PhraseFilter`` determines
beforehand which phrases can occur in a text at all.

1. A phrase can occur only where each of its slots has a word. Slots are bits; a text has a slot's bit if it contains
   one word of one of the slot's alternatives.
2. Each phrase is looked up by one slot, the one with the fewest common words, so that most texts look up none.
3. A text is read as it stands, as ROT13 and backwards at once: a word's reading is that of the whole text where
   all of it is ASCII.

A phrase left out here occurs nowhere in the text: ``PhraseBook.search`` over all phrases finds the same.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import cache, lru_cache
from itertools import chain
from typing import Final, NamedTuple

from assay_stream.detect.catalog import CATALOG
from assay_stream.detect.decoders import backwards, rot13
from assay_stream.detect.tool_names import Span
from assay_stream.text.words import Words, as_read, other_forms, plain_form
from assay_stream.work import Work

_STEM_CHARS_MAX = 16
# Most words of descriptions are the same few thousand ones.
_CACHED_WORDS_MAX = 16_384
_CACHED_CHARS_MAX = 24
_HEAD_CHARS = 2
_UNITS_PER_WORD = 4
_UNITS_PER_SLOT = 15
_UNITS_PER_SPAN = 4

_MAY_BE_NEGATED: Final = frozenset(rule.id for rule in CATALOG.rules if rule.may_be_negated)
_NEGATORS: Final = frozenset(map(plain_form, CATALOG.words.negators.split()))
_NEGATION_ENDS: Final = frozenset(CATALOG.words.negation_ends.split())
_BEFORE_T = ("n", "ca")
_NEGATION_WORDS_MAX = 8
_DOUBLE_NEGATION_WORDS_MAX = 2
_LISTED_WORDS_MAX = 3
_OR = frozenset(["or", "nor"])
_CLAUSE_END = re.compile(r"[;:()\u2013\u2014]|\s-\s|\n(?!\s*[a-z])")

Given = Callable[[str], Sequence[Span]]
"""Returns the places of what ``{name}`` stands for in phrases, sorted."""


class Slot(NamedTuple):
    """One slot of a phrase.

    Args:
        gap: maximum number of words before it.
        alternatives: word sequences that match it.
        places: names in braces that match it as well.
        number: shared by all slots of one book with the same alternatives and places.
        by_first: the alternatives by their first word.
    """

    gap: int
    alternatives: tuple[tuple[str, ...], ...]
    places: tuple[str, ...]
    number: int
    by_first: Mapping[str, Sequence[tuple[str, ...]]]


class Found(NamedTuple):
    """An occurrence of a phrase: the key of the phrase, its words, and its number in the book."""

    key: str
    span: Span
    number: int


class PhraseBook:
    """Phrases that are searched together, each under a key that many may share."""

    def __init__(self, phrases: Iterable[tuple[str, str]]) -> None:
        self._slots: dict[object, Slot] = {}
        self.phrases = [(key, tuple(self._parsed(phrase))) for key, phrase in phrases]
        atoms = set(chain.from_iterable(words for slot in self._slots.values() for words in slot.alternatives))
        self.words = frozenset(atom for atom in atoms if not atom.endswith("*"))
        self.stems = frozenset(atom[:-1] for atom in atoms if atom.endswith("*"))
        """Prefixes of words written with a ``*`` in a phrase."""
        self._short = frozenset(stem for stem in self.stems if len(stem) == 1)
        self._known = lru_cache(_CACHED_WORDS_MAX)(self._atoms)
        self._long: dict[str, tuple[str, ...]] = {}
        for stem in sorted(self.stems - self._short):
            if len(stem) <= _STEM_CHARS_MAX:
                head = stem[:_HEAD_CHARS]
                self._long[head] = (*self._long.get(head, ()), stem)

    def search(self, words: Words, given: Given, work: Work, numbers: Iterable[int] | None = None) -> Iterator[Found]:
        """Yield every phrase that occurs in a text and is not negated there, by phrase and then by place."""
        work.spend(_UNITS_PER_WORD * len(words.forms))
        places = self._atom_places(words)
        negators = negators_in(words.forms)
        slots: dict[int, Sequence[Span]] = {}
        for number in range(len(self.phrases)) if numbers is None else numbers:
            key, phrase = self.phrases[number]
            lists: dict[int, Sequence[Span]] = {}
            # What is given takes a search of its own, so it comes last.
            for index in sorted(range(len(phrase)), key=lambda index: bool(phrase[index].places)):
                spans = _slot_spans(phrase[index], places, given, slots, work)
                if not spans:
                    break
                lists[index] = spans
            else:
                work.spend(_UNITS_PER_SPAN * sum(map(len, lists.values())))
                bars = negators if key in _MAY_BE_NEGATED else ()
                for span in _walk(phrase, [lists[index] for index in range(len(phrase))], words.places, bars):
                    if not bars or not is_negated(words, span[0], bars):
                        yield Found(key, span, number)

    def atoms(self, form: str) -> Set[str]:
        """Return the forms of a plain word in phrases: the word, and each prefix of it with a ``*``."""
        return self._known(form) if len(form) <= _CACHED_CHARS_MAX else self._atoms(form)

    def _atoms(self, form: str) -> Set[str]:
        atoms = set()
        for each in (form, *other_forms(form)):
            if each in self.words:
                atoms.add(each)
            for stem in self._long.get(each[:_HEAD_CHARS], ()):
                if each.startswith(stem):
                    atoms.add(stem + "*")
            if each in self._short:
                atoms.add(each + "*")
        return atoms

    def _parsed(self, phrase: str) -> Iterator[Slot]:
        gap = 0
        for part in phrase.split():
            if part.startswith("~"):
                gap = int(part[1:])
                continue
            given = tuple(each[1:-1] for each in part.split("|") if each.startswith("{"))
            written = tuple(_alternative(each) for each in part.split("|") if not each.startswith("{"))
            alike = self._slots.get((written, given))
            if alike is None:
                alike = Slot(gap, written, given, len(self._slots), _by_first(written))
                self._slots[written, given] = alike
            yield alike._replace(gap=gap)
            gap = 0

    def _atom_places(self, words: Words) -> dict[str, list[int]]:
        # Most words are in no phrase.
        asked = {form: atoms for form in set(words.forms) if (atoms := self.atoms(form))}
        indexes: dict[str, list[int]] = {form: [] for form in asked}
        for index, form in enumerate(words.forms):
            if form in asked:
                indexes[form].append(index)
        lists: defaultdict[str, list[list[int]]] = defaultdict(list)
        for form, listed in indexes.items():
            for atom in asked[form]:
                lists[atom].append(listed)
        return {atom: each[0] if len(each) == 1 else sorted(chain.from_iterable(each)) for atom, each in lists.items()}


@cache
def _alternative(text: str) -> tuple[str, ...]:
    stem = text.endswith("*")
    atoms = Words(as_read(text.removesuffix("*").replace("_", " "))).forms
    return (*atoms[:-1], atoms[-1] + "*") if stem else tuple(atoms)


def _by_first(alternatives: Iterable[tuple[str, ...]]) -> dict[str, list[tuple[str, ...]]]:
    found: dict[str, list[tuple[str, ...]]] = {}
    for alternative in alternatives:
        found.setdefault(alternative[0], []).append(alternative)
    return found


def _slot_spans(
    slot: Slot, places: Mapping[str, list[int]], given: Given, known: dict[int, Sequence[Span]], work: Work
) -> Sequence[Span]:
    if len(slot.places) == 1 and not slot.alternatives:
        return given(slot.places[0])
    spans = known.get(slot.number)
    if spans is None:
        firsts = places.keys() & slot.by_first.keys()
        work.spend(
            _UNITS_PER_SLOT + _UNITS_PER_SPAN * sum(len(slot.by_first[atom]) * len(places[atom]) for atom in firsts)
        )
        found = {span for name in slot.places for span in given(name)}
        for atom in firsts:
            for alternative in slot.by_first[atom]:
                found.update(_alternative_spans(alternative, places))
        spans = known[slot.number] = sorted(found)
    return spans


def _alternative_spans(alternative: tuple[str, ...], places: Mapping[str, list[int]]) -> Iterable[Span]:
    starts: Sequence[int] = places[alternative[0]]
    for distance, atom in enumerate(alternative[1:], start=1):
        here = places.get(atom)
        if not here or not starts:
            return ()
        starts = [start for start in starts if _is_among(here, start + distance)]
    return [(start, start + len(alternative)) for start in starts]


def _is_among(places: Sequence[int], place: int) -> bool:
    at = bisect_left(places, place)
    return at < len(places) and places[at] == place


def _walk(
    phrase: Sequence[Slot], lists: Sequence[Sequence[Span]], places: Sequence[int], bars: Sequence[int]
) -> list[Span]:
    """Return where the slots' spans follow each other closely enough, with no bar between them; the nearest counts."""
    reached: list[Span] = list(lists[0])
    for slot, spans in zip(phrase[1:], lists[1:], strict=True):
        reached.sort(key=lambda span: span[1])
        ends = [end for _, end in reached]
        following = []
        for first, end in spans:
            before = bisect_right(ends, first) - 1
            if before < 0 or places[first] - places[ends[before] - 1] - 1 > slot.gap:
                continue
            if not bars or bisect_left(bars, ends[before]) == bisect_left(bars, first):
                following.append((reached[before][0], end))
        reached = following
        if not reached:
            break
    return reached


def negators_in(forms: Sequence[str]) -> list[int]:
    """Return the indexes of the words that turn what follows into its opposite: "never", and the "t" of "don't"."""
    if _NEGATORS.isdisjoint(forms):
        return []
    return [
        index
        for index, form in enumerate(forms)
        if form in _NEGATORS and (form != "t" or forms[index - 1].endswith(_BEFORE_T))
    ]


def is_negated(words: Words, first: int, negators: Sequence[int]) -> bool:
    """Return True if a negator in the same clause turns what begins at a word into its opposite.

    "Never forget to send", "do not fail to send", "do not answer before you sent" and "do not wait, send" negate none.
    In "never log, store or send" the comma ends no clause.
    """
    at = bisect_left(negators, first) - 1
    if at < 0 or words.places[first] - words.places[negators[at]] > _NEGATION_WORDS_MAX:
        return False
    between = words.forms[negators[at] + 1 : first]
    if at and negators[at] - negators[at - 1] <= _DOUBLE_NEGATION_WORDS_MAX:
        return False
    if not _NEGATION_ENDS.isdisjoint(between):
        return False
    text = words.text[words.spans[negators[at]][1] : words.spans[first][0]]
    is_listed = not _OR.isdisjoint(words.forms[negators[at] + 1 : first + _LISTED_WORDS_MAX])
    return _CLAUSE_END.search(text) is None and (is_listed or "," not in text)


AS_IT_STANDS, ROT13, BACKWARDS = range(3)
RESPELLINGS: Final = {ROT13: ("rot13", rot13), BACKWARDS: ("backwards", backwards)}
"""The other ways of reading a text as a whole: their names, and how to bring a text into them."""

_UNITS_PER_WORD_READ = 4
_UNITS_PER_UNCOMMON_WORD = 60
_UNITS_PER_PHRASE = 2
_UNITS_PER_CHECK = 50
_GIVEN_BITS = 8

_WEIGHTS: Final = {word: 1_000 // (rank + 5) for rank, word in enumerate(CATALOG.words.common.split())}
"""How common words of honest descriptions are. It affects how fast a text is skipped, never what is found."""
_COMMON_WORDS: Final = sorted(_WEIGHTS)


class Reading(NamedTuple):
    """What one word, read one way, contributes to phrases.

    Args:
        phrases: the phrases that are looked up by it.
        slots: the slots that have it, as bits.
        atoms: its forms in phrases.
    """

    phrases: tuple[int, ...]
    slots: int
    atoms: Set[str]


class Readings(NamedTuple):
    """What one word contributes to phrases, read in each way, and the ways that lead to a phrase, as bits."""

    ways: tuple[Reading, Reading, Reading]
    asked: int


_NOTHING: Final = Reading((), 0, frozenset())


class _Unsure(NamedTuple):
    """A slot whose bit does not prove that it has a word: its alternatives of one word, and those of several."""

    words: frozenset[str]
    several: tuple[tuple[str, ...], ...]


class PhraseFilter:
    """The words of a book of phrases, and which phrases each can be part of."""

    def __init__(self, book: PhraseBook) -> None:
        self.book = book
        self._needs: list[int] = []
        self._is_given: list[bool] = []
        self._unsure: list[Sequence[_Unsure]] = []
        self.reach = 1
        """Maximum words of a phrase that names nothing in braces."""
        # The bits of what is given come first, those of slots behind them.
        self._given: dict[str, int] = {}
        self._slot_bits: dict[str, int] = {}
        self._lookups: dict[str, tuple[int, ...]] = {}
        self.given_only: list[int] = []
        """Phrases made of given places alone, which no word leads to."""
        bits: dict[tuple[tuple[str, ...], ...], int] = {}
        for number, (_, slots) in enumerate(book.phrases):
            written = [slot for slot in slots if not slot.places]
            need = 0
            for slot in slots:
                if len(slot.places) == 1 and not slot.alternatives:
                    need |= self._given.setdefault(slot.places[0], 1 << len(self._given))
            for slot in written:
                bit = bits.setdefault(slot.alternatives, 1 << len(bits) + _GIVEN_BITS)
                need |= bit
                for atom in _least_common(slot.alternatives):
                    self._slot_bits[atom] = self._slot_bits.get(atom, 0) | bit
            self._needs.append(need)
            self._is_given.append(len(written) < len(slots))
            self._unsure.append([_unsure(slot) for slot in written if max(map(len, slot.alternatives)) > 1])
            if len(written) == len(slots):
                reach = sum(slot.gap + max(map(len, slot.alternatives)) for slot in slots)
                self.reach = max(self.reach, reach)
            if written:
                for atom in _least_common(min(written, key=_slot_commonness).alternatives):
                    self._lookups[atom] = (*self._lookups.get(atom, ()), number)
            else:
                self.given_only.append(number)
        self._all_slots = (1 << len(bits) + _GIVEN_BITS) - 1
        words = {word for word in book.words if word.isascii()}
        stems = {stem for stem in book.stems if stem.isascii()}
        self._words = words | {rot13(word) for word in words} | {word[::-1] for word in words}
        self._known = lru_cache(_CACHED_WORDS_MAX)(self._read_in_some_ways)
        self._heads = _grouped((stem[:_HEAD_CHARS], stem) for stem in stems)
        self._rot13_heads = _grouped((rot13(stem)[:_HEAD_CHARS], rot13(stem)) for stem in stems)
        self._tails = _grouped((stem[::-1][-_HEAD_CHARS:], stem[::-1]) for stem in stems)

    def possible(self, readings: Collection[Readings], way: int, given: Iterable[str], work: Work) -> list[int]:
        """Return the phrases that may occur in a text, ascending."""
        ways = [of_way for reading in readings if (of_way := reading.ways[way]) is not _NOTHING]
        asked = set(self.given_only).union(*[of_way.phrases for of_way in ways])
        slots = 0
        for of_way in ways:
            slots |= of_way.slots
        work.spend(_UNITS_PER_PHRASE * len(asked) + len(readings))
        for name in given:
            slots |= self._given.get(name, 0)
        needs, absent = self._needs, self._all_slots ^ slots
        possible = sorted([number for number in asked if not needs[number] & absent])
        work.spend(_UNITS_PER_CHECK * len(possible))
        return self._checked(possible, readings, way)

    def possible_near(
        self, numbers: Sequence[int], windows: Iterable[Collection[Readings]], way: int, work: Work
    ) -> list[int]:
        """Return the phrases whose words all occur close enough to each other."""
        # What is given has any number of words.
        near = {number for number in numbers if self._is_given[number]}
        for window in windows:
            far = [number for number in numbers if number not in near]
            if not far:
                break
            work.spend(_UNITS_PER_PHRASE * len(far) + len(window))
            slots = 0
            for reading in window:
                slots |= reading.ways[way].slots
            needs = self._needs
            far = [number for number in far if needs[number] & slots == needs[number]]
            if far:
                work.spend(_UNITS_PER_CHECK * len(far))
                near.update(self._checked(far, window, way))
        return sorted(near)

    def _checked(self, numbers: Sequence[int], readings: Iterable[Readings], way: int) -> list[int]:
        """Return the phrases each of whose slots has an alternative with all of its words present."""
        unsure = self._unsure
        if not any(unsure[number] for number in numbers):
            return list(numbers)
        atoms = frozenset().union(*[reading.ways[way].atoms for reading in readings])
        return [
            number
            for number in numbers
            if all(
                not slot.words.isdisjoint(atoms) or any(map(atoms.issuperset, slot.several)) for slot in unsure[number]
            )
        ]

    def read(self, word: str) -> Readings | None:
        """Return what a word contributes to phrases in each of its readings, ``None`` for nothing."""
        return self._known(word) if len(word) <= _CACHED_CHARS_MAX else self._read_in_some_ways(word)

    def readings_of(self, vocabulary: Vocabulary) -> dict[str, Readings]:
        """Return the readings of the words that have any."""
        return {word: readings for word in vocabulary.words if (readings := self.read(word)) is not None}

    def windows(self, forms: Sequence[str], read: Mapping[str, Readings], work: Work) -> Iterator[list[Readings]]:
        """Yield the readings, of ``readings_of``, in each part of a text that may hold a whole phrase."""
        for start in range(0, len(forms), self.reach):
            part = forms[start : start + 2 * self.reach]
            work.spend(len(part))
            yield [readings for word in set(part) if (readings := read.get(word)) is not None]

    def _read_in_some_ways(self, word: str) -> Readings | None:
        if not word.isascii():
            return _all_ways(self._read(word), _NOTHING, _NOTHING)
        if word in self._words or not (word.isalpha() or word.isdigit()):
            return _all_ways(self._read(word), self._read(rot13(word)), self._read(word[::-1]))
        head, tail = word[:_HEAD_CHARS], word[-_HEAD_CHARS:]
        return _all_ways(
            self._read(word) if word.startswith(self._heads.get(head, ())) else _NOTHING,
            self._read(rot13(word)) if word.startswith(self._rot13_heads.get(head, ())) else _NOTHING,
            self._read(word[::-1]) if word.endswith(self._tails.get(tail, ())) else _NOTHING,
        )

    def _read(self, word: str) -> Reading:
        phrases: set[int] = set()
        slots = 0
        atoms = self.book.atoms(word)
        for atom in atoms:
            phrases.update(self._lookups.get(atom, ()))
            slots |= self._slot_bits.get(atom, 0)
        return Reading(tuple(phrases), slots, atoms) if atoms else _NOTHING


class Vocabulary(NamedTuple):
    """The distinct words of a text, and those that take longer to read: not ASCII, or not letters alone."""

    words: frozenset[str]
    uncommon: frozenset[str]


def vocabulary_of(forms: Collection[str]) -> Vocabulary:
    """Return the distinct words of a text, given in their plain form."""
    words = frozenset(forms)
    joined = "".join(words)
    if joined.isascii() and joined.isalpha():
        return Vocabulary(words, frozenset())
    return Vocabulary(words, frozenset(word for word in words if not (word.isascii() and word.isalpha())))


def units_to_read(vocabulary: Vocabulary) -> int:
    uncommon = len(vocabulary.uncommon)
    return _UNITS_PER_WORD_READ * (len(vocabulary.words) - uncommon) + _UNITS_PER_UNCOMMON_WORD * uncommon


def _all_ways(*ways: *tuple[Reading, Reading, Reading]) -> Readings | None:
    if all(reading is _NOTHING for reading in ways):
        return None
    return Readings(ways, sum(bool(reading.phrases) << way for way, reading in enumerate(ways)))


def _unsure(slot: Slot) -> _Unsure:
    words = frozenset(alternative[0] for alternative in slot.alternatives if len(alternative) == 1)
    return _Unsure(words, tuple(alternative for alternative in slot.alternatives if len(alternative) > 1))


@cache
def _least_common(alternatives: tuple[tuple[str, ...], ...]) -> Set[str]:
    """Return one word of each alternative, the least common one."""
    return frozenset(min(words, key=lambda atom: (_commonness(atom), -len(atom))) for words in alternatives)


@cache
def _commonness(atom: str) -> int:
    if not atom.endswith("*"):
        return _WEIGHTS.get(atom, 0)
    stem = atom[:-1]
    begin = end = bisect_left(_COMMON_WORDS, stem)
    while end < len(_COMMON_WORDS) and _COMMON_WORDS[end].startswith(stem):
        end += 1
    return sum(_WEIGHTS[word] for word in _COMMON_WORDS[begin:end])


def _slot_commonness(slot: Slot) -> tuple[int, int]:
    atoms = _least_common(slot.alternatives)
    return sum(map(_commonness, atoms)), len(atoms)


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    grouped: dict[str, tuple[str, ...]] = {}
    for key, value in sorted(pairs):
        grouped[key] = (*grouped.get(key, ()), value)
    return grouped
