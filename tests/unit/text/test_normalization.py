"""What normalisation costs."""

from __future__ import annotations

import unicodedata

import pytest

from assay_stream.text.words import as_read, units_to_normalize, without_long_runs

MARKS = "\u0f73"
"""Sorted by insertion, and two marks once it is decomposed."""


def test_ascii_costs_least() -> None:
    assert units_to_normalize("a" * 1_000) < units_to_normalize("é" * 1_000)


@pytest.mark.parametrize("text", ["\ufdfa" * 100, MARKS * 500], ids=["expanding", "marks"])
def test_what_expands_or_is_sorted_costs_more(text: str) -> None:
    assert units_to_normalize(text) > 10 * units_to_normalize("é" * len(text))


def test_the_cost_of_a_run_grows_with_its_square() -> None:
    assert units_to_normalize(MARKS * 2_000) > 3.9 * units_to_normalize(MARKS * 1_000)


def test_a_run_of_marks_ends_where_stream_safe_text_ends_it() -> None:
    assert without_long_runs("a" + MARKS * 40 + "b") == "a" + MARKS * 30 + "b"
    assert without_long_runs("n\u0303o" * 100) == "n\u0303o" * 100


def test_a_text_of_marks_alone_is_made_visible_at_once() -> None:
    """A megabyte of marks would take hours to sort; no mark is left of it."""
    assert as_read("a" + MARKS * 300_000 + "b") == "ab"
    assert as_read("a" + MARKS * 20 + "b") == as_read(unicodedata.normalize("NFD", "ab"))
