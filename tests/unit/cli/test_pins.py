"""``assay-stream pins`` over a given state."""

import getpass
import json
import os
import pty
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from assay_stream.alerts.view import AlertView, view_of
from assay_stream.bindings.state import Bindings
from assay_stream.cli import decisions
from assay_stream.model.kinds import Kind
from tests.support import facts
from tests.support.alerts import alert_of
from tests.support.command import error_code, invoke, run_command
from tests.support.operators import OTHER, US, a_state, v1

WHY = ("--reason", "reviewed", "--author", "ann")
HERE = ("--server-id", facts.SERVER)


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Bindings:
    """What the commands read instead of Kafka; there is one alert, ``uid-1``, about ``full:two``."""
    bindings = a_state()
    monkeypatch.setattr(decisions, "known_bindings", lambda *_: bindings)

    def alert(uid: str, bootstrap: object) -> AlertView:
        after = {"uid-1": "full:two", "uid-gone": None}[uid]
        kind = Kind.PIN_MISMATCH if after else Kind.TOOL_REMOVED
        return view_of(alert_of("t", kind=kind, server_id=facts.SERVER, before=None, after=after))

    def definitions(settings: object, digests: set[str]) -> dict[str, dict[str, Any]]:
        return {digest: {"name": "t", "description": f"{digest}\u202e"} for digest in digests}

    monkeypatch.setattr(decisions, "published_alert", alert)
    monkeypatch.setattr(decisions, "published_definitions", definitions)
    return bindings


run = partial(invoke, "pins")


def decided(path: Path) -> list[tuple[str, dict[str, Any]]]:
    events = [json.loads(line) for line in path.read_bytes().splitlines()]
    return [(event["type"].rpartition("control.")[2], event["data"]) for event in events]


def test_list_shows_a_table_or_objects(state: Bindings) -> None:
    table = run("list").stdout.splitlines()
    assert table[0].split() == ["server_id", "tool_name", "scheme", "state", "comparison", "author", "since", "value"]
    assert len(table) == 4
    rows = [json.loads(line) for line in run("list", "--json", "--tool", "gone").stdout.splitlines()]
    assert [row["value"] for row in rows] == [v1("gone")]


def test_a_name_of_a_server_cannot_steer_the_terminal(state: Bindings) -> None:
    state.apply(facts.a_pin(v1("x"), time_us=1, offset=90, tool_name="\x1b[2J\u202ename"))
    shown = run("list").stdout
    assert "⟦U+001B ESCAPE⟧[2J⟦U+202E" in shown
    assert "\x1b" not in shown


def test_nothing_to_show_is_said(state: Bindings) -> None:
    result = run("list", "--server-id", "other")
    assert result.exit_code == 0
    assert "nothing to show" in result.stderr


def test_history_shows_decisions_that_were_superseded_too(state: Bindings) -> None:
    assert [line.split()[1] for line in run("history", "--tool", "t").stdout.splitlines()[1:]] == [
        *("policy.set", "policy.set", "policy.set", "pin.set", "pin.set", "pin.reject", "key.accept", "key.revoke")
    ]


def test_an_alert_is_approved_by_its_uid(state: Bindings, tmp_path: Path) -> None:
    """Server, tool and definition are the finding's; the schemes are those of the pins there are."""
    result = run("approve", "--alert", "uid-1", *WHY, "--output", tmp_path / "o")
    assert result.exit_code == 0, result.output
    [(kind, data)] = decided(tmp_path / "o")
    assert kind == "pin.set"
    assert data == {
        "server_id": facts.SERVER,
        "tool_name": "t",
        "scheme": "assay.v1",
        "value": OTHER,
        "author": "ann",
        "reason": "reviewed",
    }
    assert f"approved: t on {facts.SERVER}, assay.v1 {OTHER}" in result.stderr
    assert "the worker closes the alerts that this resolves" in result.stderr


def test_a_definition_is_rejected_by_its_digest(state: Bindings, tmp_path: Path) -> None:
    run("reject", *HERE, "--tool", "t", "--digest", "full:two", *WHY, "--output", tmp_path / "o")
    assert [(kind, data["value"]) for kind, data in decided(tmp_path / "o")] == [("pin.reject", OTHER)]


def test_every_tool_is_approved_by_all(state: Bindings, tmp_path: Path) -> None:
    state.apply(facts.seen("proxy-2", 90 * US, "c1", offset=30))
    run("approve", *HERE, "--all", "--scheme", "assay.v1", *WHY, "--output", tmp_path / "o")
    values = [(data["tool_name"], data["value"]) for _, data in decided(tmp_path / "o")]
    assert values == [("same", v1("same")), ("t", v1("one"))]


def test_all_leaves_rejected_definitions_out(state: Bindings, tmp_path: Path) -> None:
    """Approving in bulk must not undo a rejection; by name it still can, and nothing left to approve is an error."""
    state.apply(facts.seen("proxy-2", 90 * US, "c1", offset=30))
    state.apply(facts.a_pin(v1("one"), time_us=91 * US, offset=31, act="reject"))
    result = run("approve", *HERE, "--all", "--scheme", "assay.v1", *WHY, "--output", tmp_path / "o")
    assert [data["tool_name"] for _, data in decided(tmp_path / "o")] == ["same"]
    assert "left out: t, its definition was rejected" in result.output
    run("approve", *HERE, "--tool", "t", "--scheme", "assay.v1", *WHY, "--output", tmp_path / "p")
    assert [data["tool_name"] for _, data in decided(tmp_path / "p")] == ["t"]
    state.apply(facts.a_pin(v1("same"), time_us=92 * US, offset=32, act="reject", tool_name="same"))
    assert error_code(run("approve", *HERE, "--all", *WHY)) == "bad_option"


def test_one_tool_that_cannot_be_decided_stops_all_and_is_named(state: Bindings, tmp_path: Path) -> None:
    """Half of an approval is published by no one."""
    result = run("approve", *HERE, "--all", "--scheme", "assay.v1", *WHY, "--output", tmp_path / "o")
    assert error_code(result) == "definition_ambiguous"
    assert "at t:" in str(result.exception)
    assert not (tmp_path / "o").exists()


def test_all_of_nothing_is_an_error(state: Bindings) -> None:
    """It must not look as if something had been approved."""
    state.apply(facts.rejection(90 * US, offset=30))
    assert error_code(run("approve", *HERE, "--all", *WHY)) == "tool_not_observed"


@pytest.mark.parametrize(
    "options",
    [
        (),
        HERE,
        ("--tool", "t"),
        ("--all",),
        (*HERE, "--tool", "t", "--all"),
        (*HERE, "--all", "--digest", "full:one"),
        ("--alert", "uid-1", "--all"),
        ("--alert", "uid-1", *HERE),
        ("--alert", "uid-1", "--tool", "t"),
        ("--alert", "uid-1", "--digest", "full:one"),
    ],
)
def test_what_is_decided_on_must_be_said_in_one_way(state: Bindings, options: tuple[str, ...]) -> None:
    """An option that would be passed over is an error."""
    assert error_code(run("approve", *options, *WHY)) == "bad_option"


def test_an_alert_without_a_definition_cannot_be_approved(state: Bindings) -> None:
    assert error_code(run("approve", "--alert", "uid-gone", *WHY)) == "no_definition_in_alert"


def test_a_server_that_is_not_known_is_an_error(state: Bindings) -> None:
    assert error_code(run("approve", "--server-id", "x", "--tool", "t", *WHY)) == "server_not_known"
    assert error_code(run("diff", "--server-id", "x")) == "server_not_known"


def test_a_decision_is_taken_back(tmp_path: Path) -> None:
    """Of a scheme, or on one value; that needs no state."""
    arguments = ("remove", *HERE, "--tool", "t", "--scheme", "assay.p60", *WHY, "--output", tmp_path / "o")
    run(*arguments)
    assert [(kind, "value" in data) for kind, data in decided(tmp_path / "o")] == [("pin.remove", False)]
    run(*arguments, "--value", "sha256:" + "a" * 64)
    assert decided(tmp_path / "o")[-1][1]["value"] == "sha256:" + "a" * 64
    assert len(decided(tmp_path / "o")) == 2, "a file of decisions is added to"


def test_diff_shows_both_definitions_and_ends_with_1(state: Bindings) -> None:
    """In ASCII, so that what is invisible is seen."""
    result = run("diff", *HERE, "--tool", "t")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[:3] == ["t: differs from its pin under assay.v1", "--- pinned", "+++ offered"]
    assert '-  "description": "full:one\\u202e",' in result.stdout
    assert '+  "description": "full:two\\u202e",' in result.stdout


def test_diff_of_a_pin_that_was_never_observed_says_so(state: Bindings) -> None:
    state.apply(facts.a_pin(v1("never"), time_us=91 * US, offset=40))
    assert "never observed here" in run("diff", *HERE, "--tool", "t").stdout


def test_definitions_too_long_to_compare_are_not_compared(state: Bindings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server could make it take hours: its definition may have a million lines."""

    def definitions(_: object, digests: set[str]) -> dict[str, dict[str, Any]]:
        steps = zip(sorted(digests), (7, 11), strict=True)
        return {digest: {"enum": [number * step % 109 for number in range(10_000)]} for digest, step in steps}

    monkeypatch.setattr(decisions, "published_definitions", definitions)
    result = run("diff", *HERE, "--tool", "t")
    assert result.exit_code == 1
    assert "too long to compare line by line: 10,004 lines are pinned, 10,004 offered" in result.stdout


def test_diff_of_what_does_not_differ(state: Bindings) -> None:
    result = run("diff", *HERE, "--tool", "gone")
    assert result.exit_code == 0
    assert "no differences" in result.stderr


def test_import_and_export_need_a_server_and_a_file(state: Bindings, tmp_path: Path) -> None:
    assert error_code(run("export", "--format", "hangar")) == "server_not_named"
    assert error_code(run("import", tmp_path / "none", "--format", "native", *WHY)) == "unreadable_file"


def test_a_bad_file_or_option_is_named_before_any_broker_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody should wait for Kafka to read that a name is too long, or that there is no reason."""
    monkeypatch.setattr(decisions, "known_bindings", lambda *_: pytest.fail("the brokers were asked"))
    file = tmp_path / "pins.ndjson"
    for name, more, code in (("n" * 1_025, WHY, "bad_identifier"), ("t", ("--reason", ""), "empty_value")):
        file.write_text(json.dumps({"server_id": "s", "tool_name": name, "scheme": "assay.v1", "value": v1("t")}))
        result = run("import", file, "--format", "native", *more)
        assert error_code(result) == code
        assert ("pins.ndjson" in str(result.exception)) == (code == "bad_identifier")


def test_the_author_is_who_is_logged_in(state: Bindings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the command line or the environment says otherwise."""
    monkeypatch.setattr(getpass, "getuser", lambda: "login")
    arguments = ("reject", "--alert", "uid-1", "--reason", "r", "--output", tmp_path / "o")
    run(*arguments)
    assert decided(tmp_path / "o")[0][1]["author"] == "login"
    monkeypatch.setenv("ASSAY_STREAM_AUTHOR", "env")
    run(*arguments)
    assert decided(tmp_path / "o")[-1][1]["author"] == "env"


def test_a_terminal_is_shown_nothing_of_exported_pins_that_could_steer_it(tmp_path: Path) -> None:
    """The same pins, which a file gets to the byte."""
    pin = {"server_id": "s\u009b2J\u202e", "tool_name": "t", "scheme": "assay.p60", "value": f"sha256:{'a' * 64}"}
    (tmp_path / "pins").write_text(json.dumps(pin))
    decided = str(tmp_path / "decided.ndjson")
    deciding = ("--format", "native", "--reason", "r", "--author", "ann", "--output", decided)
    assert run_command("pins", "import", str(tmp_path / "pins"), *deciding).returncode == 0
    in_file = run_command("pins", "export", "--input", decided).stdout
    terminal, output = pty.openpty()
    command = [sys.executable, "-m", "assay_stream", "pins", "export", "--input", decided]
    subprocess.run(command, stdout=output, check=True)
    os.close(output)
    on_terminal = os.read(terminal, 65_536)
    os.close(terminal)
    assert on_terminal.isascii()
    assert json.loads(on_terminal) == json.loads(in_file)
    assert not in_file.isascii()
