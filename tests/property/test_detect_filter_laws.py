"""What the search leaves out early is what the exact rules would not have found."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_stream.detect import RULES, DetectionRule, decoders
from assay_stream.detect.decoders import Joined, backwards, lowered, rot13
from assay_stream.detect.phrases import (
    AS_IT_STANDS,
    BACKWARDS,
    ROT13,
    PhraseBook,
    PhraseFilter,
    WordReadings,
    vocabulary_of,
)
from assay_stream.detect.reader import phrase_filter
from assay_stream.detect.surfaces import Texts
from assay_stream.text.words import Words, as_read, forms_of, plain_forms
from assay_stream.work import UNLIMITED, Work

SEEN_RULES = [rule for rule in RULES if rule.pattern and rule.searched_in == "seen"]
FILTER = phrase_filter()
BOOK = FILTER.book
VOCABULARY = sorted(BOOK.words | BOOK.stems)
PIECES = st.sampled_from([*VOCABULARY, "the", "x", "u5er", "pr3vious", "1gnore", ".", ";", "a@b.example", "\u0430ll"])
PLAIN_WORDS = [word for word in VOCABULARY if word.isascii()]
ENCODED = st.sampled_from(
    ["68 65 ", "6c,", "104 ", "01101000 ", ",", " ", "a b ", ". ", "- ", "/ ", "\\x41", "QUJD", "ABCD", "_", "·", "é"]
)


def found(book: PhraseBook, text: str, numbers: list[int] | None) -> list[tuple[str, tuple[int, int]]]:
    """What phrases find in a visible text."""
    words = Words(text)
    return list(
        book.search(words, lambda name: [(0, 1)] if name == "tool" and words.forms else [], Work(UNLIMITED), numbers)
    )


@pytest.mark.parametrize("rule", SEEN_RULES, ids=lambda rule: rule.id)
@given(st.data())
def test_a_needle_stands_in_every_match(rule: DetectionRule, data: st.DataObject) -> None:
    """Whatever a pattern matches, in whatever case, holds one of its needles."""
    pattern = re.compile(rule.regex, re.IGNORECASE | re.MULTILINE)
    text = as_read(data.draw(st.from_regex(pattern)))
    for match in pattern.finditer(text):
        assert any(needle in lowered(match[0]) for needle in rule.needles)


def test_needles_are_written_as_they_are_looked_for() -> None:
    """A needle in another case would never be found."""
    assert all(needle == lowered(needle) for rule in SEEN_RULES for needle in rule.needles)


@given(st.lists(PIECES, max_size=40).map(" ".join))
def test_phrases_that_are_left_out_stand_nowhere(text: str) -> None:
    """The phrases that can stand in a text are all that do."""
    seen = as_read(text)
    readings = WordReadings(FILTER, Work(UNLIMITED)).of(vocabulary_of(forms_of(seen)))
    possible = FILTER.possible(readings.values(), AS_IT_STANDS, {"tool"}, Work(UNLIMITED))
    assert found(BOOK, seen, possible) == found(BOOK, seen, None)


@pytest.mark.parametrize(("way", "respell"), [(ROT13, rot13), (BACKWARDS, backwards)])
@given(st.lists(st.sampled_from([*PLAIN_WORDS, "1gnore", ".", "x"]), max_size=30).map(" ".join))
def test_words_read_otherwise_are_those_of_the_text_read_otherwise(way: int, respell: object, text: str) -> None:
    """A disguised text is passed over only where its plain form holds no phrase."""
    assert callable(respell)
    disguised = respell(text)
    readings = WordReadings(FILTER, Work(UNLIMITED)).of(vocabulary_of(plain_forms(disguised.lower())))
    possible = FILTER.possible(readings.values(), way, {"tool"}, Work(UNLIMITED))
    assert found(BOOK, text, possible) == found(BOOK, text, None)


@given(st.lists(st.sampled_from([*PLAIN_WORDS, "x", "x", "."]), min_size=120, max_size=260).map(" ".join))
def test_phrases_too_far_apart_stand_nowhere(text: str) -> None:
    """The phrases that can stand in a part of a long text are all that stand in it."""
    readings = WordReadings(FILTER, Work(UNLIMITED))
    forms = forms_of(text)
    read = readings.of(vocabulary_of(forms))
    possible = FILTER.possible(read.values(), AS_IT_STANDS, {"tool"}, Work(UNLIMITED))
    near = FILTER.possible_near(possible, readings.windows(forms, read), AS_IT_STANDS, Work(UNLIMITED))
    assert found(BOOK, text, near) == found(BOOK, text, None)


@given(st.text(alphabet="abz09_-.·:;@é \n", max_size=60))
def test_forms_are_those_of_words(text: str) -> None:
    """The fast ways to the words of a text give the words."""
    seen = as_read(text)
    assert forms_of(seen) == Words(seen).forms
    if seen.isascii():
        assert plain_forms(seen.lower()) == Words(seen).forms


@given(st.lists(ENCODED, max_size=60).map("".join))
def test_a_closed_gate_hides_no_view(text: str) -> None:
    """A text is decoded in each way that gives anything."""
    work = Work(UNLIMITED)
    gates = {way for way, places in decoders.gates_of(Joined(["x", text])).items() if 1 in places}
    opened = list(decoders.hidden_views(text, work, gates=gates))
    assert opened == list(decoders.hidden_views(text, work))


def test_phrases_of_given_places_alone_are_asked_for_always() -> None:
    """A phrase without a word of its own is not looked up by one."""
    book = PhraseBook([("key", "{tool} ~2 {address}"), ("other", "word {tool}")])
    assert PhraseFilter(book).given_only == [0]


JSON = st.recursive(
    st.sampled_from([None, True, 1, 1.0, "a", "Call it first.", "properties"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "properties", "enum", "type", "x-a", "description"]), inner, max_size=3
        )
    ),
    max_leaves=12,
)
DEFINITIONS = st.dictionaries(st.sampled_from(["name", "description", "inputSchema", "properties", "x-b"]), JSON)


@given(DEFINITIONS, DEFINITIONS, st.data())
def test_fields_that_stayed_are_listed_as_if_they_were_new(
    before: dict[str, object], after: dict[str, object], data: st.DataObject
) -> None:
    """What an older definition had as well is not listed again, and changes neither the texts nor their cost."""
    kept = data.draw(st.sets(st.sampled_from(sorted(before) or [""])))
    after = after | {name: before[name] for name in kept if name in before}
    works = [Work(UNLIMITED) for _ in range(3)]
    older, alone = Texts(before, works[0]), Texts(after, works[1])
    beside = Texts(after, works[2], older)
    known = {(text.role, text.value) for text in older}
    assert list(beside) == list(alone)
    assert beside.new(known) == [text for text in alone if (text.role, text.value) not in known]
    assert works[2].spent == works[1].spent == beside.units
