"""Text of strangers, made inert for each kind of output."""

import csv
import io
import json
import unicodedata

import pytest
from hypothesis import given, strategies as st

from assay_stream.text.escaping import (
    LineSpan,
    counted,
    csv_line,
    is_unseen,
    json_text,
    markdown,
    shown,
    spans_of,
    visible,
)

IGNORABLE = [
    *(0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0x200B, 0x2010)),
    *(*range(0x202A, 0x202F), *range(0x2060, 0x2070), 0x3164, *range(0xFE00, 0xFE10), 0xFEFF, 0xFFA0),
    *(*range(0xFFF0, 0xFFF9), *range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B), *range(0xE0000, 0xE1000)),
]
"""Default_Ignorable_Code_Point of Unicode (DerivedCoreProperties)."""


@pytest.mark.parametrize("escaped", [visible, lambda text: json_text(json.dumps(text, ensure_ascii=False))])
def test_nothing_unseen_is_left(escaped: object) -> None:
    assert callable(escaped)
    characters = map(chr, (*range(0x20000), *IGNORABLE, *range(0xE0000, 0xE0200), 0x10FFFF))
    categories, ignorable = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}, set(map(chr, IGNORABLE))
    unsafe = "".join(each for each in characters if unicodedata.category(each) in categories or each in ignorable)
    for text in (unsafe, *map(chr, range(0x20)), "\x7f"):
        shown = escaped(text)
        assert shown.isascii()
        assert shown.isprintable()


@given(st.text())
def test_what_can_be_read_stays(text: str) -> None:
    shown = visible(text)
    assert not any(map(is_unseen, shown))
    assert shown == text or any(map(is_unseen, text))


@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_escaped_json_is_the_same_value(value: object) -> None:
    for indent in (None, 2):
        text = json_text(json.dumps(value, ensure_ascii=False, indent=indent))
        assert json.loads(text) == value
        assert not any(is_unseen(character) for character in text if character != "\n")


def test_line_ends_can_be_kept() -> None:
    assert visible("a\r\nb\tc", keep="\n") == "a\\r\nb\\tc"


@pytest.mark.parametrize(
    "text",
    [
        *("=1", "+1", "-1", "@x", "＝1", "＋1", "－1", "＠x", "﹢1", "﹦1", "⁼1", "\t=1", "\r=1", "\n=1", "\t1", "\r1"),
        *(" =1", "\u00a0=1", "\u3000=1", "\u2003=1", "\u200b=1", "\ufeff=1", "\x00=1", "\x1b=1", "\U000e0020=1"),
        *('"=1', "'=1", "`=1", '" "=1', "\u2028=1", "“=1"),
    ],
)
def test_a_cell_that_could_run_gets_an_apostrophe(text: str) -> None:
    [[cell]] = csv.reader(io.StringIO(csv_line([text]), newline=""))
    assert cell.startswith("'")
    assert not any(is_unseen(character) for character in cell if character != "\n")


@pytest.mark.parametrize(
    "text", ["x;=1;", "x; =1", "x;;@y", "x;\u200b＝1", 'x;"=1', "x\n=1", "x\n\n-1;", "x;\n+1", ";=1"]
)
def test_a_cell_that_could_run_where_a_semicolon_separates_gets_an_apostrophe(text: str) -> None:
    """As where the comma is the decimal separator: quotes do not hold there, as they do not begin the cell."""
    line = csv_line(["before", text])
    cells = [cell for row in csv.reader(io.StringIO(line, newline=""), delimiter=";") for cell in row]
    assert [cell for cell in cells if cell.lstrip(' "').startswith(("=", "+", "-", "@", "＝", "\\u"))] == []
    [[_, whole]] = csv.reader(io.StringIO(line, newline=""))
    assert whole.replace("'", "").replace("\\u{200b}", "\u200b") == text


@pytest.mark.parametrize(
    "text", ["", " ", "a=b", "1", '"quoted"', "x -y", "名前", "a\nb", "(=1)", "a;b", "a;\n\nb", "x=1; y"]
)
def test_an_ordinary_cell_stays(text: str) -> None:
    assert list(csv.reader(io.StringIO(csv_line([text, "x"]), newline=""))) == [[text, "x"]]


def test_a_cell_of_csv_may_be_anything_that_a_row_holds() -> None:
    cells = [None, -5, True, ["a", "b"], [1], {"a": 1}]
    assert csv_line(cells) == ',-5,true,"a, b",[1],"{""a"":1}"\r\n'


@pytest.mark.parametrize(
    "text",
    [
        *("[a](http://x)", "![a](b)", "<img src=x>", "`code`", "| a | b |", "# h", "*b*", "~~s~~", "@someone", "&lt;"),
        *("https://evil.example", "www.evil.example", "$x$", "_i_", "{x}", "a\n\n# h"),
    ],
)
def test_markdown_makes_nothing_of_it(text: str) -> None:
    shown = markdown(text)
    for sign in "[]<>`|#*~@&$_{}!":
        assert shown.count(sign) == shown.count(f"\\{sign}"), shown
    assert "\n" not in shown
    assert "://" not in shown.replace("\\:", "")
    assert "www." not in shown


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
        # Look-alikes, where Latin is what a reader takes them for; a text in another script is left alone.
        ("p\u0430ypal", "p⟦U+0430 CYRILLIC SMALL LETTER A⟧ypal"),
        (
            "run \u0435\u0445\u0435",
            "run ⟦U+0435 CYRILLIC SMALL LETTER IE⟧⟦U+0445 CYRILLIC SMALL LETTER HA⟧⟦U+0435 CYRILLIC SMALL LETTER IE⟧",
        ),
        ("\uff45val", "⟦U+FF45 FULLWIDTH LATIN SMALL LETTER E⟧val"),
        ("\U0001d41eval", "⟦U+1D41E MATHEMATICAL BOLD SMALL E⟧val"),
        ("Читает файл со страницы", "Читает файл со страницы"),
    ],
)
def test_what_is_hidden_or_looks_alike_is_marked(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_no_text_can_hold_a_mark_of_ours() -> None:
    """The brackets of marks are marked themselves."""
    assert shown("⟦+x+⟧") == (
        "⟦U+27E6 MATHEMATICAL LEFT WHITE SQUARE BRACKET⟧+x+⟦U+27E7 MATHEMATICAL RIGHT WHITE SQUARE BRACKET⟧"
    )


def test_lines_can_be_kept() -> None:
    assert spans_of("a\nb", "come", keep_lines=True) == [
        LineSpan("a", "come"),
        LineSpan("⏎\n", "mark"),
        LineSpan("b", "come"),
    ]


def test_every_control_character_is_unseen() -> None:
    assert all(is_unseen(chr(code)) for code in (*range(0x20), *range(0x7F, 0xA1)))
    assert not is_unseen(" ")


@pytest.mark.parametrize(("count", "text"), [(0, "0 calls"), (1, "1 call"), (2, "2 calls"), (1_000, "1,000 calls")])
def test_a_noun_agrees_with_its_count(count: int, text: str) -> None:
    assert counted(count, "call") == text
