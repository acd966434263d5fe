"""Laws of skeletons."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from assay_stream.text.words import _prototypes, skeleton, uts39_skeleton

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
