"""A server's text for a person's eyes: nothing hidden stays hidden, and nothing steers the terminal."""

from __future__ import annotations

import pytest

from assay_stream.text.escaping import LineSpan, is_unseen, shown, spans_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Reads a file.", "Reads a file."),
        ("dele\u200bte", "dele⟦U+200B ZERO WIDTH SPACE⟧te"),
        ("a\u200b\u200b\u200bb", "a⟦U+200B ZERO WIDTH SPACE ×3⟧b"),
        ("\u202eexe.txt", "⟦U+202E RIGHT-TO-LEFT OVERRIDE⟧exe.txt"),
        ("\x1b[31mred\x1b]0;x\x07", "⟦U+001B ESCAPE⟧[31mred⟦U+001B ESCAPE⟧]0;x⟦U+0007 BELL⟧"),
        ("\x9b2J", "⟦U+009B CONTROL SEQUENCE INTRODUCER⟧2J"),
        ("a\r\nb\tc", "a⟦U+000D CARRIAGE RETURN⟧⟦U+000A LINE FEED⟧b⟦U+0009 TAB⟧c"),
        ("x\x7f\x01", "x⟦U+007F DELETE⟧⟦U+0001 CONTROL⟧"),
        ("a\u00a0b", "a⟦U+00A0 NO-BREAK SPACE⟧b"),
        ("\u3164", "⟦U+3164 HANGUL FILLER⟧"),
        ("\U000e0068\U000e0069", "⟦2 TAG CHARACTERS, READING: hi⟧"),
        ("\U000e001b", "⟦1 TAG CHARACTERS, READING: .⟧"),
        ("a\ufe00\ufe01\U000e0100", "a⟦3 VARIATION SELECTORS⟧"),
        ("\u200b\u200c" * 5, "⟦10 HIDDEN CHARACTERS: U+200B ×5, U+200C ×5⟧"),
        ("\ue000", "⟦U+E000 UNNAMED⟧"),
        ("日本語の説明", "日本語の説明"),
        ("é", "é"),
        ("e" + "\u0301" * 5, "e" + "\u0301" * 3 + "⟦2 COMBINING MARKS⟧"),
    ],
)
def test_what_is_hidden_is_marked(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_no_text_can_hold_a_mark_of_ours() -> None:
    """The brackets of marks are marked themselves."""
    assert shown("⟦+x+⟧") == (
        "⟦U+27E6 MATHEMATICAL LEFT WHITE SQUARE BRACKET⟧+x+⟦U+27E7 MATHEMATICAL RIGHT WHITE SQUARE BRACKET⟧"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p\u0430ypal", "p⟦U+0430 CYRILLIC SMALL LETTER A⟧ypal"),
        ("run \u0435\u0445\u0435", "run " + "".join(f"⟦{name}⟧" for name in (
            "U+0435 CYRILLIC SMALL LETTER IE", "U+0445 CYRILLIC SMALL LETTER HA", "U+0435 CYRILLIC SMALL LETTER IE"
        ))),
        ("\uff45val", "⟦U+FF45 FULLWIDTH LATIN SMALL LETTER E⟧val"),
        ("\U0001d41eval", "⟦U+1D41E MATHEMATICAL BOLD SMALL E⟧val"),
        ("Читает файл со страницы", "Читает файл со страницы"),
    ],
)  # fmt: skip
def test_lookalikes_are_marked(text: str, expected: str) -> None:
    """Where Latin is what a reader takes them for; a text in another script is left alone."""
    assert shown(text) == expected


def test_lines_can_be_kept() -> None:
    assert spans_of("a\nb", "come", keep_lines=True) == [
        LineSpan("a", "come"),
        LineSpan("⏎\n", "mark"),
        LineSpan("b", "come"),
    ]


def test_every_control_character_is_unseen() -> None:
    assert all(is_unseen(chr(code)) for code in (*range(0x20), *range(0x7F, 0xA1)))
    assert not is_unseen(" ")
