"""Phrases: word patterns that are found in linear time, in any script.

A phrase is written as slots with blanks between them. A slot is alternatives with ``|`` between them; an
alternative is one word or several joined by ``_``, and a trailing ``*`` takes every word that begins so. ``~3``
between two slots allows up to three other words there. ``{tool}`` and the like are places that the caller has
found; they may stand among the alternatives. So ``ignore|forget ~2 previous|prior instruction*`` is found in
"ignore all the previous instructions".

Each slot's places are listed once for a text, and a phrase walks through its slots' lists from left to right: the
cost is the number of words times the number of phrases that use them, whatever the text.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from assay_stream.core.words import Words, other_forms, visible

_STEM_CHARS_MIN = 2
_STEM_CHARS_MAX = 16

Span = tuple[int, int]
"""The first word and the one after the last."""


class _Slot(NamedTuple):
    gap: int
    alternatives: tuple[tuple[str, ...], ...]
    places: tuple[str, ...]


class Found(NamedTuple):
    """One phrase where it was found: the key it was given under, and its words."""

    key: str
    span: Span


class PhraseBook:
    """Phrases that are looked for together.

    Args:
        phrases: pairs of a key and a phrase; many phrases may share a key.
    """

    def __init__(self, phrases: Iterable[tuple[str, str]]) -> None:
        self._phrases = [(key, _parsed(phrase)) for key, phrase in phrases]
        atoms = {
            atom
            for _, slots in self._phrases
            for slot in slots
            for alternative in slot.alternatives
            for atom in alternative
        }
        self._words = frozenset(atom for atom in atoms if not atom.endswith("*"))
        self._stems = frozenset(atom[:-1] for atom in atoms if atom.endswith("*"))

        self._by_atom: dict[str, list[int]] = {}
        for number, (_, slots) in enumerate(self._phrases):
            for atom in {each[0] for each in slots[0].alternatives} | set(slots[0].places):
                self._by_atom.setdefault(atom, []).append(number)

    def search(self, words: Words, given: Mapping[str, Sequence[Span]]) -> list[Found]:
        """Return every phrase that stands in a text, by phrase and then by place.

        Args:
            words: the text.
            given: places of what ``{name}`` stands for in phrases, sorted.
        """
        places = self._atom_places(words)
        slots: dict[object, list[Span]] = {}
        found = []
        begun = {number for atom in (*places, *given) for number in self._by_atom.get(atom, ())}
        for key, phrase in map(self._phrases.__getitem__, sorted(begun)):
            lists = []
            for slot in phrase:
                spans = _slot_spans(slot, places, given, slots)
                if not spans:
                    break
                lists.append(spans)
            else:
                found += [Found(key, span) for span in _walk(phrase, lists, words.places)]
        return found

    def _atom_places(self, words: Words) -> dict[str, list[int]]:
        places: dict[str, list[int]] = {}
        known: dict[str, list[list[int]]] = {}
        for index, form in enumerate(words.forms):
            lists = known.get(form)
            if lists is None:
                lists = known[form] = [places.setdefault(atom, []) for atom in self._atoms(form)]
            for each in lists:
                each.append(index)
        return places

    def _atoms(self, form: str) -> set[str]:
        atoms = set()
        for each in (form, *other_forms(form)):
            if each in self._words:
                atoms.add(each)
            for end in range(_STEM_CHARS_MIN, min(len(each), _STEM_CHARS_MAX) + 1):
                if each[:end] in self._stems:
                    atoms.add(each[:end] + "*")
            if len(each) == 1 and each in self._stems:
                atoms.add(each + "*")
        return atoms


def _parsed(phrase: str) -> tuple[_Slot, ...]:
    slots = []
    gap = 0
    for part in phrase.split():
        if part.startswith("~"):
            gap = int(part[1:])
            continue
        given = tuple(each[1:-1] for each in part.split("|") if each.startswith("{"))
        written = tuple(_alternative(each) for each in part.split("|") if not each.startswith("{"))
        slots.append(_Slot(gap, written, given))
        gap = 0
    return tuple(slots)


def _alternative(text: str) -> tuple[str, ...]:
    stem = text.endswith("*")
    atoms = Words(visible(text.removesuffix("*").replace("_", " "))).forms
    return (*atoms[:-1], atoms[-1] + "*") if stem else tuple(atoms)


def _slot_spans(
    slot: _Slot,
    places: Mapping[str, list[int]],
    given: Mapping[str, Sequence[Span]],
    known: dict[object, list[Span]],
) -> Sequence[Span]:
    if len(slot.places) == 1 and not slot.alternatives:
        return given.get(slot.places[0], ())
    key = (slot.alternatives, slot.places)
    spans = known.get(key)
    if spans is None:
        found = {span for name in slot.places for span in given.get(name, ())}
        for alternative in slot.alternatives:
            found.update(_alternative_spans(alternative, places))
        spans = known[key] = sorted(found)
    return spans


def _alternative_spans(alternative: tuple[str, ...], places: Mapping[str, list[int]]) -> Iterable[Span]:
    starts: Iterable[int] = places.get(alternative[0], ())
    for distance, atom in enumerate(alternative[1:], start=1):
        here = places.get(atom)
        if not here:
            return ()
        there = set(here)
        starts = [start for start in starts if start + distance in there]
    return [(start, start + len(alternative)) for start in starts]


def _walk(phrase: Sequence[_Slot], lists: Sequence[Sequence[Span]], places: Sequence[int]) -> list[Span]:
    """Return where the slots' spans follow each other closely enough. The nearest one before counts."""
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
