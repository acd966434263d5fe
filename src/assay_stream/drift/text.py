"""Two texts that a model reads: whether white space, typography, the spelling of a word, or words changed.

Each step ignores more than the one before; the first that finds the texts equal names the change:

1. *White space*: equal after runs of ASCII white space became one blank. No other character is white space here:
   what a person cannot see may still be read.
2. *Lists reordered*: equal but for the order of items between brackets. A program that writes a set into a text may
   use another order each time it starts.
3. *Typography*: equal word by word after Unicode normalisation (NFKC), case folding, one form for quotes and
   dashes, and without punctuation at the ends of words. Punctuation within a word stays: it makes addresses, paths
   and names.
4. *Words*: one text holds all words of the other in their order, so words were only added or only removed.
5. *Spelling*: up to three words differ, each by one letter, in words of five ASCII letters and more.
6. Anything else is a change of words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from assay_stream.drift.change import ABSENT, Change, Path, changed, parting
from assay_stream.drift.equality import Values, is_text_reordered
from assay_stream.text.words import units_to_normalize
from assay_stream.work import Work

_WHITE_SPACE = re.compile(r"[ \t\n\r\f\v]+")
_FORMS = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u2039\u203a\u0060\u00b4", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
    }
)
_SPELLING_WORDS_MAX = 3
_SPELLING_LETTERS_MIN = 5
_ASCII_PUNCTUATION = "".join(mark for mark in map(chr, range(128)) if unicodedata.category(mark)[0] == "P")
_CHARS_PER_UNIT = 4
_WORD_UNITS = 4
"""Units of work per word: to find it, to keep it, and to look for it in another text."""


def compare_texts(subject: str, path: Path, before: Any, after: Any, values: Values) -> Iterator[Change]:
    how = None if values.same(before, after) else _how(before, after, values.work)
    if how is not None:
        code = "field_changed" if how == "no_text" else f"{subject}_{how}"
        yield changed(code, path, before, after, values)


def words_of(text: str, work: Work) -> list[str]:
    """Return the words of a text in the form compared, without typography."""
    work.spend(units_to_normalize(text))
    if text.isascii():
        words = text.replace("`", "'").lower().split()
    else:
        plain = unicodedata.normalize("NFKC", text.translate(_FORMS)).casefold()
        words = unicodedata.normalize("NFKC", plain).split()
    work.spend(_WORD_UNITS * len(words))
    bare = {word: _without_ends(word) for word in set(words)}
    return [bare[word] for word in words if bare[word]]


def _how(before: Any, after: Any, work: Work) -> str:
    if not isinstance(before, str) or not isinstance(after, str):
        return _how_came(before, after)
    work.spend((len(before) + len(after)) // _CHARS_PER_UNIT)
    if _plain_spaces(before) == _plain_spaces(after):
        return "whitespace_changed"
    if is_text_reordered(before, after, work):
        return "lists_reordered"
    was, now = words_of(before, work), words_of(after, work)
    if was == now:
        return "typography_changed"
    if _holds_in_order(now, was):
        return "words_added"
    if _holds_in_order(was, now):
        return "words_removed"
    return "spelling_changed" if _is_spelling(was, now) else "words_changed"


def _how_came(before: Any, after: Any) -> str:
    if before is ABSENT and isinstance(after, str):
        return "added"
    if after is ABSENT and isinstance(before, str):
        return "removed"
    return "no_text"


def _plain_spaces(text: str) -> str:
    if "  " not in text and text.isascii() and text.isprintable():
        return text.strip(" ")
    return _WHITE_SPACE.sub(" ", text).strip(" ")


def _without_ends(word: str) -> str:
    if word[0].isalnum() and word[-1].isalnum():
        return word
    if word.isascii():
        return word.strip(_ASCII_PUNCTUATION)
    start, end = 0, len(word)
    while start < end and unicodedata.category(word[start])[0] == "P":
        start += 1
    while end > start and unicodedata.category(word[end - 1])[0] == "P":
        end -= 1
    return word[start:end]


def _holds_in_order(words: Sequence[str], wanted: Sequence[str]) -> bool:
    rest = iter(words)
    return all(word in rest for word in wanted)


def _is_spelling(was: Sequence[str], now: Sequence[str]) -> bool:
    if len(was) != len(now):
        return False
    differing = ((one, other) for one, other in zip(was, now, strict=True) if one != other)
    pairs = list(islice(differing, _SPELLING_WORDS_MAX + 1))
    return len(pairs) <= _SPELLING_WORDS_MAX and all(_is_one_letter_off(*pair) for pair in pairs)


def _is_one_letter_off(one: str, other: str) -> bool:
    """Return True if two words of enough ASCII letters differ by one letter, or by two neighbours swapped.

    Look-alike letters of other scripts, digits and addresses are not spelling.
    """
    short, long = sorted((one, other), key=len)
    if not all(word.isascii() and word.isalpha() and len(word) >= _SPELLING_LETTERS_MIN for word in (short, long)):
        return False
    if len(long) - len(short) > 1:
        return False
    at = parting(short, long)
    if len(short) < len(long):
        return short[at:] == long[at + 1 :]
    swapped = short[:at] + short[at : at + 2][::-1] + short[at + 2 :]
    return short[at + 1 :] == long[at + 1 :] or swapped == long
