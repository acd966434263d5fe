"""What a client was told about tools."""

from __future__ import annotations

import pytest

from assay_stream.observe import offered
from assay_stream.observe.offered import Offered


def test_the_last_list_that_has_a_name_counts() -> None:
    """Lists without it say nothing of it."""
    told = Offered()
    told.take([{"name": "a", "x": 1}, {"name": "b"}])
    told.take([{"name": "a", "x": 2}])
    told.take([])
    assert told.of("a") == ({"name": "a", "x": 2},)
    assert told.of("b") == ({"name": "b"},)
    assert told.of("c") == ()


def test_all_definitions_of_one_list_are_kept() -> None:
    """In its order."""
    told = Offered()
    told.take([{"name": "a", "x": 1}, {"name": "b"}, {"name": "a", "x": 2}])
    assert told.of("a") == ({"name": "a", "x": 1}, {"name": "a", "x": 2})


def test_what_is_no_tool_is_passed_over() -> None:
    """No client can call it."""
    told = Offered()
    told.take([None, 1, "a", [], {}, {"name": 1}, {"name": ["a"]}, {"name": ""}])
    assert told.of("") == ({"name": ""},)


def test_a_doubt_ends_only_by_a_list_asked_for_after_it() -> None:
    """One asked for before may hide what the doubt is about."""
    told = Offered()
    assert not told.in_doubt
    before = told.doubts
    told.doubt()
    told.settle(before)
    assert told.in_doubt
    told.settle(told.doubts)
    assert not told.in_doubt
    told.settle(before)
    assert not told.in_doubt


def test_names_are_bounded_and_the_one_told_longest_ago_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name told again is young."""
    monkeypatch.setattr(offered, "NAMES_MAX", 2)
    told = Offered()
    told.take([{"name": "a"}, {"name": "b"}])
    told.take([{"name": "a"}])
    told.take([{"name": "c"}])
    assert [bool(told.of(name)) for name in "abc"] == [True, False, True]
