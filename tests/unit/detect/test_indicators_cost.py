"""What the search of a definition costs: counted units and memory, with the worst text known for each class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from assay_stream.detect import NO_TOOLS, ToolNames, detect_indicators
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.work import UNLIMITED, Work
from tests.support.counting import allocating, counted_calls
from tests.support.hostile_texts import WORST, repeated
from tests.support.peaks import SHORT_TEXTS, deep_texts, taken

NAMES = ["get_user", "search", *("_".join("a" * length) for length in range(1, 40))]
UNITS_PER_BYTE_MAX = 160
MEMORY_PER_BYTE_MAX = 400


def units(definition: Mapping[str, Any], tool_names: ToolNames = NO_TOOLS) -> int:
    work = Work(UNLIMITED)
    detect_indicators(None, definition, tool_names=tool_names, work=work)
    return work.spent


@pytest.mark.parametrize("part", WORST.values(), ids=WORST.keys())
def test_cost_is_linear_whatever_the_text(part: str) -> None:
    names = ToolNames(NAMES, Work(UNLIMITED))
    once, twice = (units({"name": "t", "description": repeated(part, size)}, names) for size in (4_000, 8_000))
    assert twice < 2.4 * once
    assert twice < UNITS_PER_BYTE_MAX * 8_000


@pytest.mark.parametrize("part", WORST.values(), ids=WORST.keys())
def test_memory_is_linear_whatever_the_text(part: str) -> None:
    definition = {"name": "t", "description": repeated(part, 8_000)}
    detect_indicators(None, definition, work=Work(UNLIMITED))
    with allocating() as allocated:
        detect_indicators(None, definition, work=Work(UNLIMITED))
    assert allocated.peak_bytes < MEMORY_PER_BYTE_MAX * 8_000 + 500_000


def test_parameters_that_are_looked_for_beside_each_other_cost_in_proportion() -> None:
    """A hidden copy is expected beside a copy, so each name is held against all of them."""

    def calls(count: int) -> int:
        properties = {f"a{index}_bcc": {"type": "string"} for index in range(count)}
        definition = {"name": "t", "inputSchema": {"properties": properties}}
        return counted_calls(lambda: detect_indicators(None, definition, work=Work(UNLIMITED)))

    calls(1)  # makes what searches need
    few, many = calls(400), calls(800)
    assert many < 2.4 * few


@pytest.mark.parametrize("name", SHORT_TEXTS)
def test_many_short_texts_cost_a_share_and_no_more(name: str) -> None:
    work = Work(UNLIMITED)
    found = detect_indicators(None, deep_texts(name), work=work)
    assert work.spent <= DEFAULT_LIMITS.definition_work_units_max
    assert len(found) <= DEFAULT_LIMITS.indicators_max + 1
    assert all(len(indicator.path) <= DEFAULT_LIMITS.path_chars_max for indicator in found)


@pytest.mark.tier(name="adversary")
def test_many_short_texts_take_bounded_memory() -> None:
    found = taken("texts", *SHORT_TEXTS)
    assert found.keys() == SHORT_TEXTS.keys()
    assert {name: each for name, each in found.items() if each.peak_mb >= 64} == {}
