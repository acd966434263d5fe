"""Compare two texts that a model reads, or the values that two JSON Schemas allow at one place.

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

Each function reads some keywords of one schema, before and after, and leaves nested schemas alone.
Source: JSON Schema draft 2020-12, Validation, sections 6 and 9.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from assay_stream.drift.change import ABSENT, Change, Path, changed, parting
from assay_stream.drift.equality import Values, is_reordered, is_text_reordered
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
        if isinstance(after, str) and before is ABSENT:
            return "added"
        return "removed" if isinstance(before, str) and after is ABSENT else "no_text"
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


Schema = Mapping[str, Any]

_TYPE_NAMES = frozenset(("null", "boolean", "object", "array", "number", "string", "integer"))
_COUNTS = (
    ("minLength", True), ("maxLength", False), ("minItems", True), ("maxItems", False),
    ("minProperties", True), ("maxProperties", False),
)  # fmt: skip
_INTEGERS = frozenset(("integer",))
_LISTED_UNITS = 8
"""Units of work per listed value or alternative, beside those for visiting it."""
_LOWER = ("minimum", "exclusiveMinimum")
_UPPER = ("maximum", "exclusiveMaximum")


def compare_values(path: Path, before: Schema, after: Schema, values: Values) -> Iterator[Change]:
    """Yield the changes of what one place of a schema allows, nested schemas left alone."""
    if not any(_differs(name, before, after, values) for name in _TELLING):
        return
    yield from _Place(path, before, after, values).changes()


def _differs(name: str, before: Schema, after: Schema, values: Values) -> bool:
    if name not in before and name not in after:
        return False
    return not values.same(before.get(name, ABSENT), after.get(name, ABSENT))


class _Place:
    """One place of two schemas whose values differ."""

    def __init__(self, path: Path, before: Schema, after: Schema, values: Values) -> None:
        self._path = path
        self._sides = before, after
        self._values = values
        self._listed = [self._listed_by(side) for side in self._sides]
        self._types = [self._types_of(*pair) for pair in zip(self._sides, self._listed, strict=True)]

    def changes(self) -> Iterator[Change]:
        yield from self._compare_types()
        yield from self._compare_listed()
        of_integers = all(kinds == _INTEGERS for kinds in self._types)
        for keywords, is_lower in ((_LOWER, True), (_UPPER, False)):
            yield from self._compare_bound(keywords, is_lower, of_integers)
        for keyword, is_lower in _COUNTS:
            yield from self._compare_bound((keyword,), is_lower, False)
        for keyword, code_of in _CODES.items():
            was, now = self._stated(keyword)
            if not self._values.same(was, now):
                yield self._changed(code_of(keyword, was, now, self._values), keyword, was, now)
        yield from self._compare_examples()

    def _stated(self, keyword: str) -> tuple[Any, Any]:
        before, after = self._sides
        return before.get(keyword, ABSENT), after.get(keyword, ABSENT)

    def _changed(self, code: str, keyword: str, before: Any, after: Any) -> Change:
        return changed(code, self._path.keyword(keyword), before, after, self._values)

    def _listed_by(self, schema: Schema) -> dict[Any, Any] | None:
        """Return the values that ``enum`` or ``const`` allows, by class; ``None`` where neither is stated."""
        stated = schema.get("enum", ABSENT)
        if stated is ABSENT and "const" in schema:
            stated = [schema["const"]]
        if not isinstance(stated, list):
            return None
        self._values.work.spend(_LISTED_UNITS * len(stated))
        return {self._values.class_of(each): each for each in stated}

    def _types_of(self, schema: Schema, listed: dict[Any, Any] | None) -> frozenset[str] | None:
        """Return the types allowed by ``type``, by listed values or by all alternatives; ``None`` for any."""
        if "type" in schema:
            return self._types_stated(schema["type"])
        if listed is not None:
            return _with_integers(frozenset(map(_type_of, listed.values())))
        for keyword in ("anyOf", "oneOf"):
            alternatives = schema.get(keyword)
            if isinstance(alternatives, list) and alternatives:
                self._values.work.spend(_LISTED_UNITS * len(alternatives))
                kinds = [self._types_stated(each.get("type")) for each in alternatives if isinstance(each, dict)]
                if len(kinds) == len(alternatives) and None not in kinds:
                    return frozenset().union(*(kind for kind in kinds if kind is not None))
        return None

    def _types_stated(self, stated: Any) -> frozenset[str] | None:
        names = [stated] if isinstance(stated, str) else stated
        if not isinstance(names, list):
            return None
        self._values.work.spend(len(names))
        if not all(isinstance(name, str) and name in _TYPE_NAMES for name in names):
            return None
        return _with_integers(frozenset(names))

    def _compare_types(self) -> Iterator[Change]:
        sides, (was, now) = self._stated("type"), self._types
        if ABSENT not in sides and None in (was, now):
            if not self._values.same(*sides):
                yield self._changed("schema_keyword_changed", "type", *sides)
            return
        if was == now:
            return
        if was is None or now is None:
            code = "type_constrained" if was is None else "type_unconstrained"
        else:
            code = "type_widened" if was < now else "type_narrowed" if now < was else "type_changed"
        yield self._changed(code, "type", *sides)

    def _compare_listed(self) -> Iterator[Change]:
        enums = self._stated("enum")
        if any(side is not ABSENT and not isinstance(side, list) for side in enums):
            if not self._values.same(*enums):
                yield self._changed("schema_keyword_changed", "enum", *enums)
            return
        was, now = self._listed
        word = "const" if enums == (ABSENT, ABSENT) else "enum"
        sides = [side.get("enum", side.get("const", ABSENT)) for side in self._sides]
        if was is None or now is None:
            if was is not now:
                yield self._changed(f"{word}_{'introduced' if was is None else 'dropped'}", word, *sides)
        elif was.keys() != now.keys():
            if word == "const":
                code = "const_changed"
            elif was.keys() < now.keys():
                code = "enum_values_added"
            else:
                code = "enum_values_removed" if now.keys() < was.keys() else "enum_changed"
            yield self._changed(code, word, *sides)

    def _compare_bound(self, keywords: tuple[str, ...], is_lower: bool, of_integers: bool) -> Iterator[Change]:
        before, after = self._sides
        differing = [name for name in keywords if _differs(name, before, after, self._values)]
        if not differing:
            return
        stated = [{name: side[name] for name in keywords if name in side} for side in self._sides]
        values = stated if len(differing) > 1 else [side.get(differing[0], ABSENT) for side in stated]
        if not all(_is_number(number) for side in stated for number in side.values()):
            yield self._changed("schema_keyword_changed", differing[0], *values)
            return
        was, now = (_tightness(side, is_lower, of_integers) for side in stated)
        code = "bounds_restated" if was == now else ("bounds_tightened" if was < now else "bounds_loosened")
        yield self._changed(code, differing[0], *values)

    def _compare_examples(self) -> Iterator[Change]:
        was, now = self._stated("examples")
        if isinstance(was, list) and isinstance(now, list):
            self._values.work.spend(_LISTED_UNITS * (len(was) + len(now)))
            if set(map(self._values.class_of, was)) == set(map(self._values.class_of, now)):
                return
        if not self._values.same(was, now):
            yield self._changed("examples_changed", "examples", was, now)


def _multiple_code(_keyword: str, was: Any, now: Any, _values: Values) -> str:
    if was is ABSENT or now is ABSENT:
        return "bounds_tightened" if was is ABSENT else "bounds_loosened"
    if not _is_number(was) or not _is_number(now) or was <= 0 or now <= 0:
        return "schema_keyword_changed"
    if now % was == 0:
        return "bounds_tightened"
    return "bounds_loosened" if was % now == 0 else "bounds_changed"


def _form_code(keyword: str, was: Any, now: Any, _values: Values) -> str:
    return f"{keyword}_{'introduced' if was is ABSENT else 'dropped' if now is ABSENT else 'changed'}"


def _default_code(_keyword: str, was: Any, now: Any, values: Values) -> str:
    if was is ABSENT or now is ABSENT:
        return "default_added" if was is ABSENT else "default_removed"
    if is_reordered(was, now, values):
        return "default_reordered"
    return "default_number_changed" if _is_number(was) and _is_number(now) else "default_changed"


_CODES = {"multipleOf": _multiple_code, "pattern": _form_code, "format": _form_code, "default": _default_code}


def _with_integers(names: frozenset[str]) -> frozenset[str]:
    return names | {"integer"} if "number" in names else names


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _tightness(stated: Mapping[str, Any], is_lower: bool, of_integers: bool) -> tuple[float, bool]:
    """Return how tight the tightest of some bounds is: the greater the tighter."""
    counts = any(name[:3] in ("min", "max") and name not in (*_LOWER, *_UPPER) for name in stated)
    tightest: tuple[float, bool] = (-math.inf, False)
    for name, number in stated.items():
        value, is_open = (number if is_lower else -number), name.startswith("exclusive")
        if of_integers:
            value, is_open = (math.floor(value) + 1 if is_open else math.ceil(value)), False
        tightest = max(tightest, (value, is_open))
    # No count is below zero, so such a bound asks for nothing.
    return (-math.inf, False) if counts and is_lower and tightest[0] <= 0 else tightest


VALUE_KEYWORDS = frozenset(
    ("type", "enum", "const", "pattern", "format", "default", "examples", "multipleOf", *_LOWER, *_UPPER)
) | {name for name, _ in _COUNTS}
"""The keywords that ``compare_values`` reads."""

_TELLING = sorted(VALUE_KEYWORDS | {"anyOf", "oneOf"})
"""These, and those that imply types where ``type`` is not stated."""
