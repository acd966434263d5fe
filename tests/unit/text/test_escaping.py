"""Text of strangers, made inert for each kind of output."""

from __future__ import annotations

import csv
import io
import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_stream.text.escaping import csv_line, is_unseen, json_bytes, json_text, markdown, visible

IGNORABLE = [
    *(0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0x200B, 0x2010)),
    *(*range(0x202A, 0x202F), *range(0x2060, 0x2070), 0x3164, *range(0xFE00, 0xFE10), 0xFEFF, 0xFFA0),
    *(*range(0xFFF0, 0xFFF9), *range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B), *range(0xE0000, 0xE1000)),
]
"""Default_Ignorable_Code_Point of Unicode (DerivedCoreProperties)."""


@pytest.mark.parametrize("escaped", [visible, lambda text: json_text(json.dumps(text, ensure_ascii=False))])
def test_nothing_unseen_is_left(escaped: object) -> None:
    assert callable(escaped)
    for code in (*range(0x20000), *IGNORABLE, *range(0xE0000, 0xE0200), 0x10FFFF):
        character = chr(code)
        unsafe = unicodedata.category(character) in ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp") or code in IGNORABLE
        if unsafe:
            assert escaped(character).isascii(), hex(code)
            assert escaped(character).isprintable(), hex(code)


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


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_bytes_and_text_of_json_agree(text: str) -> None:
    raw = json.dumps(text, ensure_ascii=False)
    assert json_bytes(raw.encode()).decode() == json_text(raw)


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


@pytest.mark.parametrize("text", ["", " ", "a=b", "1", '"quoted"', "x -y", "名前", "a\nb", "(=1)"])
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
