"""A policy tried out before it is set."""

from typing import Any

import pytest

from assay_stream.bindings.controls import VerdictTable
from assay_stream.registry.step import verdict_key, verdicts_of
from assay_stream.report.pins import PolicyPlan, planned_policy
from assay_stream.schemes.hangar import Action
from tests.support import facts
from tests.support.facts import SERVER
from tests.support.operators import US, a_state

NOW_US = 100 * US


def a_plan(enforcement: str | None = "block", unknown: str | None = "block", tool: str | None = None) -> PolicyPlan:
    planned = planned_policy(server_id=SERVER, tool_name=tool, enforcement=enforcement, unknown=unknown, now_us=NOW_US)
    return PolicyPlan(planned=planned, server=a_state().servers[SERVER])


def a_call(tool: str, definition: str | None, *, decision: str = "allow") -> tuple[str, str | None, str, int]:
    return tool, None if definition is None else f"full:{definition}", decision, 1


def by_tool(plan: PolicyPlan) -> dict[str | None, dict[str, Any]]:
    return {row["tool_name"]: row for row in plan.rows()}


def test_tools_that_would_be_refused_come_first_and_say_why() -> None:
    rows = a_plan().rows()
    assert [(row["tool_name"], row["comparison"], row["now"], row["planned"]) for row in rows] == [
        ("gone", "unobserved", "allow", "block"),
        ("same", "unpinned", "allow", "block"),
        ("t", "mismatch", "allow", "allow"),
    ]


def test_a_plan_for_one_tool_is_about_that_tool() -> None:
    [row] = a_plan(tool="t").rows()
    assert (row["tool_name"], row["now"], row["planned"]) == ("t", "allow", "block")
    assert row["expected"].startswith("sha256:")


def test_calls_are_ruled_on_by_the_definition_they_used() -> None:
    plan = a_plan("block", "allow_degraded", "t")
    for definition in ("one", "one", "two"):
        plan.take(*a_call("t", definition))
    [row] = plan.rows()
    assert (row["calls"], row["refused"], row["denied"]) == (3, 1, 0)


def test_a_call_without_a_definition_is_under_the_tool_s_verdict() -> None:
    """As a proxy rules that has not passed a list yet."""
    plan = a_plan(tool="t")
    plan.take(*a_call("t", None))
    assert by_tool(plan)["t"]["refused"] == 1


def test_calls_of_other_tools_than_the_plan_s_do_not_count() -> None:
    plan = a_plan(tool="same")
    plan.take(*a_call("same", "same"))
    plan.take(*a_call("t", "one"))
    assert [(row["tool_name"], row["calls"]) for row in plan.rows()] == [("same", 1)]


def test_what_was_denied_already_is_told_apart() -> None:
    plan = a_plan()
    plan.take(*a_call("same", "same", decision="deny"))
    plan.take(*a_call("same", "same"))
    row = by_tool(plan)["same"]
    assert (row["calls"], row["refused"], row["denied"]) == (2, 2, 1)


def test_made_up_names_share_one_row() -> None:
    plan = a_plan()
    for number in range(1_000):
        plan.take(*a_call(f"made-up-{number}", None))
    assert by_tool(plan)[None]["refused"] == 1_000
    assert len(plan.rows()) == 4


def test_a_plan_for_a_tool_that_nobody_knows_says_so() -> None:
    """A slip of the pen must not read as a policy that refuses nothing; its calls are under that policy, too."""
    plan = a_plan("block", "block", "tt")
    plan.take(*a_call("tt", None))
    [row] = plan.rows()
    assert (row["tool_name"], row["planned"], row["calls"], row["refused"]) == ("tt", "block", 1, 1)
    assert not plan.knows_tool
    assert a_plan(tool="gone").knows_tool
    assert a_plan().knows_tool


def test_to_take_a_policy_back_can_be_tried_out_too() -> None:
    [row] = a_plan(None, None, "t").rows()
    assert (row["planned"], row["comparison"]) == ("warn", "mismatch")


@pytest.mark.parametrize("enforcement", ["audit", "warn", "block"])
@pytest.mark.parametrize("unknown", ["allow_degraded", "warn", "block"])
@pytest.mark.parametrize("tool", [None, "t", "same", "gone"])
def test_a_plan_says_what_proxies_do_once_the_policy_is_set(enforcement: str, unknown: str, tool: str | None) -> None:
    plan, after = a_plan(enforcement, unknown, tool), a_state()
    after.apply(facts.a_policy(enforcement, unknown, time_us=NOW_US, offset=99, tool_name=tool))
    table = VerdictTable()
    for name, value in verdicts_of(SERVER, after.servers[SERVER]).items():
        table.apply(verdict_key(SERVER, name), value)
    for name, row in by_tool(plan).items():
        assert row["planned"] == table.rule(SERVER, name or "", None).action.value
    for name, definition in (("t", "one"), ("t", "two"), ("same", "same"), ("gone", None)):
        if tool in (None, name):
            before = by_tool(plan)[name]["refused"]
            plan.take(*a_call(name, definition))
            found = None if definition is None else after.servers[SERVER].tools[True, f"full:{definition}"]
            expected = table.rule(SERVER, name, found).action is Action.BLOCK
            assert by_tool(plan)[name]["refused"] - before == expected
