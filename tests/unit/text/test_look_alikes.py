"""Skeletons of tool names: which look alike, and which do not."""

from __future__ import annotations

import re

import pytest

from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.text import words
from assay_stream.text.words import LOOKALIKES, skeleton, uts39_skeleton
from deploy import confusables

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
