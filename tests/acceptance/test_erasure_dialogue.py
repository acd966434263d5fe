"""Erasure, legal hold and keyed digests, as an operator meets them: over archives, seals, results and a store."""

import hmac
import json
import os
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from assay_stream.canonical.digest import DigestKey
from assay_stream.errors import InputError
from assay_stream.files.erasing import acts_of_files, stub_of
from assay_stream.model.record import Origin, Record, Role
from tests.support.command import invoke as run
from tests.support.events import TOOL, Story, an_event, call_data
from tests.support.seals import TOPIC, checkpoint_records, checkpoints_of, lines_of, write_keys

KEY = DigestKey("5a" * 32)
BOB, EVE = ({"kind": "agent", "agent_id": name} for name in ("bob", "eve"))
SCOPE = {"agent_id": "bob", "to_time": "2026-03-01T11:00:00Z"}


def control(story: Story, act: str, **data: Any) -> Story:
    number = len(story.records)
    event = json.loads(an_event(Role.CALLS, number, number, {"server_id": "*", "author": "ann", **data}))
    value = json.dumps(event | {"type": f"assay.control.{act}"}).encode()
    return story.raw(Role.CONTROL, value, key=b"*")


def erasure(story: Story, scope_id: str = "request-17", records: int = 2) -> Story:
    return control(story, "erasure.set", id=scope_id, scope=SCOPE, records=records, reason="request 17")


def hold(story: Story) -> Story:
    return control(story, "hold.set", id="case-9", scope={"server_id": "server-a"}, reason="case 9")


def release(story: Story) -> Story:
    return control(story, "hold.remove", id="case-9", reason="case closed")


def some_calls() -> Story:
    guess = KEY.keyed(digest({"pin": "271828"}))
    story = Story().lists(TOOL).calls(actor=BOB, args_hash=guess).calls(actor=EVE)
    return story.calls(actor=BOB, args_hash=KEY.keyed(digest({"pin": "000000"})), result_hash=guess)


def digest(value: Any) -> str:
    return f"sha256:{sha256(json.dumps(value, separators=(',', ':')).encode()).hexdigest()}"


class Kept:
    """What an operator keeps of a story: an archive of the inputs, and one of evidence and checkpoints."""

    def __init__(self, folder: Path, story: Story, *, refusals: int = 0) -> None:
        self.folder, outcome = folder, story.tell()
        assert len(outcome.refusals) == refusals
        self.evidence = [
            Record(Role.EVIDENCE, Origin(TOPIC, 0, offset), each.key, each.value, each.headers, each.timestamp_ms)
            for offset, each in enumerate(outcome.of(Role.EVIDENCE))
        ]
        for name in ("archive", "sealed"):
            (folder / name).mkdir()
        for role in (Role.SNAPSHOTS, Role.CALLS, Role.CONTROL):
            records = [record for record in story.records if record.role is role]
            (folder / "archive" / f"{role.value}.ndjson").write_bytes(lines_of(records))
        (folder / "sealed" / "evidence-0.ndjson").write_bytes(lines_of(self.evidence))
        seals = checkpoint_records(checkpoints_of(self.evidence[:2], self.evidence[2:]))
        (folder / "sealed" / "checkpoints-0.ndjson").write_bytes(lines_of(seals))
        write_keys(folder)

    def erase(self, name: str, output_name: str | None = None) -> Path:
        output = self.folder / (output_name or f"{name}-erased")
        control = ("--control", self.folder / "archive")
        result = run("evidence", "erase-files", "--input", self.folder / name, "--output", output, *control)
        if result.exception is not None:
            raise result.exception
        return output

    def check_seals(self, sealed: Path, *more: object) -> tuple[int, dict[str, Any]]:
        files = ("--evidence", sealed, "--checkpoints", sealed, "--key", self.folder / "seal.pub.pem")
        control = ("--control", self.folder / "archive")
        result = run("seal", "verify", *files, *(more or control), "--format", "json")
        return result.exit_code, json.loads(result.stdout)

    def verify(self, archive: Path, sealed: Path) -> tuple[int, list[dict[str, Any]]]:
        evidence = ("--evidence", sealed / "evidence-0.ndjson", "--input", archive, "--expect", "all")
        result = run("verify", *evidence, "--format", "json")
        return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]


def all_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir() if "control" not in path.name)


def test_an_erased_agent_is_in_no_file_and_seals_still_verify(tmp_path: Path) -> None:
    kept = Kept(tmp_path, erasure(some_calls()))
    archive, sealed = kept.erase("archive"), kept.erase("sealed")
    assert b"bob" in all_bytes(tmp_path / "archive")
    assert b"bob" not in all_bytes(archive) + all_bytes(sealed)
    assert b"eve" in all_bytes(archive)
    code, report = kept.check_seals(sealed)
    assert (code, report["result"]) == (0, "holds")
    assert [(log["verified"], log["erased"], log["faults"]) for log in report["logs"]] == [(1, {"request-17": 2}, [])]
    [said] = report["erasures"]
    assert (said["id"], said["author"], said["reason"], said["erased"]) == ("request-17", "ann", "request 17", 2)


def test_verify_says_erased_and_by_which_record(tmp_path: Path) -> None:
    kept = Kept(tmp_path, erasure(some_calls()))
    archive, sealed = kept.erase("archive"), kept.erase("sealed")
    code, rows = kept.verify(archive, sealed)
    assert code == 0
    erased = [row for row in rows if row.get("status") == "erased"]
    assert [(row["codes"], row["erasure"]) for row in erased] == [(["evidence_erased"], "request-17")] * 2
    assert rows[-1]["reason"] == "request 17"


@pytest.mark.parametrize(("erased", "code"), [("archive", "call_erased"), ("sealed", "evidence_erased")])
def test_where_one_side_alone_is_erased_verify_says_so_too(tmp_path: Path, erased: str, code: str) -> None:
    kept = Kept(tmp_path, erasure(some_calls()))
    folders = {name: tmp_path / name for name in ("archive", "sealed")} | {erased: kept.erase(erased)}
    exit_code, rows = kept.verify(folders["archive"], folders["sealed"])
    assert exit_code == 0
    assert {(row["status"], *row["codes"]) for row in rows if "status" in row} == {("erased", code)}


def test_what_is_missing_outside_the_scope_is_missing(tmp_path: Path) -> None:
    kept = Kept(tmp_path, erasure(some_calls()))
    archive, sealed = kept.erase("archive"), kept.erase("sealed")
    lines = (sealed / "evidence-0.ndjson").read_bytes().splitlines(keepends=True)
    (sealed / "evidence-0.ndjson").write_bytes(b"".join(line for line in lines if b"eve" not in line))
    code, report = kept.check_seals(sealed)
    assert code == 1
    assert [fault["kind"] for fault in report["logs"][0]["faults"]] == ["missing"]
    code, rows = kept.verify(archive, sealed)
    assert (code, [row["server_id"] for row in rows if row.get("status") == "missing"]) == (1, ["server-a"])


def with_stub_of_eve(kept: Kept) -> Path:
    """An archive in which somebody put a stub in place of another agent's call."""
    archive = kept.erase("archive")
    file = archive / "calls.ndjson"
    stub, line, other = map(json.loads, file.read_bytes().splitlines())
    forged = stub | {name: line[name] for name in ("origin", "timestamp_ms")}
    file.write_bytes(b"".join(json.dumps(each).encode() + b"\n" for each in (stub, forged, other)))
    return archive


def test_a_stub_in_place_of_a_call_outside_the_scope_accounts_for_nothing(tmp_path: Path) -> None:
    """Otherwise one erasure would excuse that any evidence can no longer be recomputed."""
    kept = Kept(tmp_path, erasure(some_calls()))
    code, rows = kept.verify(with_stub_of_eve(kept), tmp_path / "sealed")
    found = sorted((row["status"], *row["codes"]) for row in rows if "status" in row)
    assert (code, found) == (1, [("erased", "call_erased"), ("erased", "call_erased"), ("wrong", "call_refused")])


def test_no_file_is_replaced(tmp_path: Path) -> None:
    kept = Kept(tmp_path, erasure(some_calls()))
    written = all_bytes(kept.erase("sealed"))
    with pytest.raises(InputError, match="folder_not_empty"):
        kept.erase("sealed")
    assert all_bytes(tmp_path / "sealed-erased") == written


def test_what_a_killed_run_left_is_named(tmp_path: Path) -> None:
    """The folder that was asked for is not there: a message about it would not say what to remove."""
    kept = Kept(tmp_path, erasure(some_calls()))
    (tmp_path / ".part.sealed-erased").mkdir()
    with pytest.raises(InputError, match=r"folder_not_empty: .*\.part\.sealed-erased is there already: .*remove it"):
        kept.erase("sealed")
    assert (tmp_path / ".part.sealed-erased").is_dir()


def test_a_file_that_is_copied_unread_may_have_any_name(tmp_path: Path) -> None:
    kept = Kept(tmp_path, erasure(some_calls()))
    name = os.fsdecode(b"\xff.bin")
    (tmp_path / "sealed" / name).write_bytes(b"other")
    assert (kept.erase("sealed") / name).read_bytes() == b"other"


def test_a_new_folder_in_the_old_one_is_refused(tmp_path: Path) -> None:
    kept = Kept(tmp_path, erasure(some_calls()))
    before = all_bytes(tmp_path / "sealed")
    with pytest.raises(InputError, match=r"folder_not_empty: .* lies in "):
        kept.erase("sealed", "sealed/new")
    assert all_bytes(tmp_path / "sealed") == before


def test_a_stub_without_its_erasure_is_a_missing_record(tmp_path: Path) -> None:
    """Of files, only the control records that are given count, and not those that came with the files."""
    kept = Kept(tmp_path, erasure(some_calls()))
    code, report = kept.check_seals(kept.erase("sealed"), "--expect", "0:3")
    assert code == 1
    assert [(fault["kind"], fault["code"]) for fault in report["logs"][0]["faults"]] == [
        ("missing", "erasure_unknown")
    ] * 2


def test_no_more_is_erased_than_was_stated(tmp_path: Path) -> None:
    kept = Kept(tmp_path, erasure(some_calls(), records=1))
    with pytest.raises(InputError, match="erasure_exceeded"):
        kept.erase("sealed")
    assert not (tmp_path / "sealed-erased").exists()


def test_what_an_earlier_run_erased_counts_also_where_it_comes_later(tmp_path: Path) -> None:
    """As in the file of a topic with several partitions."""
    kept = Kept(tmp_path, erasure(some_calls(), records=1))
    [act] = acts_of_files([tmp_path / "archive" / "control.ndjson"])
    records = [*kept.evidence[:2], stub_of(kept.evidence[2], act)]
    (tmp_path / "sealed" / "evidence-0.ndjson").write_bytes(lines_of(records))
    with pytest.raises(InputError, match="erasure_exceeded"):
        kept.erase("sealed")


def test_a_hold_on_a_server_that_none_can_be_is_refused(tmp_path: Path) -> None:
    """It would hold nothing, while its operator relies on it."""
    result = run("evidence", "hold", "--id", "h", "--server-id", "*", "--reason", "r", "--output", tmp_path / "file")
    assert isinstance(result.exception, InputError)
    assert not (tmp_path / "file").exists()


def test_what_came_late_is_accounted_for_by_another_erasure(tmp_path: Path) -> None:
    """Also where the first one was carried out before."""
    kept = Kept(tmp_path, erasure(erasure(some_calls(), records=1), "request-18", records=1))
    sealed = kept.erase("sealed")
    code, report = kept.check_seals(sealed)
    assert (code, {row["id"]: row["erased"] for row in report["erasures"]}) == (0, {"request-17": 1, "request-18": 1})
    assert all_bytes(kept.erase("sealed-erased")) == all_bytes(sealed)


def test_an_erasure_under_a_hold_counts_for_nothing_and_is_reported(tmp_path: Path) -> None:
    kept = Kept(tmp_path, release(erasure(hold(some_calls()))))
    assert all_bytes(kept.erase("sealed")) == all_bytes(tmp_path / "sealed")
    listed = run("evidence", "erasures", "--control", tmp_path / "archive").stdout
    assert "counts for nothing: hold case-9 stood" in listed
    assert "hold.remove case-9; by " in listed, "it has no scope, neither everything"


def test_a_hold_that_came_later_stops_the_command(tmp_path: Path) -> None:
    kept = Kept(tmp_path, hold(erasure(some_calls())))
    assert all_bytes(kept.erase("sealed")) == all_bytes(tmp_path / "sealed")


def test_a_worker_that_reads_a_stub_says_that_the_call_was_erased(tmp_path: Path) -> None:
    """As from topics that were restored from an erased archive: it ends in one place, with the reason."""
    archive = Kept(tmp_path, erasure(some_calls())).erase("archive")
    assert run("replay", "--input", archive, "--output", tmp_path / "out").exit_code == 0
    lines = (tmp_path / "out" / "rejected.ndjson").read_bytes().splitlines()
    assert [json.loads(line)["error"]["code"] for line in lines] == ["erased"] * 2


def test_results_of_a_replay_lose_what_is_erased(tmp_path: Path) -> None:
    Kept(tmp_path, erasure(some_calls())).erase("archive")
    assert run("replay", "--input", tmp_path / "archive", "--output", tmp_path / "out").exit_code == 0
    control = ("--control", tmp_path / "archive")
    done = run("evidence", "erase-files", "--input", tmp_path / "out", "--output", tmp_path / "out-erased", *control)
    assert done.exit_code == 0, done.output
    lines = (tmp_path / "out-erased" / "evidence.ndjson").read_bytes().splitlines()
    assert [json.loads(line)["data"]["actor"]["agent_id"] for line in lines] == ["eve"]


def test_refused_calls_of_a_replay_are_erased_too(tmp_path: Path) -> None:
    """They are kept as received, with arguments, and are copies of the call like its evidence."""
    story = some_calls().calls(actor=BOB, decision="perhaps", args={"pin": "314159"})
    value = an_event(Role.CALLS, 99, 3, call_data(actor=BOB, decision="perhaps"))
    event = json.loads(value)
    headers = tuple((f"ce_{name}", event[name].encode()) for name in ("specversion", "type", "source", "id", "time"))
    story.raw(Role.CALLS, json.dumps(event["data"]).encode(), headers=headers)
    story.calls(actor=EVE, decision="perhaps")
    Kept(tmp_path, erasure(story), refusals=3)
    assert run("replay", "--input", tmp_path / "archive", "--output", tmp_path / "out").exit_code == 0
    assert all_bytes(tmp_path / "out").count(b"perhaps") == 3
    control = ("--control", tmp_path / "archive")
    done = run("evidence", "erase-files", "--input", tmp_path / "out", "--output", tmp_path / "out-erased", *control)
    assert done.exit_code == 0, done.output
    [line] = (tmp_path / "out-erased" / "rejected.ndjson").read_bytes().splitlines()
    assert b"eve" in line
    assert json.loads(done.stdout)["erased"]["request-17"]["left_out"] == 4


def test_a_replay_of_an_erased_archive_compares_with_what_was_recorded(tmp_path: Path) -> None:
    kept = Kept(tmp_path, erasure(some_calls()))
    archive, sealed = kept.erase("archive"), kept.erase("sealed")
    for evidence in (sealed, tmp_path / "sealed"):
        result = run("compare", "--input", archive, "--evidence", evidence / "evidence-0.ndjson", "--format", "json")
        assert result.exit_code == 0, result.output
        assert {tuple(json.loads(line)["causes"]) for line in result.stdout.splitlines()} == {("erased",)}


@pytest.mark.parametrize(
    ("old", "new"), [(b'"offset":0,"partition":0,"topic":"calls"', b'"offset":9'), (b'"allow"', b'"deny"')]
)
def test_no_evidence_is_slipped_in_under_an_erasure(tmp_path: Path, old: bytes, new: bytes) -> None:
    """What lost its call to an erasure is checked all the same, as far as it can be."""
    kept = Kept(tmp_path, erasure(some_calls()))
    archive, sound = kept.erase("archive"), kept.evidence[0].value or b""
    assert old in sound
    (tmp_path / "forged").mkdir()
    path = tmp_path / "forged" / "evidence-0.ndjson"
    path.write_bytes(lines_of([kept.evidence[0]._replace(value=sound.replace(old, new)), *kept.evidence[1:]]))
    result = run("compare", "--input", archive, "--evidence", path, "--format", "json")
    assert result.exit_code == 1
    assert ["altered_record"] in [json.loads(line)["causes"] for line in result.stdout.splitlines()]
    code, rows = kept.verify(archive, path.parent)
    assert (code, len([row for row in rows if row.get("status") == "wrong"])) == (1, 1)


def test_a_store_drops_what_is_erased_and_keeps_it_out(tmp_path: Path) -> None:
    """Whether it reads the decision before the evidence or after it."""
    kept = Kept(tmp_path, erasure(some_calls()))
    for name, source in (("derived", tmp_path / "archive"), ("again", tmp_path / "archive")):
        result = run("store", "load", source, "--store", tmp_path / name)
        assert result.exit_code == 0, result.output
        assert "dropped, erased on record: 2 records of evidence" in result.stdout
        listed = run("evidence", "list", "--store", tmp_path / name, "--json").stdout
        assert [json.loads(line)["agent_id"] for line in listed.splitlines()] == ["eve"]
        assert b"271828" not in b"".join(path.read_bytes() for path in (tmp_path / name).iterdir())
    shutil.rmtree(kept.folder / "archive")


def test_a_store_under_a_hold_is_not_replaced(tmp_path: Path) -> None:
    Kept(tmp_path, hold(some_calls()))
    load = ("store", "load", tmp_path / "archive", "--store", tmp_path / "store", "--rebuild")
    assert run(*load).exit_code == 0
    assert "held" in str(run(*load).exception)


def test_a_million_guesses_find_nothing_once_the_key_is_gone(tmp_path: Path) -> None:
    """With the key a guess is confirmed; without it neither plain digests nor other keys find any, and seals verify."""
    kept = Kept(tmp_path, some_calls())
    found = {
        data[name]
        for record in kept.evidence
        if (data := json.loads(record.value or b"")["data"])
        for name in ("args_hash", "result_hash")
        if name in data
    }
    assert KEY.keyed(digest({"pin": "271828"})) in found
    assert len(found) == 2
    digits = {text.rpartition(":")[2] for text in found}
    other = hmac.new(bytes.fromhex("a5" * 32), digestmod=sha256)
    for number in range(1_000_000):
        plain = sha256(b'{"pin":"%06d"}' % number).hexdigest()
        under_other = other.copy()
        under_other.update(b"sha256:" + plain.encode())
        assert plain not in digits
        assert under_other.hexdigest() not in digits
    assert kept.check_seals(tmp_path / "sealed", "--expect", "0:3")[0] == 0


def test_the_holder_of_the_key_can_search_for_arguments(tmp_path: Path) -> None:
    kept = Kept(tmp_path, some_calls())
    (tmp_path / "digest.key").write_text("5a" * 32 + "\n")
    (tmp_path / "guess.json").write_text('{"pin": "271828"}')
    result = run("evidence", "digest", tmp_path / "guess.json", "--digest-key", tmp_path / "digest.key")
    plain, keyed = result.stdout.splitlines()
    assert plain == digest({"pin": "271828"})
    listed = run("evidence", "search", keyed, "--input", kept.folder / "archive", "--json").stdout
    assert sum('"tool_call_id"' in line or '"server_id"' in line for line in listed.splitlines()) >= 2


def test_the_change_of_an_erasure_is_evidence_of_it(tmp_path: Path) -> None:
    """Who erased what and why stands in the log of changes, which no erasure covers."""
    [change] = [json.loads(each.value or b"") for each in erasure(some_calls()).tell().of(Role.CHANGES)]
    assert change["data"] | {"origin": None} == {
        "change": "erasure.set",
        "server_id": "*",
        "origin": None,
        "scope_id": "request-17",
        "scope": SCOPE,
        "records": 2,
        "author": "ann",
        "reason": "request 17",
        "superseded": False,
    }


@pytest.mark.parametrize(
    "scope",
    [
        {},
        {"agent_id": "bob"},
        {"to_time": "2026-03-01T11:00:00Z"},
        SCOPE | {"tool": "x"},
        SCOPE | {"to_time": "2026-03-02T11:00:00Z"},
    ],
)
def test_an_erasure_says_whose_calls_and_up_to_when(scope: dict[str, Any]) -> None:
    """An unknown member would narrow the scope for those who know it, and a later time would erase what never was."""
    story = control(some_calls(), "erasure.set", id="all", scope=scope, records=9, reason="r")
    assert len(story.tell().refusals) == 1
