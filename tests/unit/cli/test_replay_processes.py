"""``assay-stream replay --processes``: the same files, and a process that does not come to its end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assay_stream.cli.app import app
from assay_stream.cli.sources import Source
from assay_stream.errors import ConfigurationError, InputError, OperatingError
from bench.bench_replay import records
from tests.unit.cli.test_publish_replay import results
from tests.unit.cli.test_replay import written


def replay(archive: Path, output: Path, *options: str) -> BaseException | None:
    """Replay an archive in this process; returns what it was refused for."""
    arguments = ["replay", "--input", str(archive), "--output", str(output), *options]
    return CliRunner().invoke(app, arguments).exception


@pytest.mark.parametrize("name", ["in.ndjson", "in.ndjson.zst"])
def test_several_processes_write_the_files_of_one(tmp_path: Path, name: str) -> None:
    """Byte for byte, from plain and from compressed files."""
    archive = written(tmp_path / name, list(records(2_000)))
    assert replay(archive, tmp_path / "one") is None
    assert replay(archive, tmp_path / "three", "--processes", "3") is None
    assert results(tmp_path / "three") == results(tmp_path / "one")


def test_a_line_that_is_too_long_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process reads it; the replay ends with 1, as with one process."""
    monkeypatch.setattr("assay_stream.files.archive.EVENT_LINE_BYTES_MAX", 4_096)
    archive = written(tmp_path / "in.ndjson", list(records(20)))
    with archive.open("ab") as file:
        file.write(b"x" * 9_000 + b"\n")
    result = CliRunner().invoke(
        app, ["replay", "--input", str(archive), "--output", str(tmp_path / "out"), "--processes", "2"]
    )
    assert (result.exit_code, result.stderr.count("line_too_long")) == (1, 1)


def test_what_a_process_is_refused_for_is_told_as_by_one(tmp_path: Path) -> None:
    """With its own code; nothing was written."""
    archive = tmp_path / "in.ndjson"
    archive.write_bytes(b'{"origin": {}, "role": "calls"}\n')
    error = replay(archive, tmp_path / "out", "--processes", "2")
    assert isinstance(error, InputError)
    assert error.code == "bad_record_line"


def stopping(how: Callable[[], None]) -> Callable[..., object]:
    """In place of ``Source.replay``: the merging process goes on, and a child stops before its calls are joined."""
    whole, parent = Source.replay, os.getpid()

    def replay_or_stop(self: Source, *arguments: object, **options: object) -> object:
        if os.getpid() != parent:
            how()
        return whole(self, *arguments, **options)  # type: ignore[arg-type]

    return replay_or_stop


@pytest.mark.parametrize("how", [lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: time.sleep(60)])
def test_a_process_that_dies_or_hangs_ends_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Callable[[], None]
) -> None:
    """Half a replay passes for no whole one: no file stands under its own name."""
    monkeypatch.setattr("assay_stream.cli.replay_processes._SIGN_OF_LIFE_S", 60)
    monkeypatch.setattr("assay_stream.cli.replay_processes._LOOK_S", 0.1)
    monkeypatch.setattr(Source, "replay", stopping(how))
    archive = written(tmp_path / "in.ndjson", list(records(20)))
    error = replay(archive, tmp_path / "out", "--processes", "2")
    assert isinstance(error, OperatingError)
    assert error.code == "process_ended"
    assert not list((tmp_path / "out").glob("*.ndjson"))


def test_a_process_killed_in_the_middle_leaves_no_finished_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls that were joined before stay in files that say that they are partial."""
    monkeypatch.setattr("assay_stream.replay.shares.BLOCK_BYTES", 10_000)
    parent = os.getpid()
    whole = Source.replay

    def one_block(self: Source, *arguments: object, **options: object) -> object:
        made = whole(self, *arguments, **options)  # type: ignore[arg-type]
        if os.getpid() != parent:
            calls = made.joined

            def cut() -> object:
                for number, call in enumerate(calls()):
                    if number == 100:
                        os.kill(os.getpid(), signal.SIGKILL)
                    yield call

            made.joined = cut  # type: ignore[assignment, method-assign]
        return made

    monkeypatch.setattr(Source, "replay", one_block)
    archive = written(tmp_path / "in.ndjson", list(records(1_000)))
    error = replay(archive, tmp_path / "out", "--processes", "2")
    assert isinstance(error, OperatingError)
    assert not list((tmp_path / "out").glob("*.ndjson"))


@pytest.mark.parametrize("options", [("--compare", "--evidence", "x"), ("--to-kafka",)])
def test_processes_share_a_replay_into_files_only(tmp_path: Path, options: tuple[str, ...]) -> None:
    """What else a replay can do asks for all records in one process."""
    output = () if "--to-kafka" in options else ("--output", str(tmp_path / "out"))
    arguments = ["replay", "--input", str(tmp_path / "in"), *output, *options, "--processes", "2"]
    error = CliRunner().invoke(app, arguments).exception
    assert isinstance(error, ConfigurationError)
    assert error.code == "bad_option"
