"""``assay-stream archive``, over topics in memory, and the way back into a replay."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from assay_stream.bindings.erasures import HOLD, Erasures, ScopeAct, acts_in
from assay_stream.cli import archiving, shared, sources
from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.files.archive import read_files
from assay_stream.kafka import ranges as log_ends
from assay_stream.model.record import TOPIC_NAMES, Origin, Record, Role
from assay_stream.replay.order import Selection
from tests.support.command import error_code, invoke as run
from tests.support.controls import a_control
from tests.support.events import TOOL, Story

STORY = Story().lists(TOOL).calls().raw(Role.CONTROL, a_control("policy.set", second=2, unknown="warn")).calls()
STORY.raw(Role.CALLS, b"\xff\xfe", key=None, headers=(("h", b"\xff"),)).lists({**TOOL, "description": "other"})
RECORDS = STORY.calls().records


@pytest.fixture(autouse=True)
def _topics(monkeypatch: pytest.MonkeyPatch) -> None:
    async def note_ends(_: Settings, roles: tuple[Role, ...]) -> dict[Role, dict[int, int]]:
        return {role: {0: sum(record.role is role for record in RECORDS)} for role in roles}

    async def read_ranges(_: Settings, ends: dict[Role, Any], selection: Selection) -> AsyncIterator[Record]:
        for record in RECORDS:
            if record.role in ends and selection.wants(record):
                yield record

    async def committed_offsets(_: Settings, stage: str) -> dict[tuple[str, int], int]:
        assert stage == "join"
        return {("mcp.tools.call", 0): 2, ("elsewhere", 0): 9}

    monkeypatch.setattr(archiving, "known_erasures", lambda *_: Erasures(acts_in(RECORDS)))
    monkeypatch.setattr(shared, "open_admin", lambda *_, **__: nullcontext())
    monkeypatch.setattr(log_ends, "committed_offsets", committed_offsets)
    monkeypatch.setattr(log_ends, "note_ends", note_ends)
    monkeypatch.setattr(sources, "read_ranges", read_ranges)


def inputs(folder: Path) -> list[object]:
    return [option for path in sorted(folder.iterdir()) for option in ("--input", path)]


@pytest.mark.parametrize(("compression", "suffix"), [("none", ""), ("gzip", ".gz"), ("zstd", ".zst")])
def test_an_archive_replays_as_the_topics_do(tmp_path: Path, compression: str, suffix: str) -> None:
    """Every record comes back with its place, key, headers and time, and the results are the same bytes."""
    done = run("archive", "--output", tmp_path / "kept", "--compression", compression)
    assert done.exit_code == 0, done.output
    written = {role.value: sum(record.role is role for record in RECORDS) for role in (Role.CALLS, Role.CONTROL)}
    assert json.loads(done.stdout) == {"written": written | {"snapshots": 2}, "snapshot_partitions": 1}
    names = {f"{role}.ndjson{suffix}" for role in ("calls", "control", "snapshots")}
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {*names, "archive.json"}
    read = list(read_files(sorted((tmp_path / "kept").iterdir())))
    assert sorted(read, key=lambda record: record.origin) == sorted(RECORDS, key=lambda record: record.origin)

    direct = run("replay", "--from-kafka", "--output", tmp_path / "direct")
    again = run("replay", *inputs(tmp_path / "kept"), "--snapshot-partitions", "1", "--output", tmp_path / "again")
    assert (direct.exit_code, again.exit_code) == (0, 0), again.output
    for path in (tmp_path / "direct").iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()


def test_no_archive_is_replaced_under_a_legal_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be the only copy of what the topics no longer have."""
    hold = ScopeAct(
        act=HOLD,
        scope_id="case-9",
        scope={},
        records=None,
        author="ann",
        reason="case",
        time_us=0,
        origin=Origin("c", 0, 0),
    )
    monkeypatch.setattr(archiving, "known_erasures", lambda *_: Erasures([hold]))
    assert run("archive", "--output", tmp_path / "kept", "--force").exit_code == 0
    assert "held" in str(run("archive", "--output", tmp_path / "kept", "--force").exception)


def test_an_archive_is_replaced_only_when_asked(tmp_path: Path) -> None:
    """Refused before anything is read; --force keeps it where nothing is found, else leaves none of it."""
    folder = tmp_path / "kept"
    assert run("archive", "--output", folder).exit_code == 0
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    refused = run("archive", "--output", folder)
    assert isinstance(refused.exception, ConfigurationError)
    assert (refused.exception.code, str(folder) in refused.exception.message) == ("output_exists", True)
    empty = run("archive", "--output", folder, "--force", "--from-time", "2099-01-01T00:00:00Z", "--topics", "calls")
    assert empty.exit_code == 5
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    done = run("archive", "--output", folder, "--force", "--topics", "calls", "--compression", "none")
    assert done.exit_code == 0
    assert {path.name for path in folder.iterdir()} == {"archive.json", "calls.ndjson"}


def test_an_archive_of_all_topics_is_replaced_whole(tmp_path: Path) -> None:
    """Its files of other topics would pass for what the new one has; where no archive was, results stay."""
    folder = tmp_path / "kept"
    assert run("archive", "--output", folder, "--topics", "calls", "--compression", "none").exit_code == 0
    for name in ("evidence.ndjson.gz", "state-bindings.ndjson.zst", "notes.txt"):
        (folder / name).touch()
    assert run("archive", "--output", folder, "--force", "--compression", "none").exit_code == 0
    written = {"archive.json", "calls.ndjson", "control.ndjson", "snapshots.ndjson"}
    assert {path.name for path in folder.iterdir()} == {*written, "notes.txt"}
    results = tmp_path / "results"
    results.mkdir()
    (results / "evidence.ndjson").write_text("kept")
    assert run("archive", "--output", results, "--force", "--compression", "none").exit_code == 0
    assert {path.name for path in results.iterdir()} == {*written, "evidence.ndjson"}


def test_an_archive_that_fails_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that goes away while it is read."""
    folder = tmp_path / "kept"
    assert run("archive", "--output", folder).exit_code == 0
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    async def read_ranges(*_: object) -> AsyncIterator[Record]:
        yield RECORDS[0]
        raise OperatingError("broker_unreachable", "gone")

    monkeypatch.setattr(sources, "read_ranges", read_ranges)
    assert run("archive", "--output", folder, "--force").exit_code == 1
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_one_topic_can_be_asked_for(tmp_path: Path) -> None:
    done = run("archive", "--output", tmp_path, "--topics", "control", "--compression", "none")
    assert json.loads(done.stdout)["written"] == {"control": 1}
    assert {path.name for path in tmp_path.iterdir()} == {"archive.json", "control.ndjson"}


def test_a_range_without_records_says_so(tmp_path: Path) -> None:
    done = run("archive", "--output", tmp_path, "--to-time", "2020-01-01T00:00:00Z")
    assert done.exit_code == 5
    assert "no record matches the selection" in done.stderr


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_bytes(b"")
    done = run("archive", "--output", tmp_path / "taken")
    assert error_code(done) == "unwritable_folder"


def test_verify_refuses_an_archive_that_lost_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls cut off together with their evidence would else leave no trace."""

    async def read_ranges(*_: object) -> AsyncIterator[Record]:
        for record in RECORDS:
            yield record._replace(origin=record.origin._replace(topic=TOPIC_NAMES[record.role]))

    monkeypatch.setattr(sources, "read_ranges", read_ranges)
    assert run("archive", "--output", tmp_path / "kept", "--compression", "none").exit_code == 0
    calls, evidence = tmp_path / "kept" / "calls.ndjson", tmp_path / "evidence.ndjson"
    evidence.write_bytes(b"")
    calls.write_bytes(b"".join(calls.read_bytes().splitlines(keepends=True)[:-1]))
    options = [option for path in (tmp_path / "kept").glob("*.ndjson") for option in ("--input", path)]
    result = run("verify", "--evidence", evidence, *options)
    assert error_code(result) == "archive_truncated"
