"""Templates print nothing that is not escaped and marked."""

from hypothesis import given, strategies as st

from assay_stream.console.rendering import Renderer, bare, marked, url, when
from assay_stream.text.escaping import is_unseen, shown
from tests.support.console import TEXTS, text_of


@given(st.text())
def test_no_text_becomes_markup_or_hides(text: str) -> None:
    """Whatever it is: no bracket of HTML, no quote, no character that is not seen."""
    printed = str(marked(text))
    outside = printed.replace('<span class="mark">', "").replace("</span>", "")
    assert not set(outside) & set("<>\"'")
    assert not any(map(is_unseen, printed))


def test_marks_are_those_of_the_command_line() -> None:
    for text in TEXTS:
        assert text_of(str(marked(text))).replace(" ", "") == shown(text).replace(" ", "")


def test_a_mark_cannot_be_forged() -> None:
    """Its brackets are marked where a text has them."""
    assert "MATHEMATICAL LEFT WHITE SQUARE BRACKET" in str(marked("⟦U+0041⟧"))


def test_expressions_are_escaped_though_no_filter_says_so() -> None:
    """By the environment: a new template cannot forget it."""
    shared = {"path": "", "version": "1", "session": None, "is_outside": False}
    page = Renderer().page("problem.html", {**shared, "code": None, "what": TEXTS[0], "advice": "a"})
    assert b"&lt;script&gt;" in page
    assert TEXTS[0].encode() not in page


def test_addresses_are_plain_ascii() -> None:
    """What is not given is left out, and a lone surrogate does not stop a page."""
    assert url("/tool", server="a/b&c", tool="\u202e", after=None) == "/tool?server=a%2Fb%26c&tool=%E2%80%AE"
    assert url("/tool", tool="\ud800").isascii()


def test_times_and_digests_are_short() -> None:
    """The whole of both is kept in the element."""
    assert str(when(None)) == "never"
    assert "2026-03-01 10:00:00Z" in str(when(1_772_359_200_000_000))
    assert bare("sha256:" + "ab" * 32) == "abababababab…"
