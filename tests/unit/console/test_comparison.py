"""Two definitions in two columns."""

from hypothesis import given, strategies as st

from assay_stream.console.pages import side_by_side
from assay_stream.drift.definition import definition_diff


def test_each_column_has_its_own_words() -> None:
    """What went stands on the left only, what came on the right only, and the rest in both."""
    (place,) = side_by_side(definition_diff({"description": "Reads one file"}, {"description": "Reads every file"}))
    assert place.path == "$.description"
    assert [(piece.op, piece.text) for piece in place.before] == [
        ("same", "Reads "),
        ("gone", "one "),
        ("same", "file"),
    ]
    assert [(piece.op, piece.text) for piece in place.after] == [
        ("same", "Reads "),
        ("come", "every "),
        ("same", "file"),
    ]


def test_what_is_in_one_version_only_leaves_the_other_column_empty() -> None:
    (place,) = side_by_side(definition_diff({"name": "a"}, {"name": "a", "title": "New"}))
    assert (place.before, [piece.text for piece in place.after]) == ((), ["New"])


@given(st.text(max_size=60), st.text(max_size=60))
def test_a_column_is_the_text_of_its_version(was: str, now: str) -> None:
    """Short texts are shown whole, whatever is in them."""
    for place in side_by_side(definition_diff({"title": was}, {"title": now})):
        assert "".join(piece.text for piece in place.before) == was
        assert "".join(piece.text for piece in place.after) == now
