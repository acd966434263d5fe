"""Rows put in order on disk."""

import os
import tempfile
from operator import itemgetter
from pathlib import Path

import pytest

from assay_stream.errors import InputError
from assay_stream.files.spool import Log, LogSpool, Spool
from assay_stream.model.record import Origin, Record, Role
from tests.support.errors import raises_code


def a_spool(**sizes: int) -> Spool[str]:
    return Spool(itemgetter(slice(2)), **sizes)


def test_rows_can_be_read_twice_and_added_to() -> None:
    with a_spool() as spool:
        spool.put("s", (2, "", b"2"))
        spool.finish()
        assert [row[-1] for row in spool.rows("s")] == [b"2"]
        spool.put("s", (1, "", b"1"))
        spool.finish()
        assert list(spool.rows("s")) == list(spool.rows("s")) == [(1, "", b"1"), (2, "", b"2")]


def test_nothing_is_left_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The temporary file has no name that anybody else could open."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with a_spool(in_memory_bytes_max=1, block_bytes=1) as spool:
        spool.put("s", (1, "", b"x" * 100))
        assert spool._file._rolled  # type: ignore[attr-defined]
    assert os.listdir(tmp_path) == []


def record(offset: int, value: bytes = b"v", topic: str = "t", partition: int = 0) -> Record:
    return Record(Role.CALLS, Origin(topic, partition, offset), b"k", value, (("h", b"\xff"),), offset)


def spooled(*records: Record) -> LogSpool:
    spool = LogSpool(in_memory_bytes_max=1, block_bytes=1, runs_max=2)
    try:
        for given in records:
            spool.add(given)
        spool.finish()
    except InputError:
        spool.close()
        raise
    return spool


def test_a_copy_that_says_that_a_record_was_set_aside_counts() -> None:
    """An archive made before that and one made after may overlap."""
    known = record(0)._replace(set_aside=True)
    for copies in ([known, record(0)], [record(0), known], [record(0), known, record(0)]):
        with spooled(*copies, record(1)) as spool:
            assert list(spool.read(Log(Role.CALLS, "t", 0))) == [known, record(1)]


def test_logs_are_told_apart_by_role_topic_and_partition() -> None:
    with spooled(record(0), record(0, topic="u"), record(0, partition=1)) as spool:
        assert [tuple(log)[1:] for log in spool.logs()] == [("t", 0), ("t", 1), ("u", 0)]


@pytest.mark.parametrize("between", [0, 1, 9])
def test_a_conflict_is_found_however_far_apart(between: int) -> None:
    others = [record(offset) for offset in range(1, between + 1)]
    with raises_code("conflicting_records"):
        spooled(record(0), *others, record(0, b"other"))


def test_too_many_logs_are_refused() -> None:
    with LogSpool(logs_max=2) as spool:
        spool.add(record(0))
        spool.add(record(0, partition=1))
        spool.add(record(1))
        with raises_code("too_many_logs", match="over 2 logs"):
            spool.add(record(0, partition=2))


def test_runs_of_large_blocks_are_merged_a_few_at_a_time() -> None:
    """Twelve runs, each a block of 4 MiB: merged in several goes, since so many are not held at once."""
    values = {offset: bytes([offset]) * (4 * 1024 * 1024) for offset in range(12)}
    with LogSpool(in_memory_bytes_max=1) as spool:
        reads = 0
        read_block = spool._read_block

        def counting(block: object) -> object:
            nonlocal reads
            reads += 1
            return read_block(block)  # type: ignore[arg-type]

        spool._read_block = counting  # type: ignore[method-assign,assignment]
        for offset in reversed(range(12)):
            spool.add(record(offset, values[offset]))
        spool.finish()
        assert reads > 12, "merged in more than one go"
        assert [given.value for given in spool.read(Log(Role.CALLS, "t", 0))] == list(values.values())
