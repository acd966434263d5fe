"""Archives of evidence and checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay_stream.errors import InputError
from assay_stream.files.seal_archive import write_logs
from assay_stream.files.seal_files import FileLogs
from assay_stream.model.record import Role
from tests.support.seals import checkpoint_records, checkpoints_of, lines_of, some_records

RECORDS = some_records(1, 2, 5)


@pytest.fixture
def logs(tmp_path: Path) -> tuple[FileLogs, FileLogs]:
    """Evidence and checkpoints."""
    (tmp_path / "evidence").write_bytes(lines_of(RECORDS))
    (tmp_path / "checkpoints").write_bytes(lines_of(checkpoint_records(checkpoints_of(RECORDS))))
    return (
        FileLogs([tmp_path / "evidence"], Role.EVIDENCE),
        FileLogs([tmp_path / "checkpoints"], Role.CHECKPOINTS),
    )


@pytest.mark.parametrize("compress", [False, True])
def test_what_is_written_is_read_back(compress: bool, logs: tuple[FileLogs, FileLogs], tmp_path: Path) -> None:
    """One file for each log, the same bytes every time."""
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


def test_archives_are_not_mixed(logs: tuple[FileLogs, FileLogs], tmp_path: Path) -> None:
    """A folder that holds something is left as it is."""
    with pytest.raises(InputError, match="folder_not_empty"):
        write_logs(tmp_path, *logs)
    with pytest.raises(InputError, match="unwritable_folder"):
        write_logs(tmp_path / "evidence", *logs)
