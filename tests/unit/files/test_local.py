"""Files written aside, folders that one run at a time writes to, and TOML that operators write."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from assay_stream.errors import ConfigurationError, InputError
from assay_stream.files.archive import (
    ARCHIVE_MANIFEST,
    ArchivedOffsets,
    archived_offsets,
    check_whole,
    files_in,
    manifest_bytes,
)
from assay_stream.files.local import Aside, decode_toml, locked_folder
from tests.support.errors import raises_code


def test_a_folder_takes_one_run_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with locked_folder(folder):
        with raises_code("output_in_use", kind=ConfigurationError), locked_folder(folder):
            pass
        assert os.listdir(folder) == []
    with locked_folder(folder):
        pass


def test_files_take_their_places_together_or_not_at_all(tmp_path: Path) -> None:
    old, new, stale = (tmp_path / name for name in ("old", "new", "stale"))
    old.write_text("old")
    stale.write_text("stale")
    with suppress(ZeroDivisionError), Aside() as aside:
        aside.path(old).write_text("new")
        aside.remove(stale)
        raise ZeroDivisionError
    assert sorted(os.listdir(tmp_path)) == ["old", "stale"]
    assert old.read_text() == "old"
    with Aside() as aside:
        aside.path(old).write_text("new")
        aside.path(new).write_text("new")
        aside.remove(stale)
        aside.remove(new)
    assert sorted(os.listdir(tmp_path)) == ["new", "old"]


def a_folder(path: Path, *names: str) -> Path:
    for name in names:
        (path / name).touch()
    return path


def names_of(path: Path, kind: str | None = None) -> list[str]:
    return [file.name for file in files_in(path, kind)]


def test_a_file_stands_for_itself(tmp_path: Path) -> None:
    assert list(files_in(tmp_path / "x.bin")) == [tmp_path / "x.bin"]


def test_an_archive_gives_its_observations_and_its_manifest(tmp_path: Path) -> None:
    folder = a_folder(
        tmp_path, "snapshots.ndjson.zst", "calls.ndjson.gz", "control.ndjson", "archive.json", ".hidden.ndjson"
    )
    assert names_of(folder) == ["calls.ndjson.gz", "control.ndjson", "snapshots.ndjson.zst", "archive.json"]


def test_results_of_a_replay_are_no_observations(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, "evidence.ndjson", "alerts.ndjson", "definitions.ndjson", "o.jsonl", "notes.txt")
    assert names_of(folder) == ["o.jsonl"]
    assert names_of(folder, "evidence") == ["evidence.ndjson"]
    assert names_of(folder, "alerts") == ["alerts.ndjson"]


def test_an_archive_of_seals_gives_the_evidence_of_every_partition(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, "evidence-0.ndjson.gz", "evidence-1.ndjson.gz", "checkpoints-0.ndjson")
    assert names_of(folder, "evidence") == ["evidence-0.ndjson.gz", "evidence-1.ndjson.gz"]


@pytest.mark.parametrize("kind", [None, "evidence"])
def test_a_folder_without_such_files_is_an_error(tmp_path: Path, kind: str | None) -> None:
    with pytest.raises(InputError, match=r"unreadable_file.*ndjson"):
        names_of(a_folder(tmp_path, "notes.txt"), kind)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    """A pipe under the name of a file has nobody at its other end."""
    os.mkfifo(tmp_path / "in.ndjson")
    with pytest.raises(InputError, match=r"in\.ndjson: it is not a file"):
        names_of(tmp_path)


@pytest.mark.parametrize("packed", ["in.ndjson.gz", "in.ndjson.zst"])
def test_a_file_and_its_packed_copy_are_not_both_read(tmp_path: Path, packed: str) -> None:
    """What ``gzip -k`` leaves would give every record twice."""
    with pytest.raises(InputError, match="twice"):
        names_of(a_folder(tmp_path, "in.ndjson", packed))


def test_what_is_skipped_in_a_folder_is_named(tmp_path: Path) -> None:
    """With the reason, once for the folder: a file that only begins like a result would be missed otherwise."""
    folder = a_folder(tmp_path, "changes-of-may.ndjson", "evidence.ndjson", "o.ndjson", "notes.txt", ".hidden")
    for kind, read, said in (
        (None, ["o.ndjson"], "skipped changes-of-may.ndjson, evidence.ndjson, notes.txt (named like results"),
        ("evidence", ["evidence.ndjson"], "skipped o.ndjson (not evidence*.ndjson)"),
    ):
        skipped: list[str] = []
        assert [file.name for file in files_in(folder, kind, skipped.append)] == read
        [sentence] = skipped
        assert said in sentence


def test_nothing_is_said_where_nothing_is_skipped(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, "calls.ndjson", "archive.json")
    skipped: list[str] = []
    list(files_in(folder, None, skipped.append))
    list(files_in(a_folder(tmp_path, "alerts.ndjson", "evidence.ndjson") / "calls.ndjson", None, skipped.append))
    (folder / "calls.ndjson").unlink()
    list(files_in(folder, "alerts", skipped.append))
    assert skipped == []


def test_many_skipped_files_are_counted(tmp_path: Path) -> None:
    skipped: list[str] = []
    list(files_in(a_folder(tmp_path, "o.ndjson", *(f"{n}.txt" for n in range(10))), None, skipped.append))
    assert "7.txt and 2 more" in skipped[0]


CALLS, LISTS = ("calls", 0), ("lists", 0)


def test_a_manifest_gives_back_what_was_written(tmp_path: Path) -> None:
    assert archived_offsets([tmp_path / "calls.ndjson"]) == ArchivedOffsets({}, {})
    (tmp_path / ARCHIVE_MANIFEST).write_bytes(manifest_bytes({CALLS: 9, LISTS: 4}, {CALLS: 7}, {CALLS: 8}))
    assert archived_offsets([tmp_path / "calls.ndjson"]) == ArchivedOffsets({CALLS: 7}, {CALLS: 8})


def test_a_manifest_that_names_no_last_offset_is_read(tmp_path: Path) -> None:
    raw = b'{"schema":"assay.archive.v1","partitions":[{"topic":"calls","partition":0,"end":9,"joined":7}]}'
    (tmp_path / ARCHIVE_MANIFEST).write_bytes(raw)
    assert archived_offsets([tmp_path / "x"]) == ArchivedOffsets({CALLS: 7}, {})


@pytest.mark.parametrize("ranges", [{CALLS: (0, 7)}, {("calls", 1): (0, 9)}])
def test_an_archive_that_lost_its_end_is_refused(ranges: dict[tuple[str, int], tuple[int, int]]) -> None:
    with raises_code("archive_truncated"):
        check_whole(ArchivedOffsets({}, {CALLS: 8}), ranges)


@pytest.mark.parametrize("ranges", [{CALLS: (0, 8)}, {CALLS: (3, 12)}, {LISTS: (0, 4)}])
def test_a_whole_archive_or_another_topic_is_not(ranges: dict[tuple[str, int], tuple[int, int]]) -> None:
    check_whole(ArchivedOffsets({}, {CALLS: 8}), ranges)


@pytest.mark.parametrize(
    ("raw", "code", "said"),
    [
        (b"servers:\n  - server_id: docs\n", "not_toml", "line 1: not TOML. YAML and JSON are not read"),
        (b"# of ours\nservers:\n", "not_toml", "line 2: "),
        (b'{"servers": []}', "not_toml", "line 1: "),
        (b"servers = [", "not_toml", "not TOML"),
        (b"a = 1\na = 2", "not_toml", "not TOML"),
        pytest.param(b"a = " + b"[" * 50_000, "not_toml", "not TOML", id="deep"),
        pytest.param(b"a = " + b"1" * 5_000, "not_toml", "not TOML", id="long number"),
        (b"secret-\xff", "not_utf8", "byte 7"),
        pytest.param(b"#" * 20_000_000, "too_large", "allowed", id="large"),
    ],
)
def test_what_is_no_toml_is_refused_and_not_quoted(raw: bytes, code: str, said: str) -> None:
    with raises_code(code) as caught:
        decode_toml(raw)
    assert said in caught.value.message
    assert "secret" not in caught.value.message


def test_what_is_toml_is_decoded() -> None:
    assert decode_toml(b'[[servers]]\nserver_id = "docs"\n') == {"servers": [{"server_id": "docs"}]}
