"""Looking back at files, at a store and at topics: each question has one answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from assay_stream.cli import inventory, sources as cli_sources
from assay_stream.cli.app import app
from assay_stream.config import load_settings
from assay_stream.files.lines import record_line
from assay_stream.kafka import ranges
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import Role
from tests.support.command import invoke
from tests.support.controls import a_control
from tests.support.events import SERVER, TOOL, Story
from tests.support.log_ranges import LogsInMemory, stand_in
from tests.support.readmodel import written

OTHER = {**TOOL, "description": "Another one"}
ON_SERVER = ("--server-id", SERVER)


def a_story() -> Story:
    """A list, a pin, a refused list, another list, a policy, and calls, one of them of a tool that is not listed."""
    pin = a_control("pin.set", second=1, server_id=SERVER, tool_name="read_file", scheme="assay.v1", value="0" * 64)
    policy = a_control("policy.set", number=2, second=5, server_id=SERVER, enforcement="block", unknown="block")
    story = Story().lists(TOOL).raw(Role.CONTROL, pin).calls(trace_id="t").raw(Role.SNAPSHOTS, b"{").lists(OTHER)
    return story.raw(Role.CONTROL, policy).calls().calls("ghost")


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    records, settings = a_story().records, load_settings()
    path = tmp_path / "in.ndjson"
    path.write_bytes(b"".join(record_line(record) + b"\n" for record in records))
    folder = str(tmp_path / "store")
    assert invoke("store", "load", str(path), "--store", folder).exit_code == 0
    names = topic_names(settings)
    given = [each._replace(origin=each.origin._replace(topic=names[each.role])) for each in records]
    derived = [each._replace(origin=each.origin._replace(topic=names[each.role])) for each in written(records)]
    logs = LogsInMemory([*given, *derived])
    for module in (ranges, inventory, cli_sources):
        stand_in(monkeypatch, module, logs)
    return [["--input", str(path)], ["--store", folder], []]


@pytest.mark.parametrize(
    "command",
    [
        ("asof", *ON_SERVER, "--format", "json"),
        ("asof", *ON_SERVER, "--at", "2026-03-01T10:00:02Z", "--format", "json"),
        ("timeline", *ON_SERVER, "--format", "json"),
        ("timeline", *ON_SERVER, "--tool", "ghost", "--format", "json"),
        ("trace", "--tool-call-id", "call-6", "--format", "json"),
        ("trace", "--trace-id", "t", "--format", "json"),
        ("policy", "plan", *ON_SERVER, "--enforcement", "block", "--since", "2026-03-01T00:00:00Z", "--json"),
        ("policy", "list", "--json"),
        ("pins", "list", "--json"),
        ("pins", "history", *ON_SERVER, "--json"),
        ("pins", "diff", *ON_SERVER),
        ("pins", "export"),
        ("keys", "list", "--json"),
        ("evidence", "search", "call-6", "--json"),
        ("observers", "list", "--json"),
    ],
    ids=" ".join,
)
def test_a_question_has_one_answer(sources: list[list[str]], command: tuple[str, ...]) -> None:
    """But for where the records of its evidence stand, and for calls of the last day."""
    answers = []
    for options in sources:
        done = invoke(*command, *options)
        assert done.exit_code in (0, 1), (options, done.output, done.exception)
        answers.append((done.exit_code, [_comparable(line) for line in done.stdout.splitlines()]))
    assert answers[0] == answers[1] == answers[2]
    assert answers[0][1] or command[0] == "keys"


def _comparable(line: str) -> Any:
    try:
        row = json.loads(line)
    except json.JSONDecodeError:
        return line
    left_out = ("where", "calls_day", "reference") + (("origin",) if "scope" in row else ())
    return {name: value for name, value in row.items() if name not in left_out} if isinstance(row, dict) else row


def test_a_call_without_evidence_is_pending_in_the_topics(
    sources: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found there, and nowhere else."""
    records = a_story().records
    stand_in(monkeypatch, ranges, LogsInMemory(records))
    done = CliRunner().invoke(app, ["trace", "--tool-call-id", "call-6", "--format", "json", *sources[2]])
    assert [json.loads(line).get("state") for line in done.stdout.splitlines()] == ["observed", "none_yet"]
    assert invoke("trace", "--tool-call-id", "nobody's").exit_code == 5


def test_the_full_logs_are_replayed_for_what_was_compacted_away(sources: list[list[str]]) -> None:
    command = ["asof", *ON_SERVER, "--format", "json"]
    of_files = CliRunner().invoke(app, [*command, *sources[0]])
    of_logs = invoke(*command, "--from-log")
    assert of_logs.exit_code == 0, of_logs.output
    assert [_comparable(line) | {"origin": None} for line in of_logs.stdout.splitlines()] == [
        _comparable(line) | {"origin": None} for line in of_files.stdout.splitlines()
    ]
