"""``assay-stream publish --dry-run`` and ``assay-stream replay``: files in, files out."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay_stream.files.archive import write_archive
from assay_stream.files.lines import record_line
from assay_stream.model.record import Record
from assay_stream.replay.run import PROGRESS_FILE
from bench.bench_replay import records
from tests.support.command import run_command as run
from tests.support.events import a_call

CAPTURES = Path(__file__).resolve().parents[2] / "data" / "captures" / "wire"
WIRE = CAPTURES / "mcp-server-time@2026.10.19.jsonl"


def observed(tmp_path: Path, wire: Path, server_id: str = "time", name: str = "observed.ndjson") -> Path:
    path = tmp_path / name
    done = run(
        *("publish", "--from", "mcp-wire", "--server-id", server_id, "--observer-id", "proxy"),
        *("--dry-run", "--output", str(path), str(wire)),
    )
    assert done.returncode == 0, done.stderr
    return path


def results(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def called(folder: Path) -> Path:
    """A captured session of one list and two calls, one of them of a tool that is not listed."""
    messages = [
        ("client->server", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
        ("server->client", {"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": "t", "inputSchema": {}}]}}),
        ("client->server", {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "t"}}),
        ("server->client", {"jsonrpc": "2.0", "id": 2, "result": {"content": []}}),
        ("client->server", {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "u"}}),
        ("server->client", {"jsonrpc": "2.0", "id": 3, "result": {"content": []}}),
    ]
    path = folder / "wire.jsonl"
    lines = [
        json.dumps({"dir": direction, "ts": f"2026-03-01T00:00:{second:02}.000Z", "msg": message})
        for second, (direction, message) in enumerate(messages)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_publishing_a_capture_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    """Ids and times come from the file, so that a second publishing is recognisable as the first."""
    one, other = (observed(tmp_path, WIRE, name=name).read_bytes() for name in ("one", "other"))
    assert one == other
    assert one


def test_the_summary_counts_what_was_written(tmp_path: Path) -> None:
    """One JSON object says how many lines each file has and what happened."""
    path = observed(tmp_path, called(tmp_path))
    done = run("replay", "--input", str(path), "--output", str(tmp_path / "out"))
    summary = json.loads(done.stdout)
    lines = {name.removesuffix(".ndjson"): raw.count(b"\n") for name, raw in results(tmp_path / "out").items()}
    assert summary["written"] == lines == {"alerts": 2, "changes": 0, "definitions": 1, "evidence": 2, "rejected": 0}
    assert summary["what"]["unbound:tool_not_listed"] == 1
    assert summary["what"]["finding:call_to_unlisted_tool"] == 1


@pytest.mark.parametrize("wire", sorted(CAPTURES.glob("*.jsonl")), ids=lambda path: path.name)
def test_every_capture_is_replayed_without_a_refusal(tmp_path: Path, wire: Path) -> None:
    """The sessions of real servers give observations that the engine accepts."""
    path = observed(tmp_path, wire)
    done = run("replay", "--input", str(path), "--output", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    written = results(tmp_path / "out")
    assert written["rejected.ndjson"] == b""
    assert written["definitions.ndjson"]


def test_bad_lines_are_kept_with_their_reason(tmp_path: Path) -> None:
    """A replay refuses bad lines into a file of their own and goes on: that is no failure of the command."""
    path = observed(tmp_path, called(tmp_path))
    path.write_bytes(b'\xff\n{"specversion":"1.0"}\n' + path.read_bytes())
    done = run("replay", "--input", str(path), "--output", str(tmp_path / "out"))
    assert done.returncode == 0
    refused = [json.loads(line) for line in results(tmp_path / "out")["rejected.ndjson"].splitlines()]
    assert [line["error"]["code"] for line in refused] == ["not_utf8", "unknown_type"]
    assert json.loads(done.stdout)["written"]["evidence"] == 2


def test_bad_lines_of_a_capture_are_named_and_left_out(tmp_path: Path) -> None:
    """The others are published; the exit code says that something was wrong."""
    wire = called(tmp_path)
    wire.write_bytes(b"junk\n" + wire.read_bytes())
    done = run(
        *("publish", "--from", "mcp-wire", "--server-id", "s", "--observer-id", "p"),
        *("--dry-run", "--output", str(tmp_path / "o"), str(wire)),
    )
    assert done.returncode == 2
    assert b"line 1" in done.stderr
    assert str(wire).encode() in done.stderr
    assert len((tmp_path / "o").read_bytes().splitlines()) == 3


def test_a_capture_may_come_from_standard_input(tmp_path: Path) -> None:
    """A dash reads standard input, and gives what the file gives."""
    wire = called(tmp_path)
    done = run(
        *("publish", "--from", "mcp-wire", "--server-id", "time", "--observer-id", "proxy"),
        *("--dry-run", "--output", str(tmp_path / "o"), "-"),
        stdin=wire.read_bytes(),
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "o").read_bytes() == observed(tmp_path, wire).read_bytes()


def test_observations_are_published_as_they_are(tmp_path: Path) -> None:
    """Our own events need no server id, and pass unchanged."""
    path = observed(tmp_path, called(tmp_path))
    done = run("publish", "--from", "observations", "--dry-run", "--output", str(tmp_path / "o"), str(path))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "o").read_bytes() == path.read_bytes()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A file in the place of the folder is an error of its own code."""
    path = observed(tmp_path, called(tmp_path))
    done = run("replay", "--input", str(path), "--output", str(path))
    assert done.returncode == 2
    assert b"unwritable_folder" in done.stderr


def test_a_broken_archive_stops_the_replay(tmp_path: Path) -> None:
    """A record line that cannot be read is an error, not a gap in the evidence."""
    path = tmp_path / "archive"
    path.write_text(json.dumps({"origin": {"topic": "t", "partition": 0, "offset": 0}, "role": "novelty"}))
    done = run("replay", "--input", str(path), "--output", str(tmp_path / "out"))
    assert done.returncode == 2
    assert b"bad_record_line" in done.stderr


def redacted_call(folder: Path) -> Path:
    path = folder / "call.ndjson"
    path.write_bytes(a_call(args={"path": "/home/jane"}) + b"\n")
    return path


def test_a_replay_redacts_as_it_is_told(tmp_path: Path) -> None:
    """Variables and options choose the same configuration, and its evidence names it."""
    path = redacted_call(tmp_path)
    told = {}
    for name, options, env in (
        ("default", (), {}),
        ("option", ("--redaction-enable", "path_absolute"), {}),
        ("variable", (), {"ASSAY_STREAM_REDACTION_ENABLE": "path_absolute"}),
        ("off", ("--redaction-enable", ""), {"ASSAY_STREAM_REDACTION_ENABLE": "path_absolute"}),
        ("names", ("--redaction-names", "path", "--redaction-disable", "env_var"), {}),
    ):
        done = run("replay", "--input", str(path), "--output", str(tmp_path / name), *options, stdin=b"", **env)
        assert done.returncode == 0, done.stderr
        data = json.loads((tmp_path / name / "evidence.ndjson").read_bytes())["data"]
        told[name] = (data["args_hash"], data.get("redaction"))
    assert told["option"] == told["variable"]
    assert told["default"] == told["off"]
    assert told["default"][1] is None
    assert len({args_hash for args_hash, _ in told.values()}) == 3
    assert len({redaction for _, redaction in told.values()}) == 3


@pytest.mark.parametrize(
    ("options", "env", "written"),
    [
        ((), {}, 2),
        (("--call-profile", "handshake"), {}, 0),
        ((), {"ASSAY_STREAM_CALL_PROFILE": "handshake"}, 0),
        (("--call-profile", "assay"), {"ASSAY_STREAM_CALL_PROFILE": "handshake"}, 2),
    ],
)
def test_calls_can_be_held_to_the_handshake_profile(
    tmp_path: Path, options: tuple[str, ...], env: dict[str, str], written: int
) -> None:
    """Captured calls lack what it asks for: under it they are rejected. The option beats the variable."""
    path = observed(tmp_path, called(tmp_path))
    done = run("replay", "--input", str(path), "--output", str(tmp_path / "out"), *options, stdin=b"", **env)
    counts = json.loads(done.stdout)["written"]
    assert (counts["evidence"], counts["rejected"]) == (written, 2 - written)


# --- sources, interruption and going on -----------------------------------------------------------------------


def written(path: Path, archived: list[Record]) -> Path:
    with write_archive(path) as archive:
        for record in archived:
            archive.write(record_line(record) + b"\n")
    return path


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
    for kind, option in (("evidence", "--evidence"), ("alerts", "--input")):
        renamed = path.with_name(f"{kind}{path.name}")
        (tmp_path / "out" / f"{kind}.ndjson").rename(renamed)
        done = run(kind, "list", option, str(renamed))
        assert done.returncode == 0, done.stderr
