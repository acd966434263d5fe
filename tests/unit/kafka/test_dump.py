"""Topics copied to files."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from assay_stream.config import load_settings
from assay_stream.files.archive import read_files
from assay_stream.kafka import dump
from assay_stream.model.record import Record, Role
from tests.support.events import TOOL, Story
from tests.support.log_ranges import LogsInMemory, stand_in, topics_of

SETTINGS = load_settings()


def a_run() -> list[Record]:
    """A list, and calls of its tool."""
    return topics_of(Story().lists(TOOL).calls().calls("ghost"), SETTINGS)


async def test_a_dump_has_each_topic_s_records_in_its_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With their places; topics of one file follow one another."""
    records = a_run()
    stand_in(monkeypatch, dump, LogsInMemory(records))
    files = [(tmp_path / "in", (Role.SNAPSHOTS, Role.CALLS)), (tmp_path / "evidence", (Role.EVIDENCE,))]
    await dump.dump_topics(SETTINGS, files)
    for path, roles in files:
        lines = [orjson.loads(line) for line in path.read_bytes().splitlines()]
        wanted = [record for role in roles for record in records if record.role is role]
        assert [(line["role"], line["origin"]["offset"]) for line in lines] == [
            (record.role.value, record.origin.offset) for record in wanted
        ]
        assert [line["value"].encode() for line in lines] == [record.value for record in wanted]


async def test_a_dump_of_the_inputs_is_read_as_an_archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Record for record, with keys, headers and times."""
    records = a_run()
    stand_in(monkeypatch, dump, LogsInMemory(records))
    await dump.dump_topics(SETTINGS, [(tmp_path / "in", (Role.SNAPSHOTS, Role.CALLS))])
    wanted = [record for role in (Role.SNAPSHOTS, Role.CALLS) for record in records if record.role is role]
    assert list(read_files([tmp_path / "in"])) == wanted
