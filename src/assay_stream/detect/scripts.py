"""New text in a script that hardly any phrase is written in, beside text that stayed.

Some words in such a script are an indicator if the older definition had none in it and its text is still there.
Text that replaced text of about its size is a translation and no indicator; nor are single words, as in a
list of languages.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from assay_stream.detect.catalog import CATALOG
from assay_stream.detect.page import shown
from assay_stream.detect.surfaces import Place, Text, TextRole
from assay_stream.work import Work

_READ_WELL = frozenset(CATALOG.words.scripts_read_well.split())
_FOREIGN = re.compile(r"[^\x00-\u024f\s]+")
_LATIN_WORD = re.compile(r"[^\W\d_]{3,64}")
_UNITS_PER_CHAR = 5
_LETTERS_MIN = 10
_WORDS_MIN = 3
_UNSPACED_LETTERS_MIN = 14
_PROSE_WORDS_MIN = 3
_TRANSLATION_CHARS_MAX = 3
"""A translation has at most this many times the characters of what it replaced."""
_SHORT_TEXT_CHARS = 40


class Script(NamedTuple):
    """The first word of a new script: its place and visible text, and its start and end in that."""

    place: Place
    text: str
    start: int
    end: int


@dataclass(slots=True)
class _Use:
    words: int = 0
    letters: int = 0
    longest: int = 0
    first: Script | None = None

    @property
    def is_prose(self) -> bool:
        is_several = self.words >= _WORDS_MIN and self.letters >= _LETTERS_MIN
        return is_several or self.longest >= _UNSPACED_LETTERS_MIN


def new_scripts(
    old_texts: Sequence[Text], texts: Iterable[Text], new_texts: Iterable[Text], work: Work
) -> Iterator[Script]:
    """Yield the start of each script that is new to a definition.

    Args:
        texts: of the newer definition.
        old_texts: of the older one.
        new_texts: those of ``texts`` that the older one does not have.
    """
    foreign = [text for text in new_texts if not text.value.isascii() and text.role is TextRole.TEXT]
    if not foreign:
        return
    stands = {(text.role, text.value) for text in texts}
    kept = any(_is_prose(text) for text in old_texts if (text.role, text.value) in stands)
    old_by_place = {text.place: shown(text.value, work) for text in old_texts if text.role is TextRole.TEXT}
    uses: dict[str, _Use] = {}
    for text in foreign:
        seen, old = shown(text.value, work), old_by_place.get(text.place)
        if _stands_beside(old, seen, work) if old is not None else kept:
            _count(uses, text.place, seen, work)
    if not uses:
        return
    before: dict[str, _Use] = {}
    for place, old in old_by_place.items():
        _count(before, place, old, work)
    for script, use in uses.items():
        was = before.get(script, _Use())
        use.words += was.words
        use.letters += was.letters
        if use.first is not None and use.is_prose and not was.is_prose:
            yield use.first


def _is_prose(text: Text) -> bool:
    """Return True if a text has several words, and so is prose."""
    return text.role is TextRole.TEXT and len(text.value.split(maxsplit=_PROSE_WORDS_MIN)) >= _PROSE_WORDS_MIN


def _count(uses: dict[str, _Use], place: Place, seen: str, work: Work) -> None:
    if seen.isascii():
        return
    work.spend(_UNITS_PER_CHAR * len(seen))
    for match in _FOREIGN.finditer(seen):
        scripts = [script for char in match[0] if char.isalpha() and (script := _script(char)) not in _READ_WELL]
        for script, letters in Counter(scripts).items():
            use = uses.setdefault(script, _Use())
            use.words += letters > 1
            use.letters += letters
            use.longest = max(use.longest, letters)
            use.first = use.first or Script(place, seen, match.start(), match.end())


def _script(char: str) -> str:
    return unicodedata.name(char, "UNNAMED").partition(" ")[0]


def _stands_beside(old: str, seen: str, work: Work) -> bool:
    """Return True if a text was added beside the older one, rather than replacing it."""
    if len(seen) > _TRANSLATION_CHARS_MAX * max(len(old), _SHORT_TEXT_CHARS):
        return True
    work.spend(len(old) + len(seen))
    stood = set(_LATIN_WORD.findall(old.lower()))
    return bool(stood) and len(stood & set(_LATIN_WORD.findall(seen.lower()))) * 2 > len(stood)
