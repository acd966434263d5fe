"""Words of a text, in any script and under what hides them."""

from __future__ import annotations

import pytest

from assay_stream.text.words import Words, as_read, mixes_scripts, other_forms, plain_form


@pytest.mark.parametrize(
    "text",
    [
        "ig\u200bnore",
        "ig\u00adnore",
        "\x1b[8mignore\x1b[0m",
        "ｉｇｎｏｒｅ",
        "𝐢𝐠𝐧𝐨𝐫𝐞",
        "i\u0336g\u0336n\u0336ore",
        "\U000e0041ignore",
    ],
)
def test_what_hides_a_word_is_taken_off(text: str) -> None:
    assert as_read(text) == "ignore"


def test_case_and_accents_do_not_count() -> None:
    assert [plain_form(word) for word in ("Précédentes", "STRASSE", "Straße", "أرسل")] == [
        "precedentes",
        "strasse",
        "strasse",
        "ارسل",
    ]


def test_other_forms() -> None:
    assert "password" in other_forms("раѕѕԝоrd")
    assert "ignore" in other_forms("1gn0r3")
    assert list(other_forms("plain")) == []


def test_mixed_scripts() -> None:
    """Only a word that mixes Latin with its lookalikes counts, not a word of another alphabet or a unit."""
    assert [mixes_scripts(word) for word in ("Ignоre", "Привет", "μm", "Δt", "plain")] == [
        True,
        False,
        False,
        False,
        False,
    ]


def test_han_kana_and_hangul_are_single_words() -> None:
    assert Words("忽略 すし 지시 two words").forms == ["忽", "略", "す", "し", "지", "시", "two", "words"]


def test_sentence_end_is_a_leap() -> None:
    words = Words("One two. Three v1.2")
    assert words.places == [0, 1, 5, 6, 7]
    assert words.sentence_keys() == ["one two", "three v1 2"]
