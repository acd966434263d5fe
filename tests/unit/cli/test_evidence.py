"""``assay-stream evidence`` over recorded observations, and over the evidence of a replay."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import error_code, invoke, rows_of
from tests.support.events import SERVER, TOOL, Story

OTHER = {**TOOL, "description": "Another one"}


run = partial(invoke, "evidence")


@pytest.fixture
def replayed(tmp_path: Path) -> Path:
    """The results of a replay: two definitions of a tool, a call of each, and one of a tool that nobody listed."""
    story = Story().lists(TOOL).calls().lists(OTHER).calls().calls("ghost")
    story.write(tmp_path / "in.ndjson")
    arguments = ["replay", "--input", str(tmp_path / "in.ndjson"), "--output", str(tmp_path / "out")]
    assert invoke(*arguments).exit_code == 0
    return tmp_path / "out"


def written(replayed: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (replayed / "evidence.ndjson").read_bytes().splitlines()]


def rows(*arguments: object) -> list[dict[str, Any]]:
    return rows_of(run(*arguments, "--json"))


def test_calls_are_listed_newest_first(replayed: Path) -> None:
    """From the evidence, or from the observations that it follows from: the same facts."""
    found = rows("list", "--evidence", replayed)
    assert [row["tool_name"] for row in found] == ["ghost", "read_file", "read_file"]
    again = rows("list", "--input", replayed.parent / "in.ndjson")
    assert [{**row, "origin": 0} for row in found] == [{**row, "origin": 0} for row in again]
    times = [event["time"] for event in written(replayed)]
    assert [row["time"][:19] for row in found] == [time[:19] for time in reversed(times)]


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (("--server-id", SERVER), 3),
        (("--server-id", "other"), 0),
        (("--tool", "ghost"), 1),
        (("--observer", "proxy-1"), 3),
        (("--decision", "allow"), 3),
        (("--decision", "deny"), 0),
        (("--unbound",), 1),
        (("--unbound-reason", "tool_not_listed"), 1),
        (("--scope", "exact"), 0),
        (("--since", "2999-01-01"), 0),
        (("--until", "now"), 3),
        (("--since", "yesterday"), 0),
    ],
)
def test_calls_are_found_by_what_is_known_of_them(replayed: Path, options: tuple[str, ...], count: int) -> None:
    """Nothing found is exit code 5, and says so."""
    done = run("list", "--evidence", replayed, "--json", *options)
    assert len(done.stdout.splitlines()) == count
    assert done.exit_code == (0 if count else 5)
    assert ("no call matches" in done.stderr) == (count == 0)


def test_arguments_that_cannot_be_read_are_named_with_their_file(tmp_path: Path) -> None:
    file = tmp_path / "arguments.json"
    file.write_text("{")
    assert f"{file}: line 1" in str(run("digest", file).exception)
    assert "standard input: line 1" in str(run("digest", "-", input="{").exception)


def test_more_calls_than_are_shown_are_told(replayed: Path) -> None:
    done = run("list", "--evidence", replayed, "--limit", "2")
    assert len(done.stdout.splitlines()) == 3
    assert "only the newest 2 calls shown" in done.stderr
    assert "newest" not in run("list", "--evidence", replayed, "--limit", "3").stderr


def test_the_calls_that_used_a_definition_are_found_by_any_of_its_digests(replayed: Path) -> None:
    """Under every scheme that evidence has, with its prefix or without."""
    first = written(replayed)[0]["data"]
    values = [first["binding"]["full_digest"], first["tool_definition_digest"], first["tool_identity"]["schema_hash"]]
    for value in (*values, values[0].removeprefix("sha256:")):
        found = rows("list", "--evidence", replayed, "--digest", value)
        assert found[-1]["tool_name"] == "read_file"
        assert len(found) in (1, 2)  # both definitions have one schema


def test_search_says_what_a_digest_is_of(replayed: Path) -> None:
    """And which calls have it; also a scheme that stands in no evidence."""
    digest = written(replayed)[0]["data"]["tool_definition_digest"]
    done = run("search", digest, "--input", replayed.parent / "in.ndjson")
    assert "tool_definition assay.v1" in done.stdout
    tools = invoke("tools", "list", "--input", str(replayed.parent / "in.ndjson"), "--json")
    listed = json.loads(tools.stdout.splitlines()[-1])
    [value] = [each["value"] for each in listed["digests"] if each["scheme"] == "hangar.v2"]
    done = run("search", value, "--input", replayed.parent / "in.ndjson")
    assert done.exit_code == 0, done.output
    assert "tool_definition hangar.v2" in done.stdout


@pytest.mark.parametrize(
    ("digest", "hint"),
    [("sha256:" + "0" * 64, "no digest or id is"), ("sha256:0123456789ab", "begins with"), ("01234", "6 digits")],
)
def test_an_unknown_digest_is_an_answer(replayed: Path, digest: str, hint: str) -> None:
    """Exit code 5; a shortened one says what may be shortened."""
    done = run("search", digest, "--evidence", replayed)
    assert done.exit_code == 5
    assert hint in done.stderr


def test_the_beginning_of_a_digest_is_enough(replayed: Path) -> None:
    """As tables print it: to search, to filter, and to show the one call that has it."""
    values = [event["data"].get("tool_definition_digest") for event in written(replayed)]
    prefix = values[0].removeprefix("sha256:")[:12]
    for text in (prefix, f"sha256:{prefix}", f"{prefix}…"):
        assert rows("list", "--evidence", replayed, "--digest", text)[0]["tool_name"] == "read_file"
        assert values[0] in run("show", text, "--evidence", replayed).stdout
        assert "tool_definition assay.v1" in run("search", text, "--evidence", replayed).stdout


def test_an_ambiguous_beginning_lists_what_it_may_be(replayed: Path) -> None:
    """With the scheme of each, for people and for programs; that is no answer."""
    values = sorted({event["data"]["binding"]["full_digest"] for event in written(replayed)[:2]})
    evidence = (replayed / "evidence.ndjson").read_text()
    bare = [value.removeprefix("sha256:") for value in values]
    (replayed / "evidence.ndjson").write_text(evidence.replace(bare[1], bare[0][:60] + bare[1][60:]))
    for options in ((), ("--json",)):
        done = run("search", bare[0][:20], "--evidence", replayed, *options)
        assert error_code(done) == "ambiguous_digest"
        assert "2 digests begin with" in str(done.exception)
        assert bare[0] in done.stdout
        assert bare[0][:60] + bare[1][60:] in done.stdout
        assert "full" in done.stdout


def test_one_call_is_shown_with_all_its_digests(replayed: Path) -> None:
    """By the id of its evidence, the call's own id, or its place; as it stands for programs."""
    event = written(replayed)[0]
    for what in (event["id"], event["data"]["tool_call_id"], f"{replayed}/evidence.ndjson/0/0"):
        done = run("show", what, "--evidence", replayed)
        assert done.exit_code == 0, done.output
        assert "tool_definition assay.v1 " in done.stdout
        assert event["data"]["tool_definition_digest"] in done.stdout
    assert rows("show", event["id"], "--evidence", replayed) == [event]


def test_an_id_that_several_calls_have_is_no_answer(replayed: Path) -> None:
    shared = written(replayed)[0]["data"]["binding"]["catalogue_digest"]
    path = Story().lists(TOOL).calls().calls().write(replayed.parent / "again.ndjson")
    done = run("show", shared, "--input", path)
    assert error_code(done) == "ambiguous_id"


def test_a_store_answers_as_its_files_do(replayed: Path) -> None:
    """Filled once, asked often."""
    store, observed = replayed.parent / "store", replayed.parent / "in.ndjson"
    assert invoke("store", "load", str(observed), "--store", str(store)).exit_code == 0
    assert [{**row, "origin": 0} for row in rows("list", "--store", store)] == [
        {**row, "origin": 0} for row in rows("list", "--input", observed)
    ]


def test_an_unknown_id_is_an_answer(replayed: Path) -> None:
    assert run("show", "nobody", "--evidence", replayed).exit_code == 5
    assert run("show", "topic/0/7", "--evidence", replayed).exit_code == 5
