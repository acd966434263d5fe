"""What a list costs does not grow with what others have shown: neither with observers nor with history."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from assay_stream import engine
from assay_stream.engine import EngineState
from assay_stream.limits.core import Limits
from assay_stream.model.record import Record
from tests.acceptance.test_cut_short import a_list, a_state, some_tools


def calls_of(state: EngineState, record: Record) -> int:
    """How many functions a record takes: a count that no machine's speed changes."""
    calls = 0

    def count(_frame: FrameType, event: str, _arg: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        engine.process(state, record)
    finally:
        sys.setprofile(before)
    return calls


def upgraded(observers: int) -> list[Record]:
    lists = [a_list(number, some_tools(3, 0), observer=f"o{number}") for number in range(observers)]
    return lists + [
        a_list(observers + number, some_tools(3, 1), observer=f"o{number}") for number in range(observers // 2)
    ]


def own_versions(observers: int) -> list[Record]:
    return [a_list(number, some_tools(3, number), observer=f"o{number}") for number in range(observers)]


def the_next(records: list[Record]) -> list[Record]:
    number = len(records)
    return [
        a_list(number, some_tools(3, 0), observer="o1"),
        a_list(number + 1, some_tools(3, 1), observer="o1"),
        a_list(number + 2, some_tools(3, 1), observer="newcomer"),
        a_list(number + 3, some_tools(2, 5_000), observer="o1"),
        a_list(1, some_tools(1, 6_000), observer="o2")._replace(origin=records[0].origin._replace(offset=number + 4)),
    ]


@pytest.mark.parametrize("fleet", [upgraded, own_versions])
def test_a_list_costs_the_same_in_a_fleet_of_any_size(fleet: Callable[[int], list[Record]]) -> None:
    costs = []
    for observers in (40, 400):
        state = a_state(Limits())
        records = fleet(observers)
        for record in records:
            engine.process(state, record)
        costs.append([calls_of(state, record) for record in the_next(records)])
    for small, large in zip(*costs, strict=True):
        assert large < 2 * small, costs
