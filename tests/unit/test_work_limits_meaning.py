"""What a comparison by meaning may cost: the worst inputs known, in units of work."""

from __future__ import annotations

import pytest

from assay_stream.core.limits import DEFAULT_LIMITS
from assay_stream.core.meaning import compare_definitions
from assay_stream.core.severity import PROFILES, Level, assess
from assay_stream.core.work import Work, WorkExhaustedError

RECORD = DEFAULT_LIMITS.work_units_max
DEFINITION = DEFAULT_LIMITS.definition_work_units_max


def test_a_record_without_budget_compares_nothing() -> None:
    """The owner of the budget learns of it, and nothing is left."""
    work = Work(1)
    with pytest.raises(WorkExhaustedError):
        compare_definitions({"name": "a" * 1_000}, {"name": "b" * 1_000}, work)
    assert work.is_exhausted


def test_equal_definitions_cost_something_too() -> None:
    """Whoever keeps an answer keeps a price that is not zero."""
    work = Work(RECORD)
    assert compare_definitions({"name": "a"}, {"name": "a"}, work) == []
    assert work.spent > 0


@pytest.mark.parametrize("path", ["$", "$.inputSchema", "$.outputSchema"])
def test_what_was_not_compared_is_high(path: str) -> None:
    """Also in an output schema, where other changes count little."""
    change = compare_definitions({"name": "t"}, {"name": "t", **{f"x{i}": i for i in range(1_100)}})[-1]
    assert change.code == "comparison_cut_short"
    assert assess(PROFILES["soc"], "tool_changed", [change._replace(path=path)]) is Level.HIGH
