"""Which phrases can stand in a text at all, told from the set of its words.

1. A phrase can occur only where each of its slots has a word. Slots are bits; a text has a slot's bit if it contains
   one word of one of the slot's alternatives.
2. Each phrase is looked up by one slot, the one with the fewest common words, so that most texts look up none.
3. A text is read as it stands, as ROT13 and backwards at once: a word's reading is that of the whole text where
   all of it is ASCII.

A phrase left out here occurs nowhere in the text: ``PhraseBook.search`` over all phrases finds the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import cache
from typing import Final, NamedTuple

from assay_stream.detect.catalog import CATALOG
from assay_stream.detect.decoders import rot13
from assay_stream.detect.phrases import PhraseBook, Slot
from assay_stream.work import Work

AS_IT_STANDS, ROT13, BACKWARDS = range(3)

_UNITS_PER_WORD = 8
_UNITS_PER_UNCOMMON_WORD = 60
_UNITS_PER_PHRASE = 2
_UNITS_PER_CHECK = 50
# Most words of descriptions are the same few thousand ones.
_CACHED_WORDS_MAX = 16_384
_CACHED_CHARS_MAX = 24
_GIVEN_BITS = 8
_HEAD_CHARS = 2
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
    """What one word contributes to phrases.

    Args:
        ways: the word as it stands, as ROT13 and backwards.
        asked: the ways in which some phrase is looked up by it, as bits.
    """

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
                    need |= self._given_bit(slot.places[0])
            for slot in written:
                bit = bits.setdefault(slot.alternatives, 1 << len(bits) + _GIVEN_BITS)
                need |= bit
                for atom in _atoms_of(slot):
                    self._slot_bits[atom] = self._slot_bits.get(atom, 0) | bit
            self._needs.append(need)
            self._is_given.append(len(written) < len(slots))
            self._unsure.append([_unsure(slot) for slot in written if max(map(len, slot.alternatives)) > 1])
            if len(written) == len(slots):
                self.reach = max(self.reach, sum(map(_reach, slots)))
            if written:
                for atom in _atoms_of(min(written, key=_slot_commonness)):
                    self._lookups[atom] = (*self._lookups.get(atom, ()), number)
            else:
                self.given_only.append(number)
        self._all_slots = (1 << len(bits) + _GIVEN_BITS) - 1
        words = {word for word in book.words if word.isascii()}
        stems = {stem for stem in book.stems if stem.isascii()}
        self._words = words | {rot13(word) for word in words} | {word[::-1] for word in words}
        self._known: dict[str, Readings | None] = {}
        self._heads = _grouped((stem[:_HEAD_CHARS], stem) for stem in stems)
        self._rot13_heads = _grouped((rot13(stem)[:_HEAD_CHARS], rot13(stem)) for stem in stems)
        self._tails = _grouped((stem[::-1][-_HEAD_CHARS:], stem[::-1]) for stem in stems)

    def _given_bit(self, name: str) -> int:
        return self._given.setdefault(name, 1 << len(self._given))

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
        if len(word) > _CACHED_CHARS_MAX:
            return self._read_in_some_ways(word)
        if word not in self._known:
            if len(self._known) >= _CACHED_WORDS_MAX:
                self._known.clear()
            self._known[word] = self._read_in_some_ways(word)
        return self._known[word]

    def _read_in_some_ways(self, word: str) -> Readings | None:
        if not word.isascii():
            return _all_ways(self._read(word), _NOTHING, _NOTHING)
        if word in self._words:
            return self._read_all_ways(word)
        if not (word.isalpha() or word.isdigit()):
            return self._read_all_ways(word)
        head, tail = word[:_HEAD_CHARS], word[-_HEAD_CHARS:]
        return _all_ways(
            self._read(word) if word.startswith(self._heads.get(head, ())) else _NOTHING,
            self._read(rot13(word)) if word.startswith(self._rot13_heads.get(head, ())) else _NOTHING,
            self._read(word[::-1]) if word.endswith(self._tails.get(tail, ())) else _NOTHING,
        )

    def _read_all_ways(self, word: str) -> Readings | None:
        return _all_ways(self._read(word), self._read(rot13(word)), self._read(word[::-1]))

    def _read(self, word: str) -> Reading:
        phrases: set[int] = set()
        slots = 0
        atoms = self.book.atoms(word)
        for atom in atoms:
            phrases.update(self._lookups.get(atom, ()))
            slots |= self._slot_bits.get(atom, 0)
        return Reading(tuple(phrases), slots, atoms) if atoms else _NOTHING


class Vocabulary(NamedTuple):
    """The distinct words of a text.

    Args:
        uncommon: those that take longer to read: not ASCII, or not letters alone.
    """

    words: frozenset[str]
    uncommon: frozenset[str]


def vocabulary_of(forms: Collection[str]) -> Vocabulary:
    """Return the distinct words of a text, given in their plain form."""
    words = frozenset(forms)
    joined = "".join(words)
    if joined.isascii() and joined.isalpha():
        return Vocabulary(words, frozenset())
    return Vocabulary(words, frozenset(word for word in words if not (word.isascii() and word.isalpha())))


class WordReadings:
    """Readings of the words of one definition, each paid for once."""

    def __init__(self, of: PhraseFilter, work: Work) -> None:
        self._known: set[str] = set()
        self._of = of
        self._work = work

    def spend(self, count: int, vocabulary: Vocabulary) -> None:
        """Spend the cost of reading the words of a text.

        Args:
            count: number of words, repetitions included.
            vocabulary: the distinct ones.
        """
        self._work.spend(count)
        new = vocabulary.words - self._known
        if new:
            uncommon = len(new & vocabulary.uncommon) if vocabulary.uncommon else 0
            self._work.spend(_UNITS_PER_WORD * (len(new) - uncommon) + _UNITS_PER_UNCOMMON_WORD * uncommon)
            self._known |= new

    def of(self, vocabulary: Vocabulary) -> dict[str, Readings]:
        """Return the readings of the words that have any, which must have been paid for."""
        read = self._of.read
        return {word: readings for word in vocabulary.words if (readings := read(word)) is not None}

    def windows(self, forms: Sequence[str], read: Mapping[str, Readings]) -> Iterator[list[Readings]]:
        """Yield the readings of each part of a text that may hold a whole phrase.

        Args:
            forms: the words of the text.
            read: the result of ``of``.
        """
        reach = self._of.reach
        for start in range(0, len(forms), reach):
            part = forms[start : start + 2 * reach]
            self._work.spend(len(part))
            yield [readings for word in set(part) if (readings := read.get(word)) is not None]


def _all_ways(*ways: *tuple[Reading, Reading, Reading]) -> Readings | None:
    if all(reading is _NOTHING for reading in ways):
        return None
    return Readings(ways, sum(bool(reading.phrases) << way for way, reading in enumerate(ways)))


def _unsure(slot: Slot) -> _Unsure:
    words = frozenset(alternative[0] for alternative in slot.alternatives if len(alternative) == 1)
    return _Unsure(words, tuple(alternative for alternative in slot.alternatives if len(alternative) > 1))


def _reach(slot: Slot) -> int:
    return slot.gap + max(map(len, slot.alternatives))


def _atoms_of(slot: Slot) -> Set[str]:
    return _least_common(slot.alternatives)


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
    atoms = _atoms_of(slot)
    return sum(map(_commonness, atoms)), len(atoms)


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    grouped: dict[str, tuple[str, ...]] = {}
    for key, value in sorted(pairs):
        grouped[key] = (*grouped.get(key, ()), value)
    return grouped
