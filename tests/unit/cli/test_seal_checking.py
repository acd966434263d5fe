"""``assay-stream seal verify``, ``prove`` and ``check-proof``, over files."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay_stream.model.checkpoint import decode, leaf_of
from assay_stream.model.record import ERASED_HEADER, ERASED_LEAF_HEADER
from tests.support.command import run_command_text
from tests.support.disk import files_of_at_most
from tests.support.seals import (
    KEYS,
    OTHER_KEY,
    TOPIC,
    Fleet,
    a_record,
    checkpoint_records,
    checkpoints_of,
    lines_of,
    some_records,
    write_keys,
)

FIRST, SECOND = some_records(2, 3, 5, 6), some_records(8, 9, 10)
RECORDS = FIRST + SECOND
SEALS = checkpoints_of(FIRST, SECOND)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_keys(tmp_path)
    write_keys(tmp_path, "other", OTHER_KEY)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "evidence-0.ndjson").write_bytes(lines_of([*RECORDS, a_record(12)]))
    (tmp_path / "kept" / "checkpoints-0.ndjson").write_bytes(lines_of(checkpoint_records(SEALS)))
    return tmp_path


def run(folder: Path, name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    key = ("--key", str(folder / "seal.pub.pem"))
    return run_command_text("seal", name, *key, *map(str, arguments))


def run_verify(folder: Path, *arguments: str | Path, of: str = "kept") -> subprocess.CompletedProcess[str]:
    return run(folder, "verify", "--evidence", folder / of, "--checkpoints", folder / of, *arguments)


def verify(folder: Path, *arguments: str | Path, code: int = 0, of: str = "kept") -> dict[str, Any]:
    done = run_verify(folder, "--format", "json", *arguments, of=of)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def faults(answer: dict[str, Any]) -> list[tuple[str, int]]:
    [log] = answer["logs"]
    return [(fault["kind"], fault["offset"]) for fault in log["faults"]]


def test_an_archive_that_nobody_touched_holds(folder: Path) -> None:
    assert verify(folder) == {
        "result": "holds",
        "logs": [
            {
                "topic": TOPIC,
                "partition": 0,
                "checkpoints": 2,
                "sealed_to": 10,
                "sealed_size": 7,
                "root": str(decode(SEALS[-1], KEYS).checkpoint.root),
                "verified": 7,
                "expired": 0,
                "unsealed": 1,
                "faults_count": 0,
                "erased": {},
                "faults": [],
            }
        ],
        "bad_lines_count": 0,
        "bad_lines": [],
        "erasures": [],
    }


def test_the_table_says_the_same(folder: Path) -> None:
    """One line for each log, and one for the result."""
    done = run_verify(folder)
    head, log, result = done.stdout.splitlines()
    assert head.split("  ")[0] == "LOG"
    assert log.split() == [f"{TOPIC}/0", "7", "7", "0", "1", "2", "10", "0"]
    assert result.startswith("holds: ")
    assert "unsealed records are not covered" in result


def test_who_gives_no_control_records_learns_that_they_may_explain_what_is_missing(folder: Path) -> None:
    headers = ((ERASED_HEADER, b"request-17"), (ERASED_LEAF_HEADER, leaf_of(RECORDS[0]).hex().encode()))
    stub = RECORDS[0]._replace(key=None, value=None, headers=headers)
    (folder / "kept" / "evidence-0.ndjson").write_bytes(lines_of([stub, *RECORDS[1:]]))
    done = run_verify(folder)
    assert f"missing    {TOPIC}/0 offset 2: erasure_unknown" in done.stdout.splitlines()
    assert "give an archive with control records (--control)" in done.stderr
    control = folder / "control.ndjson"
    control.touch()
    assert run_verify(folder, "--control", control).stderr == ""


def test_the_table_names_faults_and_bad_lines(folder: Path) -> None:
    """A record that is altered, and a line that is none."""
    (folder / "kept" / "evidence-0.ndjson").write_bytes(
        lines_of([RECORDS[0]._replace(value=b"other"), *RECORDS[1:]]) + b"no line\n"
    )
    done = run_verify(folder)
    assert done.returncode == 1
    assert f"altered    {TOPIC}/0 offset 2" in done.stdout.splitlines()
    assert "unreadable evidence-0.ndjson line 8" in done.stdout.splitlines()
    assert done.stdout.splitlines()[-1] == "broken"


def test_what_retention_deleted_is_not_missing(folder: Path) -> None:
    """Where the start of the log is given; nothing left to verify is exit code 3."""
    (folder / "kept" / "evidence-0.ndjson").write_bytes(lines_of(SECOND))
    assert [offset for _, offset in faults(verify(folder, code=1))] == [2, 3, 5, 6]
    [log] = verify(folder, "--log-start", "0:7")["logs"]
    assert (log["expired"], log["verified"]) == (4, 3)
    (folder / "kept" / "evidence-0.ndjson").write_bytes(b"")
    assert verify(folder, "--log-start", "0:11", code=3)["result"] == "nothing_verified"


def test_evidence_that_nobody_sealed_is_not_told_to_hold(folder: Path) -> None:
    """Exit code 3, and all of it is counted as unsealed."""
    (folder / "kept" / "checkpoints-0.ndjson").unlink()
    [log] = (answer := verify(folder, code=3))["logs"]
    assert (answer["result"], log["unsealed"], log["sealed_to"]) == ("nothing_verified", 8, None)


def test_an_archive_may_be_compressed_split_and_in_any_order(folder: Path) -> None:
    """Files of one log are read in the order of their first offsets."""
    (folder / "kept" / "evidence-0.ndjson").unlink()
    paths = [folder / "a.gz", folder / "b"]
    paths[0].write_bytes(gzip.compress(lines_of(SECOND)))
    paths[1].write_bytes(lines_of(FIRST))
    arguments = [argument for path in paths for argument in ("--evidence", path)]
    [log] = verify(folder, *arguments)["logs"]
    assert (log["verified"], log["faults_count"]) == (7, 0)


def test_a_partition_that_is_asked_for_and_gone_was_not_verified(folder: Path) -> None:
    """Whatever the others are like: it may have vanished with all its checkpoints."""
    assert len(verify(folder, "--partition", "1", "--partition", "0", code=3)["logs"]) == 1
    done = run_verify(folder, "--partition", "0", "--partition", "1")
    assert "neither evidence nor a checkpoint of partition 1" in done.stderr


@pytest.mark.parametrize("text", ["x", "1", "1:", ":1", "1:-1", "a:1"])
def test_a_malformed_log_start_is_refused(text: str, folder: Path) -> None:
    done = run(folder, "verify", "--evidence", folder / "kept", "--log-start", text)
    assert done.returncode == 2
    assert "PARTITION:OFFSET" in done.stderr


def test_a_missing_file_is_a_usage_error(folder: Path) -> None:
    done = run(folder, "verify", "--evidence", folder / "none", "--checkpoints", folder / "kept")
    assert (done.returncode, "unreadable_file" in done.stderr) == (2, True)


def prove(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    place = ("--partition", "0", "--checkpoints", folder / "kept", "--output", folder / "proof.json")
    return run(folder, "prove", *place, *arguments)


def test_a_record_is_proven_without_the_log(folder: Path) -> None:
    """And held against the record itself where it is given."""
    assert prove(folder, "--offset", "5").returncode == 0
    done = run(folder, "check-proof", folder / "proof.json")
    answer = json.loads(done.stdout)
    assert done.returncode == 0
    assert answer.items() >= {"valid": True, "offset": 5, "leaf_index": 2, "record_checked": False}.items()
    assert answer.items() >= {"topic": TOPIC, "partition": 0, "checkpoint": 1, "tree_size": 7}.items()
    (folder / "record").write_bytes(lines_of([a_record(5)]))
    done = run(folder, "check-proof", folder / "proof.json", "--record", folder / "record")
    assert (done.returncode, json.loads(done.stdout)["record_checked"]) == (0, True)
    (folder / "record").write_bytes(lines_of([a_record(6)]))
    done = run(folder, "check-proof", folder / "proof.json", "--record", folder / "record")
    assert (done.returncode, json.loads(done.stdout)["code"]) == (1, "proof_of_another_record")


def test_a_proof_is_replaced_only_when_asked(folder: Path) -> None:
    """It may be the only one of a log that is gone."""
    (folder / "proof.json").write_text("kept")
    done = prove(folder, "--offset", "5")
    assert (done.returncode, "output_exists" in done.stderr) == (2, True)
    assert (folder / "proof.json").read_text() == "kept"
    with files_of_at_most(20):
        done = prove(folder, "--offset", "5", "--force")
    assert (done.returncode, "unwritable_file" in done.stderr) == (2, True)
    assert (folder / "proof.json").read_text() == "kept"
    assert prove(folder, "--offset", "5", "--force").returncode == 0


def test_a_note_and_a_table_are_utf_8_in_every_locale(folder: Path) -> None:
    """The dash of a signed note is part of it, and names in a table may have any character."""
    evil = a_record(1)._replace(origin=a_record(1).origin._replace(topic="\x1b[2Jx"))
    (folder / "kept" / "evidence-1.ndjson").write_bytes(lines_of([evil]))
    place = ("--key", folder / "seal.pub.pem", "--checkpoints", folder / "kept")
    note, table = (
        subprocess.run(
            [sys.executable, "-m", "assay_stream", "seal", *command, *place],
            env=os.environ | {"PYTHONIOENCODING": "cp1252"},
            capture_output=True,
            check=False,
        ).stdout.decode()
        for command in (("checkpoint", "--partition", "0"), ("verify", "--evidence", folder / "kept"))
    )
    assert "\n\n\N{EM DASH} " in note
    assert "⟦U+001B ESCAPE⟧[2Jx/0" in table
    assert "\x1b" not in table


def test_two_checkpoints_are_proven_consistent(folder: Path) -> None:
    assert prove(folder, "--consistency", "0", "1").returncode == 0
    answer = json.loads(run(folder, "check-proof", folder / "proof.json").stdout)
    assert answer.items() >= {"valid": True, "kind": "consistency", "first_checkpoint": 0, "checkpoint": 1}.items()
    assert answer.items() >= {"first_tree_size": 4, "tree_size": 7}.items()


def test_an_altered_proof_does_not_hold(folder: Path) -> None:
    prove(folder, "--offset", "5")
    text = (folder / "proof.json").read_text()
    (folder / "proof.json").write_text(text.replace('"leaf_index":2', '"leaf_index":3'))
    done = run(folder, "check-proof", folder / "proof.json")
    assert (done.returncode, json.loads(done.stdout)["code"]) == (1, "proof_fails")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), "bad_option"),
        (("--offset", "5", "--consistency", "0", "1"), "bad_option"),
        (("--offset", "4"), "offset_not_sealed"),
        (("--consistency", "0", "2"), "checkpoint_not_found"),
        (("--offset", "5", "--partition", "1"), "checkpoint_not_found"),
        (("--offset", "5", "--output", "/nowhere/proof.json"), "unwritable_file"),
    ],
)
def test_what_cannot_be_proven_is_an_error(arguments: tuple[str, ...], code: str, folder: Path) -> None:
    done = prove(folder, *arguments)
    assert (done.returncode, done.stderr.startswith(f"assay-stream: {code}:")) == (2, True), done.stderr
    assert not (folder / "proof.json").exists()


def test_a_record_file_with_other_than_one_line_is_refused(folder: Path) -> None:
    """Which record is meant is not guessed."""
    prove(folder, "--offset", "5")
    for content in (b"", lines_of(FIRST), lines_of(checkpoint_records(SEALS[:1]))):
        (folder / "record").write_bytes(content)
        done = run(folder, "check-proof", folder / "proof.json", "--record", folder / "record")
        assert (done.returncode, "bad_record_line" in done.stderr) == (2, True)


@pytest.fixture
def fleet(folder: Path) -> Fleet:
    """Three partitions, sealed in turn, in a folder as ``seal archive`` writes it; their heads are kept."""
    fleet = Fleet(3)
    for partition in (0, 1, 2, 0, 1, 2):
        fleet.grow(partition, 3)
        fleet.seal(partition)
    fleet.grow(1, 2)
    fleet.write(folder / "fleet")
    verify_fleet(folder, "--write-head", folder / "head.json")
    return fleet


def verify_fleet(folder: Path, *arguments: str | Path, code: int = 0) -> dict[str, Any]:
    return verify(folder, *arguments, code=code, of="fleet")


def codes(answer: dict[str, Any]) -> set[tuple[int, str]]:
    return {
        (log["partition"], fault["code"])
        for log in answer["logs"]
        for fault in log["faults"]
        if fault["kind"] == "head"
    }


def test_an_untouched_fleet_holds_and_says_what_is_sealed(folder: Path, fleet: Fleet) -> None:
    """Sealed size, root and unsealed tail of each partition; the head that was kept is still there."""
    answer = verify_fleet(folder, "--expect", folder / "head.json")
    assert answer["result"] == "holds"
    assert [(log["sealed_size"], log["unsealed"]) for log in answer["logs"]] == [(6, 0), (6, 2), (6, 0)]
    heads = json.loads((folder / "head.json").read_bytes())["heads"]
    assert [head["root"] for head in heads] == [log["root"] for log in answer["logs"]]


def test_a_removed_partition_is_missed_by_its_siblings(folder: Path, fleet: Fleet) -> None:
    """Evidence and checkpoints of one partition are gone from the folder."""
    for path in (folder / "fleet").glob("*-1.ndjson"):
        path.unlink()
    answer = verify_fleet(folder, code=1)
    assert codes(answer) == {(1, "partition_missing")}
    [fault] = [fault for log in answer["logs"] for fault in log["faults"][:1]]
    assert fault["offset"] == 0
    assert "checkpoint 1 of partition 0 knows of 3 sealed records, there are 0" in fault["detail"]
    assert "find the later copy" in fault["fix"]


def test_a_cut_that_no_sibling_knows_of_is_known_by_the_head(folder: Path, fleet: Fleet) -> None:
    """Partition 2 was sealed last: none of the others was sealed after it."""
    fleet.cut(2, checkpoints=1)
    fleet.write(folder / "fleet")
    assert verify_fleet(folder)["result"] == "holds"
    assert codes(verify_fleet(folder, "--expect", folder / "head.json", code=1)) == {(2, "tail_cut")}
    assert codes(verify_fleet(folder, "--expect", "2:6", code=1)) == {(2, "tail_cut")}
    assert verify_fleet(folder, "--expect", "2:3")["result"] == "holds"


def test_another_past_is_not_the_one_that_is_expected(folder: Path, fleet: Fleet) -> None:
    """Sealed anew with the same key over other records."""
    other = Fleet(3, salt=b"other")
    for partition in (0, 1, 2, 0, 1, 2):
        other.grow(partition, 3)
        other.seal(partition)
    other.write(folder / "fleet")
    told = verify_fleet(folder, "--expect", folder / "head.json", code=1)
    assert codes(told) == {(number, "expected_head_differs") for number in range(3)}


def test_a_partition_of_another_past_does_not_fit_its_siblings(folder: Path, fleet: Fleet) -> None:
    """One partition was made anew by whoever had the key, and the others know its old root."""
    other = Fleet(3, salt=b"other")
    for _ in range(2):
        other.grow(1, 3)
        other.seal(1)
    fleet.records[1], fleet.chains[1] = other.records[1], other.chains[1]
    fleet.write(folder / "fleet")
    assert codes(verify_fleet(folder, code=1)) == {(1, "sibling_head_differs")}


def test_evidence_without_any_seal_never_holds(folder: Path, fleet: Fleet) -> None:
    """A partition that was never sealed is named by the result, and the exit code is 3."""
    fleet = Fleet(2)
    fleet.grow(0, 2)
    fleet.grow(1, 2)
    fleet.seal(0)
    fleet.write(folder / "fleet")
    answer = verify_fleet(folder, code=3)
    assert (answer["result"], answer["logs"][1]["unsealed"]) == ("partly_sealed", 2)


def test_the_table_says_what_to_do_about_a_head(folder: Path, fleet: Fleet) -> None:
    """Code, offset, who knows, and the fix."""
    fleet.cut(1, checkpoints=1)
    fleet.write(folder / "fleet")
    done = run_verify(folder, of="fleet")
    [line] = [line for line in done.stdout.splitlines() if line.startswith("head ")]
    assert f"{TOPIC}/1 offset 3: tail_cut: checkpoint 1 of partition 2 knows of 6 sealed records" in line
    assert "find the later copy of evidence and checkpoints" in line


def test_a_head_is_written_only_of_what_holds_and_over_nothing_unknown(folder: Path, fleet: Fleet) -> None:
    """A broken archive leaves the file as it was; another file is not replaced; the expected one is."""
    before = (folder / "head.json").read_bytes()
    fleet.grow(0, 1)
    fleet.seal(0)
    fleet.write(folder / "fleet")
    refused = run_verify(folder, "--write-head", folder / "head.json", of="fleet")
    assert (refused.returncode, "output_exists" in refused.stderr) == (2, True)
    assert f"--expect {folder / 'head.json'}" in refused.stderr, "there is no --force"
    verify_fleet(folder, "--expect", folder / "head.json", "--write-head", folder / "head.json")
    after = (folder / "head.json").read_bytes()
    assert after != before
    fleet.cut(0, checkpoints=1)
    fleet.write(folder / "fleet")
    verify_fleet(folder, "--expect", folder / "head.json", "--write-head", folder / "head.json", code=1)
    assert (folder / "head.json").read_bytes() == after


def test_heads_of_some_partitions_do_not_replace_those_of_all(folder: Path, fleet: Fleet) -> None:
    """Else a rollback of the others would show to nobody from then on."""
    before = (folder / "head.json").read_bytes()
    heads = ("--expect", folder / "head.json", "--write-head", folder / "head.json")
    refused = run_verify(folder, *heads, "--partition", "0", of="fleet")
    assert (refused.returncode, "bad_option" in refused.stderr) == (2, True)
    assert (folder / "head.json").read_bytes() == before


@pytest.mark.parametrize("text", ["nowhere.json", "1", "1:x", "-1:2"])
def test_a_head_that_is_neither_file_nor_numbers_is_refused(text: str, folder: Path) -> None:
    done = run_verify(folder, f"--expect={text}")
    assert (done.returncode, f"bad_head: there is no file {text}, and it is not" in done.stderr) == (2, True)


def test_a_malformed_head_is_refused(folder: Path) -> None:
    (folder / "cut.json").write_text("{")
    (folder / "bad.json").write_text('{"schema": "assay.evidence.heads.v1", "heads": [{"partition": 1}]}')
    for given in ("1:2:sha256:zz", folder / "bad.json", folder / "cut.json"):
        done = run_verify(folder, f"--expect={given}")
        assert (done.returncode, f"bad_head: {given} is not" in done.stderr) == (2, True)
