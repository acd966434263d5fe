"""Two definitions place by place."""

import tracemalloc
from typing import Any

import pytest

from assay_stream.drift.definition import DefinitionDiff, definition_diff
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.text.word_diff import Piece
from assay_stream.work import Work

BEFORE: dict[str, Any] = {
    "name": "read",
    "description": "Reads a file.",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string", "enum": ["a", "b"]}}},
}


def told(diff: DefinitionDiff) -> list[tuple[str, str]]:
    return [(place.path, place.what) for place in diff.places]


def test_places_stand_in_the_order_in_which_they_matter() -> None:
    after = {
        **BEFORE,
        "zeta": 1,
        "title": "Read",
        "description": "Reads any file.",
        "annotations": {"readOnlyHint": True},
        "inputSchema": {"type": "object", "properties": {"path": {"type": "string", "enum": ["a"]}}},
    }
    diff = definition_diff(BEFORE, after)
    assert told(diff) == [
        ("$.title", "added"),
        ("$.description", "changed"),
        ("$.annotations.readOnlyHint", "added"),
        ("$.inputSchema.properties.path.enum", "changed"),
        ("$.zeta", "added"),
    ]
    assert diff.same == 3
    assert diff.places[3].pieces == (Piece("gone", '["a", "b"]'), Piece("come", '["a"]'))


def test_a_text_and_a_number_are_told_apart() -> None:
    [place] = definition_diff({"x": "1"}, {"x": 1}).places
    assert place.pieces == (Piece("gone", '"1"'), Piece("come", "1"))


def test_of_one_definition_alone_all_came_or_went() -> None:
    assert set(told(definition_diff(None, {"name": "x", "empty": ""}))) == {("$.name", "added"), ("$.empty", "added")}
    assert told(definition_diff({"name": "x"}, None)) == [("$.name", "removed")]


def test_many_places_are_counted_unless_all_are_asked_for() -> None:
    after = BEFORE | {"inputSchema": {f"p{number:04}": number for number in range(1_000)}}
    diff = definition_diff(BEFORE, after)
    assert (len(diff.places), diff.left_out) == (200, 803)
    assert definition_diff(BEFORE, after, full=True).left_out == 0


def test_a_hostile_definition_is_held_in_little_memory() -> None:
    """Only what is shown is written out: each of these paths has over a thousand characters."""
    schema: Any = [{} for _ in range(100_000)]
    for number in range(100):
        schema = {f"{number}{'k' * 100}": schema}
    after = {"name": "t", "description": "new", "inputSchema": schema}
    tracemalloc.start()
    try:
        found = definition_diff({"name": "t"}, after)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (found.places[0].path, len(found.places), found.left_out) == ("$.description", 200, 99_801)
    assert peak_bytes < 64 * 1024 * 1024


@pytest.mark.parametrize(("full", "most"), [(False, 200), (True, 10_000)])
def test_a_definition_of_short_fields_under_a_long_path_does_not_fill_a_page(full: bool, most: int) -> None:
    """300,000 of them took 9 s and 600 MB of paths where all of them were asked for."""
    before, after = ({"inputSchema": {"a" * 2_000: dict.fromkeys(map(str, range(15_000)), v)}} for v in ("a", "b"))
    diff = definition_diff(before, after, full=full)
    assert (len(diff.places), diff.left_out) == (most, 15_000 - most)


@pytest.mark.parametrize("full", [False, True])
def test_two_hundred_texts_that_differ_in_four_hundred_words_do_not_stall_a_console(full: bool) -> None:
    """What a definition may cost is spent on the first of them; the others are shown as replaced, and say so."""
    texts = {f"f{number:03}": [f"{number} {word % 40} " for word in range(1_500)] for number in range(200)}
    before = {name: "".join(words) for name, words in texts.items()}
    after = {
        name: "".join("x " if at % 8 == 0 else word for at, word in enumerate(words)) for name, words in texts.items()
    }
    work = Work(DEFAULT_LIMITS.definition_work_units_max)
    diff = definition_diff(before, after, full=full, work=work)
    notes = [
        any(piece == Piece("note", "too costly to compare word by word") for piece in place.pieces)
        for place in diff.places
    ]
    assert work.is_exhausted
    assert (len(notes), notes[0], notes[-1]) == (200, False, True)
    assert notes == sorted(notes)
    assert diff == definition_diff(before, after, full=full)


@pytest.mark.parametrize(("was", "is_marked"), [({"title": "A b."}, True), ({}, True), ({"title": 1}, False)])
def test_words_are_marked_in_a_text_that_was_a_text_or_was_not_there(was: dict[str, Any], is_marked: bool) -> None:
    diff = definition_diff({"name": "t"} | was, {"name": "t", "title": "A b, or c."}, words={"$.title": [(8, "c")]})
    [place] = diff.places
    assert [piece.text for piece in place.pieces if piece.is_marked] == ["c"] * is_marked
