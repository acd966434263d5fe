"""Input that is made to be refused: a few bytes that become gigabytes of refusals, or hours of work."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from assay_stream import limits
from assay_stream.errors import InputError
from assay_stream.files import lines as reading
from assay_stream.files.archive import read_files
from assay_stream.files.lines import record_line
from assay_stream.limits import LINE_BYTES_MAX
from assay_stream.model.record import OBSERVER_HEADER, Role
from assay_stream.replay import run as replaying
from tests.support.command import invoke as run
from tests.support.counting import counted_calls
from tests.support.events import TOOL, Story

LINES = 318_000
"""In 653 bytes of gzip."""


def packed(path: Path, *parts: bytes) -> Path:
    path.write_bytes(gzip.compress(b"".join(parts), mtime=0))
    return path


def observed() -> bytes:
    return b"".join(record_line(record) + b"\n" for record in Story().lists(TOOL).calls().calls().records)


def evidence_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line)["data"] for line in (folder / "evidence.ndjson").read_bytes().splitlines()]


def rejected_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rejected.ndjson").read_bytes().splitlines()]


def test_two_byte_lines_do_not_become_megabytes_of_refusals(tmp_path: Path) -> None:
    """The first are refused one by one; the last says how many there are besides and from which line on."""
    bomb = packed(tmp_path / "bomb.ndjson.gz", b"x\n" * LINES)
    assert bomb.stat().st_size < 1_000
    sound = packed(tmp_path / "sound.ndjson.gz", observed())
    done = run("replay", "--input", bomb, "--input", sound, "--output", tmp_path / "out")
    assert done.exit_code == 0, done.output
    rejected = rejected_in(tmp_path / "out")
    assert (tmp_path / "out" / "rejected.ndjson").stat().st_size < 2 * 1_024 * 1_024
    assert [line["error"]["offset"] for line in rejected] == [str(n) for n in range(limits.REFUSED_RECORDS_MAX + 1)]
    assert rejected[-1]["headers"] == [["assay-left-out", str(LINES - limits.REFUSED_RECORDS_MAX)]]
    assert rejected[-1]["error"]["code"] == "refused_too_often"
    assert "308,000 refused records left out" in done.stderr
    assert len((tmp_path / "out" / "evidence.ndjson").read_bytes().splitlines()) == 2


def test_two_byte_lines_cost_their_reader_a_look_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (reading, replaying):
        monkeypatch.setattr(module, "REFUSED_RECORDS_MAX", 100)

    def calls(lines: int) -> int:
        bomb = packed(tmp_path / "bomb.ndjson.gz", b"x\n" * lines)
        return counted_calls(lambda: run("replay", "--force", "--input", bomb, "--output", tmp_path / "out"))

    assert (calls(3_100) - calls(1_100)) / 2_000 < 8


def test_longer_refused_lines_are_bounded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "REFUSED_RECORDS_MAX", 100)
    control = b'{"specversion":"1.0","type":"assay.control.bomb"}\n'
    bomb = packed(tmp_path / "bomb.ndjson.gz", observed(), control * 3_000)
    call = b'{"specversion":"1.0","type":"mcp.tools.call.observed"}\n'
    packed(tmp_path / "calls.ndjson.gz", call * 200)
    options = ("--input", bomb, "--input", tmp_path / "calls.ndjson.gz")
    done = run("replay", *options, "--output", tmp_path / "out")
    assert done.exit_code == 0, done.output
    written = rejected_in(tmp_path / "out")
    assert len(written) == 2 * (100 + 1)
    told = {line["error"]["topic"]: (line["error"]["offset"], line["headers"]) for line in written[-2:]}
    assert told == {
        "bomb.ndjson.gz": ("103", [["assay-left-out", "2900"]]),
        "calls.ndjson.gz": ("100", [["assay-left-out", "100"]]),
    }
    assert {line["error"]["code"] for line in written[-2:]} == {"refused_too_often"}
    assert json.loads(done.stdout)["what"]["rejected:unknown_type"] == 3_000
    assert len((tmp_path / "out" / "evidence.ndjson").read_bytes().splitlines()) == 2


def test_few_large_refused_lines_are_bounded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "REFUSED_BYTES_MAX", 1_024 * 1_024)
    bombs = [packed(tmp_path / f"{name}.gz", (b"x" * 100_000 + b"\n") * 40) for name in ("a", "b")]
    run("replay", *(part for bomb in bombs for part in ("--input", bomb)), "--output", tmp_path / "out")
    assert 0 < (tmp_path / "out" / "rejected.ndjson").stat().st_size < 2 * 1_100_000
    left_out = [line["headers"] for line in rejected_in(tmp_path / "out") if line["headers"]]
    assert left_out == [[["assay-left-out", "30"]]] * 2


def test_short_and_long_refused_lines_are_counted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where both are beyond their bounds, the record that says so counts each line once."""
    for module in (reading, replaying):
        monkeypatch.setattr(module, "REFUSED_RECORDS_MAX", 100)
    lines = [b"x" * 40 + b"\n", b"x\n"] * 150
    done = run("replay", "--input", packed(tmp_path / "bomb.gz", *lines), "--output", tmp_path / "out")
    assert done.exit_code == 1
    last = rejected_in(tmp_path / "out")[-1]
    assert (last["error"]["offset"], last["headers"]) == ("100", [["assay-left-out", "200"]])


def test_a_record_that_says_it_stands_for_others_ends_no_replay(tmp_path: Path) -> None:
    story = Story().lists(TOOL).calls()
    call = story.records[-1]
    for count in (b"", b"x", b"9" * 5_000):
        forged = call._replace(headers=(("assay-left-out", count),), value=b"{")
        path = tmp_path / "in.ndjson"
        path.write_bytes(b"".join(record_line(record) + b"\n" for record in (*story.records[:-1], forged)))
        done = run("replay", "--force", "--input", path, "--output", tmp_path / "out")
        assert done.exit_code == 0, done.output
        assert rejected_in(tmp_path / "out")[-1]["headers"] == [["assay-left-out", "1"]]


def test_a_flood_of_short_lines_leaves_no_list_out(tmp_path: Path) -> None:
    """The shortest line that counts as a list ends the lists before it: it stays a record of its own."""
    shortest = b'{"type":"mcp.tools.list.observed"}'
    path = tmp_path / "in.ndjson"
    path.write_bytes(b"{}\n" * (limits.REFUSED_RECORDS_MAX + 10) + shortest + b"\n")
    records = list(read_files([path]))
    assert [record.value for record in records if record.role == "snapshots"] == [shortest]
    assert len(records) == limits.REFUSED_RECORDS_MAX + 2


@pytest.mark.parametrize("filler", ["\0", "\u00e9"])
def test_a_compressed_giant_in_an_archive_leaves_no_call_bound(filler: str, tmp_path: Path) -> None:
    """A broker takes it as a few kilobytes; as a line it is cut. Replay and verify refuse it as the registry did."""
    giant = (filler * (LINE_BYTES_MAX // len(filler.encode()))).encode()
    story = Story().lists(TOOL).raw(Role.SNAPSHOTS, giant, headers=((OBSERVER_HEADER, b"proxy-1"),)).calls()
    path = tmp_path / "in.ndjson"
    story.write(path)
    done = run("replay", "--input", path, "--output", tmp_path / "out")
    assert done.exit_code == 0, done.output
    (error,) = (line["error"] for line in rejected_in(tmp_path / "out"))
    assert (error["code"], error["topic"], error["offset"]) == ("too_large", "snapshots", "1")
    assert story.tell().evidence == evidence_in(tmp_path / "out")
    done = run("verify", "--input", path, "--evidence", tmp_path / "out")
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    "line",
    [
        b'{"origin":{"topic":"t","partition":0,"offset":1},"role":"snapshots","headers":[["n","%b"]],"value":"x"}',
        b'{"origin":{"topic":"t,\\"value\\":\\"","partition":0,"offset":1},"role":"%b"}',
    ],
)
def test_a_line_whose_value_is_not_what_is_too_long_is_an_error(line: bytes, tmp_path: Path) -> None:
    path = packed(tmp_path / "in.gz", line.replace(b"%b", b"x" * LINE_BYTES_MAX), b"\n")
    with pytest.raises(InputError, match="line_too_long"):
        list(read_files([path]))


def test_publishing_a_flood_names_the_first_refused_lines_and_counts_the_rest(tmp_path: Path) -> None:
    bomb = packed(tmp_path / "bomb.ndjson.gz", b"x\n" * 20_000)
    done = run("publish", "--from", "observations", "--dry-run", "--output", tmp_path / "out.ndjson", bomb)
    assert done.exit_code == 2
    lines = done.stderr.splitlines()
    assert lines[0] == "wrote 0, refused 20000"
    assert len(lines) == limits.REFUSED_RECORDS_MAX + 2
    assert "10,000 more lines" in lines[-1]


def test_a_file_of_another_kind_does_not_bury_the_answer(tmp_path: Path) -> None:
    """A question names the first lines that it cannot read: none of them is evidence."""
    path = tmp_path / "observed.ndjson"
    path.write_bytes(b"{}\n" * 1_000)
    done = run("evidence", "list", "--evidence", path)
    assert done.exit_code == 3
    *named, more, answer = done.stderr.splitlines()
    assert len(named) == limits.REFUSED_NAMED_MAX
    assert "980 more lines" in more
    assert "no call matches" in answer
