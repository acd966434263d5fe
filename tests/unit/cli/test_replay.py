"""``assay-stream replay``: sources, interruption and going on."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import zstandard

from assay_stream.errors import InputError
from assay_stream.files.archive import open_archive, read_files
from assay_stream.files.compressed import write_archive
from assay_stream.files.record_line import record_line
from assay_stream.model.record import Record, Role
from assay_stream.replay.run import PROGRESS_FILE
from bench.bench_replay import records
from tests.unit.cli.test_publish_replay import called, observed, results, run


def written(path: Path, archived: list[Record]) -> Path:
    with write_archive(path) as archive:
        for record in archived:
            archive.write(record_line(record) + b"\n")
    return path


@pytest.mark.parametrize("name", ["a.ndjson", "a.ndjson.gz", "a.ndjson.zst"])
def test_an_archive_gives_the_records_that_it_was_made_of(tmp_path: Path, name: str) -> None:
    """However it is compressed, and whatever bytes they hold."""
    some = list(records(20))[-30:]
    odd = some[0]._replace(key=None, value=b"\xff", headers=(("a", b"\xfe"), ("b", b"c")))
    assert list(read_files([written(tmp_path / name, [odd, *some[1:]])])) == [odd, *some[1:]]


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_a_compressed_file_that_ends_early_says_how_far_it_was_read(tmp_path: Path, compress: object) -> None:
    """It is an error with the file's name, never a shorter log."""
    path = tmp_path / "cut"
    path.write_bytes(compress(os.urandom(200_000).hex().encode() + b"\n" + b"x" * 200_000)[:-3])  # type: ignore[operator]
    with pytest.raises(InputError, match="whole lines were read") as caught:
        list(open_archive(path))
    assert caught.value.code in ("archive_truncated", "archive_damaged")


def test_zstd_frames_that_follow_each_other_are_one_file(tmp_path: Path) -> None:
    path = tmp_path / "two"
    path.write_bytes(zstandard.compress(b"a\n") + zstandard.compress(b"b\n"))
    assert list(open_archive(path)) == [b"a\n", b"b\n"]


def test_one_that_is_interrupted_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    """SIGINT leaves a progress file and says so; --resume gives the undisturbed files, other options an error."""
    path = written(tmp_path / "in.ndjson", list(records(30_000)))
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert run("replay", "--input", str(path), "--output", str(whole)).returncode == 0
    arguments = ("replay", "--input", str(path), "--output", str(cut))
    process = subprocess.Popen(
        [sys.executable, "-m", "assay_stream", *arguments], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    evidence = cut / "evidence.ndjson.part"
    while process.poll() is None and not (evidence.exists() and evidence.stat().st_size):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert b"--resume" in said
    assert evidence.stat().st_size < (whole / "evidence.ndjson").stat().st_size
    refused = run(*arguments, "--resume", "--call-profile", "handshake")
    assert (refused.returncode, b"resume_differs" in refused.stderr) == (2, True)
    done = run(*arguments, "--resume", "--progress")
    assert done.returncode == 0, done.stderr
    assert results(cut) == results(whole)
    assert not (cut / PROGRESS_FILE).exists()


def test_a_range_without_calls_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    path = written(tmp_path / "in.ndjson", list(records(3)))
    options = ("--from-time", "2099-01-01T00:00:00Z", "--output", str(tmp_path / "out"))
    done = run("replay", "--input", str(path), *options)
    assert done.returncode == 5
    assert b"the selection matches no call" in done.stderr


def test_what_found_nothing_leaves_room_for_the_next_try(tmp_path: Path) -> None:
    """A range that was mistyped writes no empty files, which the corrected command would be refused for."""
    path = written(tmp_path / "in.ndjson", list(records(3)))
    arguments = ("replay", "--input", str(path), "--output", str(tmp_path / "out"))
    assert run(*arguments, "--server-id", "nobody").returncode == 5
    assert list((tmp_path / "out").iterdir()) == []
    assert run(*arguments).returncode == 0


def test_servers_narrow_the_evidence(tmp_path: Path) -> None:
    """The lines are those of the whole replay that are about this server."""
    path = written(tmp_path / "in.ndjson", list(records(400)))
    for name, options in (("all", ()), ("one", ("--server-id", "server-7"))):
        assert run("replay", "--input", str(path), "--output", str(tmp_path / name), *options).returncode == 0
    every = (tmp_path / "all" / "evidence.ndjson").read_bytes().splitlines()
    wanted = [line for line in every if b'"server_id":"server-7"' in line]
    assert (tmp_path / "one" / "evidence.ndjson").read_bytes().splitlines() == wanted
    assert 0 < len(wanted) < len(every)


def test_roles_of_an_archive_are_those_that_a_replay_reads(tmp_path: Path) -> None:
    """Snapshots and calls come back under their own roles."""
    path = written(tmp_path / "in.ndjson", list(records(2)))
    assert {record.role for record in read_files([path])} == {Role.SNAPSHOTS, Role.CALLS}


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    """A name is bytes to the system: those that are not UTF-8 stand escaped in the origins of its lines."""
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/tag\xe4.ndjson"))
    path.write_bytes(observed(tmp_path, called(tmp_path)).read_bytes())
    done = run("replay", "--input", str(path), "--output", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    evidence = tmp_path / "out" / "evidence.ndjson"
    assert json.loads(evidence.read_bytes().splitlines()[0])["data"]["origin"]["topic"] == r"tag\xe4.ndjson"
    for command in (("verify", "--evidence", str(evidence)), ("compare", "--evidence", str(evidence)), ("coverage",)):
        done = run(*command, "--input", str(path))
        assert done.returncode == 0, done.stderr
    table = str(tmp_path / "table.csv")
    done = run("export", "timesketch", "--input", str(path), "--output", table)
    assert done.returncode == 2, done.stderr
