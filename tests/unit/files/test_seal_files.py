"""Evidence and checkpoints in archives."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from assay_stream.errors import InputError, OperatingError
from assay_stream.files import seal_files
from assay_stream.files.seal_files import BadLine, FileLogs, read_private_key, read_public_keys, write_logs
from assay_stream.model.record import Record, Role
from assay_stream.schemes.tlog import keys_of, private_pem
from assay_stream.seal.check import FAULTS_TOLD_MAX, LogName
from tests.support.errors import raises_code
from tests.support.seals import (
    KEY,
    OTHER_KEY,
    TOPIC,
    checkpoint_records,
    checkpoints_of,
    lines_of,
    some_records,
    write_keys,
)

NAME = LogName(TOPIC, 0)
RECORDS = some_records(1, 2, 5)


def test_what_is_no_line_of_the_kind_is_told_and_passed_over(tmp_path: Path) -> None:
    bad = [
        b"{",
        b'{"specversion":"1.0","type":"mcp.tools.call.observed"}',
        lines_of(checkpoint_records([b"x"])).strip(),
        lines_of(RECORDS[:1]).strip()[:-1],
        lines_of(RECORDS[:1]).replace(b'"offset":1', b'"offset":"1"').strip(),
    ]
    (tmp_path / "a").write_bytes(b"\n" + b"\n".join(bad) + b"\n" + lines_of(RECORDS))
    logs = FileLogs([tmp_path / "a"], Role.EVIDENCE)
    assert logs.bad_lines == [BadLine("a", number) for number in range(2, 7)]
    assert logs.bad_lines_count == 5
    assert list(logs.records(NAME)) == RECORDS


def test_bad_lines_are_told_up_to_a_bound(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"?\n" * (FAULTS_TOLD_MAX + 5))
    logs = FileLogs([tmp_path / "a"], Role.EVIDENCE)
    assert (len(logs.bad_lines), logs.bad_lines_count) == (FAULTS_TOLD_MAX, FAULTS_TOLD_MAX + 5)


def test_a_log_begins_where_it_is_said_to(tmp_path: Path) -> None:
    """Else at 0: what an archive leaves out in front is missing."""
    (tmp_path / "a").write_bytes(lines_of(RECORDS))
    assert FileLogs([tmp_path / "a"], Role.EVIDENCE).start(NAME) == 0
    assert FileLogs([tmp_path / "a"], Role.EVIDENCE, starts={0: 1}).start(NAME) == 1


def test_logs_of_one_file_are_read_in_its_order(tmp_path: Path) -> None:
    """Whatever order that is: the check has to see it."""
    elsewhere = [record._replace(origin=record.origin._replace(partition=1)) for record in RECORDS]
    mixed = [RECORDS[2], elsewhere[1], RECORDS[0], elsewhere[0], RECORDS[0], RECORDS[1]]
    (tmp_path / "a").write_bytes(lines_of(mixed))
    with closing(FileLogs([tmp_path / "a"], Role.EVIDENCE)) as logs:
        assert logs.names() == [NAME, LogName(TOPIC, 1)]
        assert list(logs.records(NAME)) == [RECORDS[2], RECORDS[0], RECORDS[0], RECORDS[1]]
        assert list(logs.records(LogName(TOPIC, 1))) == [elsewhere[1], elsewhere[0]]


def test_logs_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seal_files, "ARCHIVE_LOGS_MAX", 2)
    places = [RECORDS[0].origin._replace(partition=number) for number in range(3)]
    (tmp_path / "a").write_bytes(lines_of([RECORDS[0]._replace(origin=place) for place in places]))
    with raises_code("too_many_logs"):
        FileLogs([tmp_path / "a"], Role.EVIDENCE)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unreadable_file"):
        FileLogs([tmp_path / "none"], Role.EVIDENCE)


@pytest.fixture
def logs(tmp_path: Path) -> tuple[FileLogs, FileLogs]:
    (tmp_path / "evidence").write_bytes(lines_of(RECORDS))
    (tmp_path / "checkpoints").write_bytes(lines_of(checkpoint_records(checkpoints_of(RECORDS))))
    return (FileLogs([tmp_path / "evidence"], Role.EVIDENCE), FileLogs([tmp_path / "checkpoints"], Role.CHECKPOINTS))


@pytest.mark.parametrize("compress", [False, True])
def test_what_is_written_is_read_back(compress: bool, logs: tuple[FileLogs, FileLogs], tmp_path: Path) -> None:
    folder = tmp_path / "made" / "kept"
    assert write_logs(folder, *logs, compress=compress) == {"checkpoints": 1, "evidence": 3}
    ending = ".ndjson.gz" if compress else ".ndjson"
    assert sorted(path.name for path in folder.iterdir()) == [f"checkpoints-0{ending}", f"evidence-0{ending}"]
    for role, before in ((Role.EVIDENCE, logs[0]), (Role.CHECKPOINTS, logs[1])):
        again = FileLogs([folder], role)
        assert again.names() == before.names()
        assert all(list(again.records(name)) == list(before.records(name)) for name in again.names())
    write_logs(tmp_path / "again", *logs, compress=compress)
    assert all((tmp_path / "again" / path.name).read_bytes() == path.read_bytes() for path in folder.iterdir())


@pytest.mark.parametrize("error", [KeyboardInterrupt, OperatingError("brokers_failing", "gone")])
def test_an_archive_that_was_interrupted_is_no_archive(
    error: BaseException | type[BaseException], logs: tuple[FileLogs, FileLogs], tmp_path: Path
) -> None:
    """Half of a file is whole to gzip: a check of it would say that evidence was removed."""

    class Interrupted(FileLogs):
        def records(self, name: LogName) -> Iterator[Record]:
            yield next(super().records(name))
            raise error

    with pytest.raises((KeyboardInterrupt, OperatingError)):
        write_logs(tmp_path / "kept", Interrupted([tmp_path / "evidence"], Role.EVIDENCE), logs[1], compress=True)
    assert not list((tmp_path / "kept").iterdir())
    assert write_logs(tmp_path / "kept", *logs) == {"checkpoints": 1, "evidence": 3}


def test_archives_are_not_mixed(logs: tuple[FileLogs, FileLogs], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="folder_not_empty"):
        write_logs(tmp_path, *logs)
    with pytest.raises(InputError, match="unwritable_folder"):
        write_logs(tmp_path / "evidence", *logs)


def test_keys_are_read(tmp_path: Path) -> None:
    write_keys(tmp_path)
    write_keys(tmp_path, "other", OTHER_KEY)
    assert read_private_key(tmp_path / "seal.pem", "").private_bytes_raw() == KEY.private_bytes_raw()
    found = read_public_keys([tmp_path / "seal.pub.pem", tmp_path / "other.pub.pem"])
    assert found.keys() == keys_of([KEY.public_key(), OTHER_KEY.public_key()]).keys()


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o440, 0o640])
def test_a_key_may_be_read_by_its_owner_and_group(mode: int, tmp_path: Path) -> None:
    (tmp_path / "seal.pem").write_bytes(private_pem(KEY, b"secret"))
    (tmp_path / "seal.pem").chmod(mode)
    assert read_private_key(tmp_path / "seal.pem", "secret").private_bytes_raw() == KEY.private_bytes_raw()


def test_what_is_no_key_file_is_told_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no key")
    (tmp_path / "text").chmod(0o600)
    for name, code in (("", "unreadable_file"), ("none", "seal_key_missing"), ("text", "bad_seal_key")):
        for read in (lambda path: read_private_key(path, None), lambda path: read_public_keys([path])):
            with raises_code(code) as caught:
                read(tmp_path / name)
            assert str(tmp_path / name) in caught.value.message
