"""What a comparison by meaning may cost: the worst inputs known, in units of work."""

from typing import Any

import pytest

from assay_stream.drift import compare_definitions
from assay_stream.drift.severity import PROFILES, Level, assess
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.work import Work, WorkExhaustedError
from tests.support.hostile import PAIRS
from tests.support.peaks import hostile_definitions, taken

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


# --- the worst definitions known ------------------------------------------------------------------------------

MEMORY_MAX_MB = 128
"""What a comparison may take beside the definitions, half of what a record may."""


@pytest.mark.parametrize("size", [119_000, pytest.param(2_000_000, marks=pytest.mark.tier(name="adversary"))])
@pytest.mark.parametrize("name", PAIRS)
def test_a_hostile_definition_stays_within_its_part(name: str, size: int) -> None:
    """Whatever is sent costs no more than one definition may, and where that is not enough the changes say so."""
    before, after = hostile_definitions(name, size)
    work = Work(RECORD)
    changes = compare_definitions(before, after, work)
    assert 0 < work.spent <= DEFINITION
    assert changes
    assert work.spent < DEFINITION or changes[-1].code == "comparison_cut_short"


@pytest.mark.tier(name="adversary")
def test_hostile_definitions_take_no_more_memory_than_their_part() -> None:
    """No structure is larger than a constant times the definition, and no path is built without being reported."""
    found = taken("comparison", *PAIRS)
    assert found.keys() == PAIRS.keys()
    assert {name: each for name, each in found.items() if each.peak_mb >= MEMORY_MAX_MB} == {}


@pytest.mark.parametrize("name", PAIRS)
def test_what_a_comparison_costs_follows_from_the_definitions_alone(name: str) -> None:
    """The same definitions with their members in another order cost the same and find the same."""
    before, after = hostile_definitions(name, 20_000)
    one, other = Work(RECORD), Work(RECORD)
    found = compare_definitions(before, after, one)
    assert found == compare_definitions(_turned(before), _turned(after), other)
    assert one.spent == other.spent


def _turned(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _turned(value[name]) for name in reversed(value)}
    return [_turned(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", ["deep_leaf", "nested_alternatives", "true_and_one", "short_words", "fractions"])
def test_twice_the_input_costs_about_twice_the_work(name: str) -> None:
    """What was quadratic before grows with the input."""
    spent = []
    for size in (20_000, 40_000):
        work = Work(RECORD)
        compare_definitions(*hostile_definitions(name, size), work)
        spent.append(work.spent)
    assert spent[1] < 2.5 * spent[0]


def test_a_text_change_is_found_beside_a_hostile_field() -> None:
    """Fields that have a meaning are compared before those that no standard names."""
    before, after = hostile_definitions("containers", 2_000_000)
    junk = [{"junk": side["inputSchema"]} for side in (before, after)]
    changes = compare_definitions(junk[0] | {"description": "Reads"}, junk[1] | {"description": "Reads all"})
    assert [change.code for change in changes] == ["description_words_added", "comparison_cut_short"]


def test_a_long_path_is_cut_and_stays_distinct() -> None:
    """Long names do not make each change as long as the schema."""
    changes = compare_definitions(*hostile_definitions("long_names_above_a_list", 20_000))
    paths = {change.path for change in changes}
    assert len(paths) == len(changes) > 1
    assert max(map(len, paths)) < DEFAULT_LIMITS.path_chars_max + 100


# --- honest definitions ---------------------------------------------------------------------------------------


def test_an_honest_gateway_is_compared_in_full() -> None:
    """Two thousand tools of 1 KB, all of them changed, stay within the budget of one record."""
    work = Work(RECORD)
    for number in range(2_000):
        before, after = _honest(number, "Reads"), _honest(number, "Writes")
        assert all(change.code != "comparison_cut_short" for change in compare_definitions(before, after, work))
    assert not work.is_exhausted


def _honest(number: int, verb: str) -> dict[str, Any]:
    text = f"{verb} the entries of page {number} of the index, and returns them in the order in which they stand."
    properties = {f"parameter_{index}": {"type": "string", "description": text} for index in range(5)}
    return {
        "name": f"tool_{number}",
        "description": f"{text} {text}",
        "inputSchema": {"type": "object", "properties": properties, "required": ["parameter_1"]},
    }
