"""Laws of the comparison word by word."""

from hypothesis import given, strategies as st

from assay_stream.text.escaping import is_unseen, shown
from assay_stream.text.word_diff import word_diff
from assay_stream.text.words import _prototypes, skeleton, uts39_skeleton
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


CONFUSABLE = st.sampled_from(sorted(map(chr, _prototypes())))
NAMES = st.lists(st.characters(exclude_categories=["Cs"]) | CONFUSABLE | st.sampled_from("read_file-m1"), max_size=20)


@given(NAMES.map("".join))
def test_what_uts39_calls_confusable_looks_alike(name: str) -> None:
    """A name and any name with the same skeleton of UTS #39 have one skeleton here."""
    drawn = uts39_skeleton(name)
    if uts39_skeleton(drawn) == drawn:
        assert skeleton(drawn) == skeleton(name)


@given(st.lists(CONFUSABLE, min_size=1, max_size=12), st.data())
def test_confusable_characters_may_be_exchanged(chars: list[str], data: st.DataObject) -> None:
    table = _prototypes()
    replaced = [
        uts39_skeleton(char) if data.draw(st.booleans()) and uts39_skeleton(char) == table[ord(char)] else char
        for char in chars
    ]
    if uts39_skeleton("".join(chars)) == uts39_skeleton("".join(replaced)):
        assert skeleton("".join(chars)) == skeleton("".join(replaced))
