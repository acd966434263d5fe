"""What an archive costs its reader: memory follows from the longest line allowed, not from the file.

Each command runs in a process of its own, whose peak memory is held against that of a small, sound archive.
"""

import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

import pytest
import zstandard

from assay_stream.files.lines import record_line
from assay_stream.limits import DEFAULT_LIMITS
from tests.support.events import SERVER, TOOL, Story
from tests.support.seals import checkpoint_records, checkpoints_of, lines_of, some_records, write_keys

pytestmark = pytest.mark.tier(name="adversary")

MIB = 1024 * 1024
ABOVE_NORMAL_MB = 128
FORMS: dict[str, Callable[[Path], BinaryIO]] = {
    "plain": lambda path: path.open("wb"),
    "gzip": lambda path: cast(BinaryIO, gzip.GzipFile(path, "wb", 1)),
    "zstd": lambda path: cast(BinaryIO, zstandard.open(path, "wb")),
}


def run(*arguments: object) -> tuple[subprocess.CompletedProcess[str], float]:
    command = [sys.executable, "-m", "assay_stream", *map(str, arguments)]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err)
        try:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            if process.returncode is None:
                process.kill()
        for stream in (out, err):
            stream.seek(0)
        return subprocess.CompletedProcess(command, process.returncode, out.read(), err.read()), usage.ru_maxrss / 1024


def observed() -> list[bytes]:
    story = Story().lists(TOOL)
    for _ in range(40):
        story.calls()
    return [record_line(record) + b"\n" for record in story.records]


def endless(start: bytes) -> Iterator[bytes]:
    yield start
    for _ in range(160):
        yield b"x" * MIB
    yield b"\n"


def write(path: Path, form: str, *parts: bytes | Iterator[bytes]) -> Path:
    with FORMS[form](path) as file:
        for part in parts:
            for piece in [part] if isinstance(part, bytes) else part:
                file.write(piece)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("memory")
    lines = observed()
    write(folder / "in.ndjson", "plain", *lines)
    write(folder / "endless.gz", "gzip", *lines[:20], endless(b'{"specversion":"1.0","data":"'), *lines[20:])
    done, _ = run("replay", "--input", folder / "in.ndjson", "--output", folder / "out")
    assert done.returncode == 0
    return folder


@pytest.fixture(scope="module")
def normal_mb(folder: Path) -> float:
    done, peak = run("verify", "--input", folder / "in.ndjson", "--evidence", folder / "out" / "evidence.ndjson")
    assert done.returncode == 0
    return peak


@pytest.mark.parametrize(
    ("form", "start"),
    [("plain", b'{"origin":{"topic":"'), ("gzip", b'{"specversion":"1.0","data":"'), ("zstd", b'{"origin":{"topic":"')],
)
def test_a_replay_rejects_an_endless_line_and_reads_on(
    form: str, start: bytes, folder: Path, normal_mb: float, tmp_path: Path
) -> None:
    lines = observed()
    bomb = write(tmp_path / f"bomb.{form}", form, *lines[:20], endless(start), *lines[20:])
    done, peak = run("replay", "--input", bomb, "--output", tmp_path / "out")
    assert done.returncode == 1, done.stderr
    assert f"line_too_long: line 21 of {bomb}" in done.stderr
    assert json.loads(done.stdout)["written"]["evidence"] == 40
    (rejected,) = (tmp_path / "out" / "rejected.ndjson").read_bytes().splitlines()
    error = json.loads(rejected)["error"]
    assert (error["code"], error["topic"], error["offset"]) == ("too_large", bomb.name, "20")
    assert peak < normal_mb + ABOVE_NORMAL_MB


@pytest.mark.parametrize(
    "command",
    [
        "verify --input {bomb} --evidence {out}/evidence.ndjson",
        "verify --input {sound} --evidence {bomb}",
        "compare --input {bomb} --evidence {out}/evidence.ndjson",
        "asof --server-id {server} --at 2026-03-01T10:00:09Z --input {bomb}",
        "timeline --server-id {server} --input {bomb}",
        "trace --tool-call-id call-1 --input {bomb}",
        "export timesketch --input {bomb} --output {out}/x.csv",
    ],
)
def test_every_other_reader_names_the_endless_line(command: str, folder: Path, normal_mb: float) -> None:
    places = {"bomb": folder / "endless.gz", "out": folder / "out", "sound": folder / "in.ndjson", "server": SERVER}
    done, peak = run(*command.format(**places).split())
    assert done.returncode == 2, done.stderr
    assert "line_too_long" in done.stderr
    assert "line 21 of " in done.stderr
    assert "remove the line" in done.stderr
    assert peak < normal_mb + ABOVE_NORMAL_MB


def test_seal_verify_counts_an_endless_line_as_one(tmp_path: Path, normal_mb: float) -> None:
    records = some_records(2, 3, 5)
    write_keys(tmp_path)
    lines = lines_of(records).splitlines(keepends=True)
    write(tmp_path / "evidence-0.ndjson", "gzip", lines[0], endless(b'{"origin":{"topic":"'), *lines[1:])
    (tmp_path / "checkpoints-0.ndjson").write_bytes(lines_of(checkpoint_records(checkpoints_of(records))))
    options = ("--evidence", tmp_path, "--checkpoints", tmp_path, "--format", "json")
    done, peak = run("seal", "verify", "--key", tmp_path / "seal.pub.pem", *options)
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert answer["bad_lines"] == [{"file": "evidence-0.ndjson", "line": 2}]
    assert answer["logs"][0]["verified"] == 3
    assert peak < normal_mb + ABOVE_NORMAL_MB


@pytest.mark.parametrize(
    "command", ["fingerprint {file}", "drift {file} {file}", "seal check-proof {file} --key {key}"]
)
def test_a_file_that_is_read_whole_has_a_limit(command: str, folder: Path, normal_mb: float, tmp_path: Path) -> None:
    write_keys(tmp_path)
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(200 * MIB)
    done, peak = run(*command.format(file=huge, key=tmp_path / "seal.pub.pem").split())
    assert done.returncode == 2
    assert f"too_large: {huge} is over the limit of {DEFAULT_LIMITS.record_bytes_max} bytes" in done.stderr
    assert peak < normal_mb + ABOVE_NORMAL_MB


@pytest.mark.parametrize("form", ["gzip", "zstd"])
def test_many_records_at_the_limit_cost_no_more_than_one(
    form: str, folder: Path, normal_mb: float, tmp_path: Path
) -> None:
    """Refused calls wait for those behind them, in bounded memory. All are counted; of 192 MiB a few are written."""
    bomb = write(tmp_path / "bomb", form, *(b"x" * (DEFAULT_LIMITS.record_bytes_max - 1) + b"\n" for _ in range(24)))
    done, peak = run("replay", "--input", bomb, "--output", tmp_path / "out")
    assert json.loads(done.stdout)["what"] == {"rejected:not_json": 24}, done.stderr
    assert (tmp_path / "out" / "rejected.ndjson").stat().st_size < 64 * MIB
    assert peak < normal_mb + ABOVE_NORMAL_MB


def test_refused_records_hold_on_to_nothing_that_was_decoded(folder: Path, normal_mb: float, tmp_path: Path) -> None:
    """Three lines of a million empty lists each, 64 MB of them: what they decode to is let go of line by line."""
    bomb = write(tmp_path / "bomb", "gzip", *(b"[" + b"[]," * MIB + b"[]]\n" for _ in range(3)))
    done, peak = run("replay", "--input", bomb, "--output", tmp_path / "out")
    assert json.loads(done.stdout)["written"]["rejected"] == 3, done.stderr
    assert peak < normal_mb + ABOVE_NORMAL_MB
