"""Words of a text, in any script and under what hides them."""

import re
import unicodedata

import pytest

from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.text import words
from assay_stream.text.words import (
    LOOKALIKES,
    Words,
    as_read,
    mixes_scripts,
    other_forms,
    plain_form,
    skeleton,
    units_to_normalize,
    uts39_skeleton,
    without_long_runs,
)
from deploy import confusables


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
    assert words.places == [0, 1, 52, 53, 54]
    assert words.sentence_keys() == ["one two", "three v1 2"]


SOURCE = """\
\ufeff# confusables.txt
# Version: 15.0.0
0430 ;\t0061 ;\tMA\t# ( а → a ) CYRILLIC SMALL LETTER A → LATIN SMALL LETTER A\t#

0251 ;\t0061 ;\tMA\t# ( ɑ → a ) LATIN SMALL LETTER ALPHA → LATIN SMALL LETTER A\t#
006D ;\t0072 006E ;\tMA\t# ( m → rn ) LATIN SMALL LETTER M → LATIN SMALL LETTER R, LATIN SMALL LETTER N\t#
"""


@pytest.mark.parametrize(
    "other",
    [
        "read-file",
        "read.file",
        "read file",
        "read\u2014file",
        "readFile",
        "READ_FILE",
        "re\u0430d_file",
        "r\u0435ad_file",
        "read\u200b_file",
        "read_fi\u0142e".replace("\u0142", "l"),
        "read_f1le",
        "read_flle",
        "\uff52ead_file",
        "re\u0301ad_file",
        "read_f\u0131le",
        "\U0001d42b\U0001d41e\U0001d41a\U0001d41d_file",
        "\u027cead_file".replace("\u027c", "\u0433"),
        "read_fi\u04cfe",
        "r\u212ead_file",
    ],
)
def test_names_that_look_alike_have_one_skeleton(other: str) -> None:
    assert skeleton(other) == skeleton("read_file")


@pytest.mark.parametrize(
    "pair", [("confirm", "confirrn"), ("go_online", "g0_0nline"), ("view", "vlew"), ("week", "vveek")]
)
def test_letters_drawn_alike_are_equal(pair: tuple[str, str]) -> None:
    assert skeleton(pair[0]) == skeleton(pair[1])


@pytest.mark.parametrize("other", ["read_files", "write_file", "file_read", "read", "read_fi1e2"])
def test_other_names_have_another(other: str) -> None:
    assert skeleton(other) != skeleton("read_file")


def test_ascii_names_keep_their_letters_apart() -> None:
    alike: dict[str, str] = {}
    for char in "abcdefghijklmnopqrstuvwxyz0123456789":
        alike[skeleton(char)] = alike.get(skeleton(char), "") + char
    assert [chars for chars in alike.values() if len(chars) > 1] == ["il1", "o0"]


def test_every_confusable_of_unicode_is_found() -> None:
    letters = {
        chr(code): prototype
        for code, prototype in words._prototypes().items()
        if re.fullmatch("[A-Za-z0-9]+", prototype)
    }
    assert len(letters) == 1_454
    assert [char for char, letter in letters.items() if skeleton(f"re{char}d") != skeleton(f"re{letter}d")] == []


def test_letters_of_scripts_seen_in_attacks_are_found() -> None:
    """Some letters are drawn like a Latin one, though UTS #39 does not say so."""
    assert [
        chr(code) for code, letter in LOOKALIKES.items() if skeleton(f"re{chr(code)}d") != skeleton(f"re{letter}d")
    ] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p\u0430yp\u0430l", "paypal"),
        ("m", "rn"),
        ("I0", "lO"),
        ("\u0457", "i\u0308"),
        ("\u1e69", "s\u0323\u0307"),
        ("\ufdfa", "\u0635\u0644\u0649 l\u0644\u0644o \u0639\u0644\u0649o \u0648\u0633\u0644\u0645"),
    ],
)
def test_uts39_skeleton(text: str, expected: str) -> None:
    """Decomposed, each character as its prototype, decomposed again; case and separators stay."""
    assert uts39_skeleton(text) == expected


def test_a_name_of_separators_is_its_own() -> None:
    assert skeleton("-") == "-"
    assert skeleton("-") != skeleton("--")


def test_a_long_name_is_bounded() -> None:
    for long in ("a" * 300, "a" * 10_000, "\ufdfa" * 1_000):
        assert len(skeleton(long)) <= DEFAULT_LIMITS.skeleton_chars_max
        assert skeleton(long) != skeleton(long + "b")


def test_a_character_that_becomes_many_is_not_read_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of a name is bounded by its decomposed length."""
    monkeypatch.setattr(words, "as_read", lambda text: pytest.fail(f"{len(text)} characters"))
    skeleton("\ufdfa" * DEFAULT_LIMITS.drawn_name_chars_max)


def test_the_table_is_generated_from_unicode() -> None:
    """Each prototype stands with all that is mistaken for it, under Unicode's notice."""
    lines = confusables.table(SOURCE).splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["0061: 0251 0430", "0072 006E: 006D"]
    assert "confusables.txt of Unicode 15.0.0" in lines[0]
    assert any("Copyright" in line for line in lines)


MARKS = "\u0f73"
"""Sorted by insertion, and two marks once it is decomposed."""


def test_ascii_costs_least() -> None:
    assert units_to_normalize("a" * 1_000) < units_to_normalize("é" * 1_000)


@pytest.mark.parametrize("text", ["\ufdfa" * 100, MARKS * 500], ids=["expanding", "marks"])
def test_what_expands_or_is_sorted_costs_more(text: str) -> None:
    assert units_to_normalize(text) > 10 * units_to_normalize("é" * len(text))


def test_the_cost_of_a_run_grows_with_its_square() -> None:
    assert units_to_normalize(MARKS * 2_000) > 3.9 * units_to_normalize(MARKS * 1_000)


def test_a_run_of_marks_ends_where_stream_safe_text_ends_it() -> None:
    assert without_long_runs("a" + MARKS * 40 + "b") == "a" + MARKS * 30 + "b"
    assert without_long_runs("n\u0303o" * 100) == "n\u0303o" * 100


def test_a_text_of_marks_alone_is_made_visible_at_once() -> None:
    """A megabyte of marks would take hours to sort; no mark is left of it."""
    assert as_read("a" + MARKS * 300_000 + "b") == "ab"
    assert as_read("a" + MARKS * 20 + "b") == as_read(unicodedata.normalize("NFD", "ab"))
