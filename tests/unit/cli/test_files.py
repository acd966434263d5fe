"""How commands read files and standard input."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay_stream.cli.options import input_lines, read_input
from assay_stream.errors import InputError
from assay_stream.files.local import PREFIX
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.record import Role
from assay_stream.replay.run import FILES, PROGRESS_FILE
from tests.support.command import every_command, run_command
from tests.support.exports import a_file, replayed, values
from tests.unit.cli.test_publish_replay import called, observed


def test_lines_have_their_numbers_in_the_file(tmp_path: Path) -> None:
    """Blank lines are left out and counted all the same; line ends of both kinds go, also a missing last one."""
    path = tmp_path / "lines"
    path.write_bytes(b"a\n\n  \t\nb\r\nc")
    assert list(input_lines(path)) == [(1, b"a"), (4, b"b"), (5, b"c")]


def test_an_endless_line_is_cut_behind_the_limit(tmp_path: Path) -> None:
    """It is given over the limit, so that it is refused, and the next line is the next line."""
    limit = DEFAULT_LIMITS.record_bytes_max
    path = tmp_path / "lines"
    path.write_bytes(b"x" * (3 * limit) + b"\ny\n")
    (first, line), second = input_lines(path)
    assert (first, second) == (1, (2, b"y"))
    assert limit < len(line) <= limit + 2


def test_packed_lines_are_read_as_plain_ones(tmp_path: Path) -> None:
    """Folders give packed files too, so every reader of lines takes them."""
    path = tmp_path / "lines.ndjson.gz"
    path.write_bytes(gzip.compress(b"a\n\nb\n"))
    assert list(input_lines(path)) == [(1, b"a"), (3, b"b")]


def test_packed_alerts_are_listed_from_their_folder(tmp_path: Path) -> None:
    """Under the name by which the folder offers them."""
    (tmp_path / "alerts.ndjson.gz").write_bytes(gzip.compress(values(replayed(), Role.ALERTS)[0] + b"\n"))
    done = run_command("alerts", "list", "--status", "all", "--format", "json", "--input", str(tmp_path))
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1), done.stderr


def test_a_stopped_command_leaves_no_copy_of_standard_input(tmp_path: Path) -> None:
    """It ends by the signal, as it would without the copy."""
    arguments = ("replay", "--input", "-", "--output", str(tmp_path / "out"))
    (folder := tmp_path / "tmp").mkdir()
    command = [sys.executable, "-m", "assay_stream", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=os.environ | {"TMPDIR": str(folder)}) as process:
        while not list(folder.glob("*/stdin")):
            assert process.poll() is None
            time.sleep(0.05)
        process.terminate()
        assert process.wait(30) == -signal.SIGTERM
    assert list(folder.iterdir()) == []


def test_standard_input_is_one_input(tmp_path: Path) -> None:
    """The second reader would find nothing, and call all evidence gone."""
    done = run_command("verify", "--evidence", "-", "--input", "-", stdin=b"{}\n")
    assert done.returncode == 2
    assert b"unreadable_file: `-` stands for standard input twice" in done.stderr
    alert = values(replayed(), Role.ALERTS)[0]
    uid = json.loads(alert)["finding_info"]["uid"]
    done = run_command("alerts", "show", uid, "--input", "-", "--evidence", "-", stdin=alert)
    assert done.returncode == 2, "it would show that nobody called the tool"
    assert b"unreadable_file: `-` stands for standard input twice" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "alerts list --input {}",
        "seal keygen --out {}",
        "demo --no-broker --output {}",
        "store load {} --store store",
        "evidence erase-files --input . --control control --output {}",
    ],
)
@pytest.mark.parametrize("kind", ["long", "loop"])
def test_a_path_that_the_system_cannot_look_up_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, kind: str
) -> None:
    """As one in a folder that this user may not search, which a superuser's tests cannot have."""
    monkeypatch.chdir(tmp_path)
    path = {"long": "n" * 300, "loop": "loop/file"}[kind]
    Path("control").touch()
    Path("loop").symlink_to("loop")
    done = run_command(*command.format(path).split())
    assert done.returncode == 2
    assert done.stderr.startswith(b"assay-stream: ")
    assert path.encode() in done.stderr


@pytest.mark.parametrize("name", ["missing", "."])
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    """A file that is not there, or is a folder, is an error with its path."""
    path = tmp_path / name
    for read in (lambda: list(input_lines(path)), lambda: read_input(path)):
        with pytest.raises(InputError, match=f"unreadable_file.*{path}"):
            read()


REFUSED = {
    "archive": "tests/unit/cli/test_archiving.py",
    "demo": "tests/unit/cli/test_demo.py",
    "deploy kubernetes": "tests/conformance/test_kubernetes.py",
    "evidence erase-files": "tests/acceptance/test_erasure_dialogue.py",
    "export assay-bundle": "here",
    "export parquet": "here",
    "export timesketch": "here",
    "publish": "here",
    "replay": "here",
    "schemapin keygen": "tests/unit/cli/test_schemapin.py",
    "seal archive": "tests/unit/files/test_seal_files.py",
    "seal keygen": "tests/unit/cli/test_sealing.py",
    "seal prove": "tests/unit/cli/test_seal_checking.py",
}
"""Commands that refuse what is there, and where that is tested."""

ADDED_TO = {
    *("tap", "extmcp", "list-watch"),
    "schemapin fetch",
    *(f"pins {name}" for name in ("approve", "reject", "remove", "import")),
    *("policy set", "policy remove", "keys accept", "keys revoke"),
    *("evidence erase", "evidence hold", "evidence release"),
    *(f"alerts {name}" for name in ("suppress", "unsuppress", "acknowledge", "assign", "comment", "close", "reopen")),
}
"""Commands that add lines to a file of observations or decisions (``tests/unit/observe/test_sinks.py``)."""

OUTPUTS = {"--output", "--out", "--private-key", "--public-key"}


def test_every_command_that_writes_files_is_known_here() -> None:
    """A new one is either refused what is there or adds to it, and is tested for that."""
    options = {name: {each for option in command.params for each in option.opts} for name, command in every_command()}
    writing = {name for name, opts in options.items() if not OUTPUTS.isdisjoint(opts)}
    writing -= {"schemapin sign", "schemapin well-known", "schemapin verify"}  # they read keys, and print
    assert writing == REFUSED.keys() | ADDED_TO
    forced = {name for name, opts in options.items() if "--force" in opts}
    assert forced == REFUSED.keys() - {
        *("demo", "evidence erase-files", "schemapin keygen", "seal keygen", "seal archive")
    }


@pytest.fixture(scope="module")
def replay_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, outputs = tmp_path_factory.mktemp("replayed"), replayed()
    for role in (Role.EVIDENCE, Role.ALERTS, Role.DEFINITIONS):
        a_file(path / FILES[role], *values(outputs, role))
    return path


def everything(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def refused(done: subprocess.CompletedProcess[bytes], place: Path) -> bool:
    assert done.returncode == 2, done.stderr
    return all(part in done.stderr for part in (b"output_exists", str(place).encode(), b"--force"))


@pytest.mark.parametrize(
    ("command", "name"),
    [("assay-bundle", "b.tar.gz"), ("parquet", "folder"), ("timesketch", "t.csv"), ("timesketch", "t.jsonl")],
)
def test_an_export_is_replaced_only_when_asked(command: str, name: str, replay_folder: Path, tmp_path: Path) -> None:
    """A narrower one by mistake leaves the earlier one; an empty one does so even with --force."""
    place = tmp_path / name
    arguments = ("export", command, "--input", str(replay_folder), "--output", str(place))
    assert run_command(*arguments).returncode == 0
    folder = place if place.is_dir() else tmp_path
    before = everything(folder)
    assert refused(run_command(*arguments), place)
    assert run_command(*arguments, "--force", "--server-id", "nobody").returncode == 1
    assert everything(folder) == before
    if place.is_dir():
        (place / "evidence.parquet").write_bytes(b"old")
    else:
        place.write_bytes(b"old")
    assert run_command(*arguments, "--force").returncode == 0
    assert everything(folder) == before


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (("export", "assay-bundle", "--input", "in", "--output", "o\udcff.tar.gz"), r"o\\xff.tar.gz"),
        (("drift", "in.json", "o\udcff.json", "--format", "sarif"), "o%FF.json"),
        (("drift", "o\udcff.json", "in.json", "--as", "p60"), r"o\\xff.json"),
        (("drift", "o\udcff.json", "in.json", "--as", "mcptrust"), r"o\\xff.json"),
        (("deploy", "kubernetes", "--image", "x", "--strimzi", "s", "--output", "o\udcff"), r"wrote o\xff: "),
    ],
)
def test_a_file_may_have_a_name_that_is_no_text(
    command: tuple[str, ...], named: str, replay_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of files are bytes. What is printed is text all the same."""
    monkeypatch.chdir(tmp_path)
    Path("in").symlink_to(replay_folder)
    for name in ("in.json", "o\udcff.json"):
        Path(name).write_text(f'{{"tools": [{{"name": "t", "description": "{name.isascii()}"}}]}}')
    done = run_command(*command)
    assert done.returncode < 2, done.stderr
    assert named in done.stdout.decode()


def test_bundles_of_an_earlier_split_are_refused_and_replaced_too(replay_folder: Path, tmp_path: Path) -> None:
    """Numbers beyond those of the new export would be taken for part of it."""
    place = tmp_path / "b.tar.gz"
    arguments = ("export", "assay-bundle", "--input", str(replay_folder), "--output", str(place))
    assert run_command(*arguments, "--split", "10").returncode == 0
    assert sorted(everything(tmp_path)) == [f"b-000{number}.tar.gz" for number in range(1, 5)]
    assert refused(run_command(*arguments), tmp_path / "b-0001.tar.gz")
    assert run_command(*arguments, "--split", "20", "--force").returncode == 0
    assert sorted(everything(tmp_path)) == ["b-0001.tar.gz", "b-0002.tar.gz"]


def test_an_export_that_fails_leaves_the_one_before(replay_folder: Path, tmp_path: Path) -> None:
    """No bundle of several has been replaced when the run id of one is refused."""
    place = tmp_path / "b.tar.gz"
    arguments = ("export", "assay-bundle", "--input", str(replay_folder), "--output", str(place))
    assert run_command(*arguments).returncode == 0
    before = everything(tmp_path)
    assert run_command(*arguments, "--force", "--run-id", "bad:id").returncode == 2
    assert everything(tmp_path) == before


def test_published_files_are_replaced_only_when_asked(tmp_path: Path) -> None:
    """Nor by a run that could not read its input."""
    path = observed(tmp_path, called(tmp_path))
    before = path.read_bytes()
    arguments = ("publish", "--from", "mcp-wire", "--server-id", "x", "--dry-run", "--output", str(path))
    assert refused(run_command(*arguments, str(tmp_path / "wire.jsonl")), path)
    assert run_command(*arguments, "--force", str(tmp_path / "missing")).returncode == 2
    assert path.read_bytes() == before
    assert run_command(*arguments, "--force", str(tmp_path / "wire.jsonl")).returncode == 0
    assert path.read_bytes() != before
    assert sorted(everything(tmp_path)) == ["observed.ndjson", "wire.jsonl"]


def test_published_files_hold_nothing_that_a_killed_run_left(tmp_path: Path) -> None:
    wire = called(tmp_path)
    before = observed(tmp_path, wire).read_bytes()
    (tmp_path / f"{PREFIX}again.ndjson").write_bytes(b"left over\n")
    assert observed(tmp_path, wire, name="again.ndjson").read_bytes() == before


def test_an_output_that_cannot_be_written_is_named_as_it_was_given(tmp_path: Path) -> None:
    path = str(tmp_path / "missing" / "o.ndjson")
    options = ("--from", "mcp-wire", "--server-id", "x", "--dry-run", "--output", path)
    done = run_command("publish", *options, str(called(tmp_path)))
    why = f"assay-stream: unwritable_file: cannot write {path}: No such file or directory\n"
    assert (done.returncode, done.stderr.decode()) == (2, why)


@pytest.fixture
def replayed_once(tmp_path: Path) -> tuple[list[str], Path]:
    folder = tmp_path / "out"
    arguments = ["replay", "--input", str(observed(tmp_path, called(tmp_path))), "--output", str(folder)]
    assert run_command(*arguments).returncode == 0
    return arguments, folder


def test_results_of_a_replay_are_refused_whatever_the_folder_holds(
    replayed_once: tuple[list[str], Path], tmp_path: Path
) -> None:
    """Before the input is opened; also one file of somebody else's."""
    arguments, folder = replayed_once
    before = everything(folder)
    assert refused(run_command(*arguments), folder)
    assert refused(run_command(*arguments, "--resume"), folder), "there is nothing to resume"
    assert everything(folder) == before
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("x")
    assert refused(run_command("replay", "--input", "/nowhere", "--output", str(other)), other)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (("--from-time", "2099-01-01T00:00:00Z"), 5),
        (("--offsets", "calls:0=7..7"), 2),
        (("--input", "/nowhere"), 2),
        (("--to-time", "soon"), 2),
    ],
)
def test_forcing_a_replay_that_finds_nothing_keeps_the_results(
    replayed_once: tuple[list[str], Path], more: tuple[str, ...], code: int
) -> None:
    """A mistyped window once emptied them."""
    arguments, folder = replayed_once
    before = everything(folder)
    assert run_command(*arguments, *more, "--force").returncode == code
    assert everything(folder) == before


def test_a_forced_replay_replaces_its_own_files_only(replayed_once: tuple[list[str], Path]) -> None:
    """What else is in the folder is not ours."""
    arguments, folder = replayed_once
    before = everything(folder)
    (folder / "evidence.ndjson").write_bytes(b"old\n")
    (folder / "notes.txt").write_bytes(b"x")
    assert run_command(*arguments, "--force").returncode == 0
    assert everything(folder) == before | {"notes.txt": b"x"}


def test_an_interrupted_replay_is_resumed_or_replaced_when_asked(replayed_once: tuple[list[str], Path]) -> None:
    """Without either option the way out is named; what a kill left before its first point is nobody's result."""
    arguments, folder = replayed_once
    before = everything(folder)
    for name in FILES.values():
        (folder / name).rename(folder / f"{name}.part")
    assert run_command(*arguments).returncode == 0
    assert everything(folder) == before
    (folder / PROGRESS_FILE).write_bytes(b"{}")
    done = run_command(*arguments)
    assert refused(done, folder)
    assert b"--resume" in done.stderr
    assert b"bad_progress_file" in run_command(*arguments, "--resume").stderr
    assert run_command(*arguments, "--force").returncode == 0
    assert everything(folder) == before


@pytest.mark.parametrize("content", [b"", b"\n", b"no json\n", b"\x1f\x8b", b"{}\n[]\n"])
def test_a_file_without_a_readable_record_is_an_error(content: bytes, tmp_path: Path) -> None:
    """And keeps earlier results; a new folder says what was refused."""
    path, folder = tmp_path / "in.ndjson", tmp_path / "out"
    path.write_bytes(content)
    done = run_command("replay", "--input", str(path), "--output", str(folder))
    assert done.returncode == 2
    assert b"no_readable_record" in done.stderr or b"archive_" in done.stderr
    good = tmp_path / "good"
    again = ("replay", "--input", str(observed(tmp_path, called(tmp_path))), "--output", str(good))
    assert run_command(*again).returncode == 0
    before = everything(good)
    assert run_command("replay", "--input", str(path), "--output", str(good), "--force").returncode == 2
    assert everything(good) == before
