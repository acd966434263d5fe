"""``assay-stream policy plan``, over recorded observations and over a given state."""

import json
from functools import partial
from pathlib import Path

import pytest

from tests.support.command import error_code, invoke, rows_of
from tests.support.controls import a_control
from tests.support.events import SERVER, TOOL, a_call, a_snapshot

run = partial(invoke, "policy", "plan", "--server-id", SERVER)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "o.ndjson"
    calls = [a_call(number=number, second=number) for number in (2, 3, 4)]
    lines = [a_snapshot(TOOL, second=1), *calls, a_call(number=5, second=5, tool_name="ghost")]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def test_a_plan_says_what_would_have_been_refused(recorded: Path) -> None:
    """Nothing is pinned yet, so that a policy which blocks the unknown refuses everything."""
    done = run("--enforcement", "block", "--unknown", "block", "--input", recorded)
    assert done.exit_code == 0, done.output
    assert "would refuse 1 of 1 tool, and 4 of 4 calls in the input" in done.stderr, "a made-up name is no tool"
    assert "1970" not in done.stderr
    assert f"assay-stream pins approve --server-id={SERVER} --tool={TOOL['name']} --reason reviewed" in done.stderr
    assert f"policy set --server-id={SERVER} --enforcement block --unknown block --reason reviewed" in done.stderr
    counted = rows_of(run("--enforcement", "block", "--unknown", "block", "--input", recorded, "--json"))
    assert sum(row["refused"] for row in counted) == 4
    assert {row["tool_name"]: row["refused"] for row in counted}[None] == 1


def test_without_pins_a_policy_for_mismatches_refuses_nothing(recorded: Path) -> None:
    """What has no pin is let through by default."""
    counted = rows_of(run("--enforcement", "block", "--input", recorded, "--json"))
    assert sum(row["refused"] for row in counted) == 0
    assert {row["planned"] for row in counted} == {"allow"}


def test_calls_count_since_a_time(recorded: Path) -> None:
    since = json.loads(a_call(number=4, second=4))["time"]
    arguments = ("--enforcement", "block", "--unknown", "block", "--input", recorded, "--json")
    assert sum(row["calls"] for row in rows_of(run(*arguments, "--since", since))) == 2


def test_taking_a_policy_back_is_tried_out_too(recorded: Path) -> None:
    """Before, everything was refused; without the policy nothing is."""
    with recorded.open("ab") as file:
        file.write(a_control("policy.set", number=9, second=6, enforcement="block", unknown="block") + b"\n")
    [row, *_] = rows_of(run("--remove", "--input", recorded, "--json"))
    assert (row["now"], row["planned"]) == ("block", "allow")


def test_a_server_that_nobody_knows_is_an_error(recorded: Path) -> None:
    """Rather than a plan that refuses nothing."""
    done = invoke("policy", "plan", "--server-id", "typo", "--enforcement", "block", "--input", str(recorded))
    assert error_code(done) == "server_not_known"


def test_a_tool_that_nobody_knows_is_pointed_out(recorded: Path) -> None:
    done = run("--enforcement", "block", "--tool", f"{TOOL['name']}x", "--input", recorded)
    assert done.exit_code == 0, done.output
    assert "check --tool" in done.stderr
    assert "check --tool" not in run("--enforcement", "block", "--tool", TOOL["name"], "--input", recorded).stderr


def test_a_plan_does_not_suggest_to_approve_what_differs(recorded: Path) -> None:
    """What was approved is something else, and comes first: by a command that reads the same input."""
    value = "sha256:" + "0" * 64
    pin = a_control("pin.set", server_id=SERVER, tool_name=TOOL["name"], scheme="assay.v1", value=value)
    recorded.write_bytes(pin + b"\n" + recorded.read_bytes())
    done = run("--enforcement", "block", "--input", recorded)
    assert done.exit_code == 0, done.output
    assert "pins approve" not in done.stderr
    assert "1 tool of these; see first" in done.stderr
    assert f"assay-stream pins diff --server-id={SERVER} --input={recorded}" in done.stderr
    store = recorded.parent / "store"
    invoke("store", "load", "--store", str(store), str(recorded))
    assert f"pins diff --server-id={SERVER} --store={store}" in run("--enforcement", "block", "--store", store).stderr


def test_the_commands_of_a_plan_are_ready_for_a_shell(recorded: Path) -> None:
    """Names are quoted, and of many tools the rest is counted."""
    tools = [{**TOOL, "name": f"tool {number}; ls"} for number in range(7)]
    recorded.write_bytes(a_snapshot(*tools, second=1) + b"\n")
    done = run("--enforcement", "block", "--unknown", "block", "--input", recorded)
    assert "'--tool=tool 0; ls'" in done.stderr
    assert done.stderr.count("pins approve") == 5
    assert "2 more tools" in done.stderr
    assert "would refuse 7 of 7 tools, and 0 of 0 calls in the input" in done.stderr


def test_a_plan_for_one_tool_sets_the_policy_of_that_tool(recorded: Path) -> None:
    """As it was asked for; taking a policy back has its own command."""
    name = TOOL["name"]
    done = run("--enforcement", "warn", "--tool", name, "--input", recorded)
    assert f"policy set --server-id={SERVER} --tool={name} --enforcement warn --unknown allow_degraded" in done.stderr
    assert (
        f"policy remove --server-id={SERVER} --tool={name}"
        in run("--remove", "--tool", name, "--input", recorded).stderr
    )
