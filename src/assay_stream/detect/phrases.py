"""Phrases: word patterns that are found in linear time, in any script.

``data/README.md`` documents the notation of phrases.

Each slot's places are listed once for a text, and a phrase walks through its slots' lists from left to right: the
cost is the number of words times the number of phrases that use them, whatever the text. ``phrase_filter`` determines
beforehand which phrases can occur in a text at all.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cache
from itertools import chain
from typing import NamedTuple

from assay_stream.detect.tool_names import Span
from assay_stream.text.words import Words, as_read, other_forms
from assay_stream.work import Work

_STEM_CHARS_MAX = 16
# Most words of descriptions are the same few thousand ones.
_CACHED_WORDS_MAX = 16_384
_CACHED_CHARS_MAX = 24
_HEAD_CHARS = 2
_UNITS_PER_WORD = 4
_UNITS_PER_SLOT = 15
_UNITS_PER_SPAN = 4

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
    """An occurrence of a phrase: the key of the phrase, and its words."""

    key: str
    span: Span


class PhraseBook:
    """Phrases that are searched together.

    Args:
        phrases: pairs of a key and a phrase; many phrases may share a key.
    """

    def __init__(self, phrases: Iterable[tuple[str, str]]) -> None:
        self._slots: dict[object, Slot] = {}
        self.phrases = [(key, tuple(self._parsed(phrase))) for key, phrase in phrases]
        atoms = {
            atom
            for _, slots in self.phrases
            for slot in slots
            for alternative in slot.alternatives
            for atom in alternative
        }
        self.words = frozenset(atom for atom in atoms if not atom.endswith("*"))
        self.stems = frozenset(atom[:-1] for atom in atoms if atom.endswith("*"))
        """Prefixes of words written with a ``*`` in a phrase."""
        self._short = frozenset(stem for stem in self.stems if len(stem) == 1)
        self._known: dict[str, Set[str]] = {}
        self._long: dict[str, tuple[str, ...]] = {}
        for stem in sorted(self.stems - self._short):
            if len(stem) <= _STEM_CHARS_MAX:
                head = stem[:_HEAD_CHARS]
                self._long[head] = (*self._long.get(head, ()), stem)

    def search(self, words: Words, given: Given, work: Work, numbers: Iterable[int] | None = None) -> Iterator[Found]:
        """Yield every phrase that occurs in a text, by phrase and then by place."""
        work.spend(_UNITS_PER_WORD * len(words.forms))
        places = self._atom_places(words)
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
                for span in _walk(phrase, [lists[index] for index in range(len(phrase))], words.places):
                    yield Found(key, span)

    def atoms(self, form: str) -> Set[str]:
        """Return the forms of a plain word in phrases: the word, and each prefix of it with a ``*``."""
        atoms = self._known.get(form)
        if atoms is None:
            atoms = self._atoms(form)
            if len(form) <= _CACHED_CHARS_MAX:
                if len(self._known) >= _CACHED_WORDS_MAX:
                    self._known.clear()
                self._known[form] = atoms
        return atoms

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


def _walk(phrase: Sequence[Slot], lists: Sequence[Sequence[Span]], places: Sequence[int]) -> list[Span]:
    """Return where the slots' spans follow each other closely enough. The nearest preceding one counts."""
    reached: list[Span] = list(lists[0])
    for slot, spans in zip(phrase[1:], lists[1:], strict=True):
        reached.sort(key=lambda span: span[1])
        ends = [end for _, end in reached]
        following = []
        for first, end in spans:
            before = bisect_right(ends, first) - 1
            if before >= 0 and places[first] - places[ends[before] - 1] - 1 <= slot.gap:
                following.append((reached[before][0], end))
        reached = following
        if not reached:
            break
    return reached
