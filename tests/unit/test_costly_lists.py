"""The search for costly lists: what it measures, and that it finds what is known to cost."""

from __future__ import annotations

import json
from pathlib import Path

import orjson

from tests.fuzz.cost import Objective, grown, measure, report, search, starts

PLAIN = ([{"name": "t", "description": "Adds two numbers."}], [{"name": "t", "description": "Adds numbers."}])


def test_a_list_that_is_the_same_draws_on_no_budget() -> None:
    """Only what is new is analysed."""
    assert measure((PLAIN[0], PLAIN[0])).units == 0
    assert measure(PLAIN).units > 0


def test_memory_is_measured_where_it_is_asked_for() -> None:
    """Tracing costs time, so that the other searches go without."""
    assert measure(PLAIN).peak_bytes == 0
    assert measure(PLAIN, memory=True).peak_bytes > 0


def test_a_pair_is_grown_to_the_size_that_is_asked_for() -> None:
    """Of the same tools under other names."""
    before, after = grown(PLAIN, 100_000)
    assert len(before) == len(after) == len({tool["name"] for tool in after})
    assert 90_000 < len(orjson.dumps(after)) < 150_000


def test_what_is_found_costs_no_less_than_where_the_search_began() -> None:
    """It keeps the best, and repeats with its seed until time is up."""
    pairs = list(starts())[:6]
    best = max(measure(pair).per_byte(Objective.UNITS) for pair in pairs if measure(pair).input_bytes > 4_096)
    _, cost = search(1.0, 1, Objective.UNITS, pairs)
    assert cost.per_byte(Objective.UNITS) >= best


def test_what_is_found_is_kept_to_be_tested(tmp_path: Path) -> None:
    """One pair for each objective, as JSON."""
    lines = list(report(tmp_path, 1.5, 1))
    assert [line.split(":")[0] for line in lines] == [objective.value for objective in Objective]
    for objective in Objective:
        before, after = json.loads((tmp_path / f"{objective}.json").read_text())
        assert measure((before, after)).input_bytes > 0
