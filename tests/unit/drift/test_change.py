"""Paths and values of changes, and their bounds."""

import re

from assay_stream.canonical.digest import sha256_of
from assay_stream.drift.change import ABSENT, CODES, bounded, bounded_pair, member
from assay_stream.drift.severity import Level
from assay_stream.limits import DEFAULT_LIMITS
from tests.support.drift import mirrored

MAX = DEFAULT_LIMITS.change_value_chars_max


def test_plain_names_follow_a_dot_and_others_are_quoted() -> None:
    assert member("$", "a-b") == "$.a-b"
    assert member("$", "a.b") == '$["a.b"]'
    assert member("$", 'a"]') == '$["a\\"]"]'


def test_a_long_name_is_cut_and_stays_distinct() -> None:
    one, other = (member("$", "x" * 5_000 + end) for end in "ab")
    assert one != other
    assert len(one) < 400


def test_short_values_stay_whole() -> None:
    assert bounded({"a": [1, None]}) == {"a": [1, None]}
    assert bounded(ABSENT) is None
    assert bounded("x" * MAX) == "x" * MAX


def test_a_long_value_is_cut_with_its_length_and_digest() -> None:
    text = "x" * (MAX + 1)
    assert bounded(text) == "x" * MAX + f"… (cut: {MAX + 1} characters, {sha256_of(text.encode())})"
    assert str(bounded([text])).startswith('["xxx')


def test_long_texts_are_shown_from_where_they_part() -> None:
    before, after = bounded_pair("x" * 5_000 + "old", "x" * 5_000 + "new")
    assert "xold… (cut: 5003" in before
    assert "xnew… (cut: 5003" in after
    assert before.startswith("…x")


def test_the_opposite_of_the_opposite_is_the_code() -> None:
    for code, info in CODES.items():
        opposite = CODES[info.opposite]
        assert opposite.opposite == code
        assert opposite.direction is mirrored(info.direction)


def test_codes_are_stable_words_with_titles() -> None:
    for code, info in CODES.items():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", code)
        assert info.title
        assert "\n" not in info.title


def test_each_code_has_a_level() -> None:
    assert {info.level for info in CODES.values()} <= {str(level) for level in Level}
