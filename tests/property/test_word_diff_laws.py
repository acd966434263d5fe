"""Laws of the comparison word by word."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from assay_stream.text.escaping import is_unseen, shown
from assay_stream.text.word_diff import word_diff
from assay_stream.work import UNLIMITED, Work

TEXTS = st.one_of(st.text(max_size=60), st.text(alphabet="ab. \n字", max_size=60))


@given(TEXTS, TEXTS)
def test_both_texts_can_be_read_off(before: str, after: str) -> None:
    pieces = word_diff(before, after, Work(UNLIMITED))
    assert "".join(piece.text for piece in pieces if piece.op != "come") == before
    assert "".join(piece.text for piece in pieces if piece.op != "gone") == after


@given(TEXTS)
def test_a_text_is_the_same_as_itself(text: str) -> None:
    assert all(piece.op == "same" for piece in word_diff(text, text, Work(UNLIMITED)))


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_nothing_unseen_reaches_a_terminal(text: str) -> None:
    assert not any(is_unseen(character) for character in shown(text))
