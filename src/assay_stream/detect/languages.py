"""Sentences in another language than the text around them, which rules and reviewers may not understand.

1. A sentence of five words or more is in another language if it has two of that language's commonest words, or three
   words with accents, and at most one common English word.
2. One such sentence next to unchanged text counts as much as a new script, if the older definition had none.
3. In a definition seen for the first time it is medium, within English text: some servers are bilingual.

Some words in a new script are an indicator if the older definition had none in it and its text is still there. Text
that replaced text of about its size is a translation and no indicator; nor are single words, as in a list of languages.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise
from typing import Final

from assay_stream.detect.catalog import CATALOG, LEVELS
from assay_stream.detect.match import Match
from assay_stream.detect.page import shown
from assay_stream.detect.surfaces import Place, Text, TextRole
from assay_stream.work import Work

_RULE: Final = "language_introduced"

_COMMON = [frozenset(words.split()) for words in CATALOG.languages.values()]
_COMMON_IN_ANY = frozenset(chain.from_iterable(_COMMON))
_ENGLISH = frozenset(CATALOG.words.english_common.split())
_ENGLISH_AROUND = _ENGLISH | frozenset(CATALOG.words.english.split())
_WORD = re.compile(r"(?<![\w/@.-])[^\W\d_]+(?![\w/@-])")
_ACCENTED = re.compile(r"\b(?=[a-zß-öø-ɏạ-ỿ]{3})[a-z]*[ß-öø-ɏạ-ỿ][^\W\d_]*")
_SENTENCE_END = re.compile(r"[.!?;:]\s|\n")
_WORDS_MIN = 5
_COMMON_MIN = 2
_CODE_CHARS = 2
"""Codes of languages, as in a list of them, are common words as well."""
_ACCENTED_MIN = 3
_ENGLISH_MAX = 1
_ENGLISH_AROUND_MIN = 2
"""Common English words that a definition has for each sentence in another language."""
_FOREIGN_ON_FIRST_SIGHT_MAX = 3
_LEVEL_FIRST_SEEN = 3
_CHARS_PER_UNIT_LOOKED_AT = 4
_UNITS_PER_CHAR_READ = 2
_CACHED_TEXTS_MAX = 4_096
_CACHED_CHARS_MAX = 256

_READ_WELL = frozenset(CATALOG.words.scripts_read_well.split())
_FOREIGN = re.compile(r"[^\x00-\u024f\s]+")
_LATIN_WORD = re.compile(r"[^\W\d_]{3,64}")
_UNITS_PER_CHAR_SEEN = 5
_SCRIPT_LETTERS_MIN = 10
_SCRIPT_WORDS_MIN = 3
_UNSPACED_LETTERS_MIN = 14
_PROSE_WORDS_MIN = 3
_TRANSLATION_CHARS_MAX = 3
"""A translation has at most this many times the characters of what it replaced."""
_SHORT_TEXT_CHARS = 40


@dataclass(slots=True)
class _Use:
    words: int = 0
    letters: int = 0
    longest: int = 0
    first: Match | None = None

    @property
    def is_prose(self) -> bool:
        is_several = self.words >= _SCRIPT_WORDS_MIN and self.letters >= _SCRIPT_LETTERS_MIN
        return is_several or self.longest >= _UNSPACED_LETTERS_MIN


def new_languages(
    old_texts: Sequence[Text], texts: Sequence[Text], new_texts: Iterable[Text], work: Work
) -> Iterator[Match]:
    """Yield the first words of each script, and the first sentence of a language, that is new to a definition.

    Args:
        old_texts: of the older definition, empty where there was none.
        texts: of the newer one.
        new_texts: those of them that are new.
    """
    suspects = [text for text in new_texts if text.role is TextRole.TEXT and _may_be_foreign(text.value, work)]
    if not suspects:
        return
    if not old_texts:
        yield from _on_first_sight(suspects, texts, work)
        return
    stands = {(text.role, text.value) for text in texts}
    kept = any(_is_prose(text) for text in old_texts if (text.role, text.value) in stands)
    old_by_place = {text.place: shown(text.value, work) for text in old_texts if text.role is TextRole.TEXT}
    beside = []
    for text in suspects:
        seen, old = shown(text.value, work), old_by_place.get(text.place)
        if _stands_beside(old, seen, work) if old is not None else kept:
            beside.append((text.place, seen))
    yield from _new_scripts(old_by_place, beside, work)
    if not any(_may_be_foreign(old, work) and _foreign_sentences(old, work) for old in old_by_place.values()):
        for place, seen in beside:
            for start, end in _foreign_sentences(seen, work)[:1]:
                yield Match(_RULE, LEVELS[_RULE], seen, start, end, (), place)


def _on_first_sight(suspects: Sequence[Text], texts: Sequence[Text], work: Work) -> Iterator[Match]:
    """Yield the few foreign sentences of texts that are English but for them."""
    found = {text: spans for text in suspects if (spans := _foreign_sentences(text.value, work))}
    foreign = sum(map(len, found.values()))
    if not 0 < foreign <= _FOREIGN_ON_FIRST_SIGHT_MAX:
        return
    english = 0
    for text in texts:
        if text.role is TextRole.TEXT:
            edges = (0, *chain.from_iterable(found.get(text, ())), len(text.value))
            work.spend(_UNITS_PER_CHAR_READ * len(text.value))
            rest = "".join(text.value[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True))
            english += sum(word in _ENGLISH_AROUND for word in _WORD.findall(rest.lower()))
    if english >= _ENGLISH_AROUND_MIN * foreign:
        for text, ((start, end), *_) in found.items():
            yield Match(_RULE, _LEVEL_FIRST_SEEN, text.value, start, end, (), text.place)


def _new_scripts(old_by_place: Mapping[Place, str], beside: Iterable[tuple[Place, str]], work: Work) -> Iterator[Match]:
    uses: dict[str, _Use] = {}
    for place, seen in beside:
        _count(uses, place, seen, work)
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
    work.spend(_UNITS_PER_CHAR_SEEN * len(seen))
    for match in _FOREIGN.finditer(seen):
        scripts = [script for char in match[0] if char.isalpha() and (script := _script(char)) not in _READ_WELL]
        for script, letters in Counter(scripts).items():
            use = uses.setdefault(script, _Use())
            use.words += letters > 1
            use.letters += letters
            use.longest = max(use.longest, letters)
            level = LEVELS["script_introduced"]
            use.first = use.first or Match("script_introduced", level, seen, *match.span(), (), place)


def _script(char: str) -> str:
    return unicodedata.name(char, "UNNAMED").partition(" ")[0]


def _stands_beside(old: str, seen: str, work: Work) -> bool:
    """Return True if a text was added beside the older one, rather than replacing it."""
    if len(seen) > _TRANSLATION_CHARS_MAX * max(len(old), _SHORT_TEXT_CHARS):
        return True
    work.spend(len(old) + len(seen))
    stood = set(_LATIN_WORD.findall(old.lower()))
    return bool(stood) and len(stood & set(_LATIN_WORD.findall(seen.lower()))) * 2 > len(stood)


def _may_be_foreign(text: str, work: Work) -> bool:
    """Return False for nearly all English texts, at little cost."""
    work.spend(1 + len(text) // _CHARS_PER_UNIT_LOOKED_AT)
    return not text.isascii() or (_known if len(text) <= _CACHED_CHARS_MAX else _has_common_words)(text)


def _has_common_words(text: str) -> bool:
    return len(_COMMON_IN_ANY.intersection(_WORD.findall(text.lower()))) >= _COMMON_MIN


# Most texts of a definition that changed stood in it before.
_known = lru_cache(_CACHED_TEXTS_MAX)(_has_common_words)


def _foreign_sentences(text: str, work: Work) -> list[tuple[int, int]]:
    """Return start and end of the sentences that are in a language with Latin letters other than English."""
    work.spend(_UNITS_PER_CHAR_READ * len(text))
    ends = [*(match.end() for match in _SENTENCE_END.finditer(text)), len(text)]
    return [span for span in pairwise((0, *ends)) if _is_foreign(text[slice(*span)])]


def _is_foreign(sentence: str) -> bool:
    words: Sequence[str] = _WORD.findall(sentence)
    distinct = {word.lower() for word in words}
    if len(words) < _WORDS_MIN or len(distinct & _ENGLISH) > _ENGLISH_MAX:
        return False
    return len(set(_ACCENTED.findall(sentence))) >= _ACCENTED_MIN or any(
        len(hits := distinct & common) >= _COMMON_MIN and len(max(hits, key=len)) > _CODE_CHARS for common in _COMMON
    )
