"""Exports put together: order, parts, and what is not there."""

import csv
import io
import json
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from unittest.mock import patch

import orjson
import pyarrow.parquet as pq
import pytest

from assay_stream.model.record import Role
from assay_stream.report.export import (
    HEADER,
    Collection,
    as_csv,
    as_jsonl,
    export_bundles,
    export_parquet,
    export_timesketch,
)
from assay_stream.report.export_input import (
    Dataset,
    ExportRecord,
    ExportSelection,
    Stored,
    items,
    read_bundle,
    verify_bundle,
)
from assay_stream.text.escaping import visible
from tests.support.alerts import alert_records, finding_of
from tests.support.errors import raises_code
from tests.support.exports import NOON_US, definition, evidence, replayed, values

RAW = [evidence(number, time=f"2026-03-01T12:00:{number:02}Z") for number in range(7)]


def collected(raw: Iterable[bytes], selection: ExportSelection | None = None, *kinds: Dataset) -> Collection:
    collection = Collection(selection or ExportSelection(), frozenset(kinds or Dataset))
    collection.take(Stored(f"record {number}", line) for number, line in enumerate(raw))
    return collection


def offsets(path: Path) -> list[int]:
    return [orjson.loads(line)["data"]["origin"]["offset"] for line in read_bundle(path)]


def test_a_bundle_is_in_the_order_of_event_time(tmp_path: Path) -> None:
    raw = [*reversed(RAW), *(evidence(number, time="2026-03-01T12:00:03Z") for number in (50, 9, 100))]
    with collected(raw) as collection:
        ((path, manifest),) = export_bundles(collection, tmp_path / "b.tar.gz", run_id=None, split=None)
    assert offsets(path) == [0, 1, 2, 3, 9, 50, 100, 4, 5, 6]
    assert manifest == verify_bundle(path)


def test_the_run_id_follows_from_the_content(tmp_path: Path) -> None:
    def run_of(raw: list[bytes]) -> str:
        with collected(raw) as collection:
            ((_, manifest),) = export_bundles(collection, tmp_path / "b.tar.gz", run_id=None, split=None)
        assert manifest.run_id == f"assay-stream-{manifest.run_root.hex[:32]}"
        return manifest.run_id

    assert run_of(RAW) == run_of(RAW[::-1] + RAW) != run_of(RAW[1:])


def test_a_bundle_goes_through_a_pipe(tmp_path: Path) -> None:
    """It takes the bytes, and is neither replaced nor removed, as a device is not."""
    pipe, read = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    with collected(RAW) as collection:
        export_bundles(collection, pipe, run_id=None, split=None)
        reader.join(10)
        export_bundles(collection, tmp_path / "file", run_id=None, split=None)
    assert pipe.is_fifo()
    assert read == [(tmp_path / "file").read_bytes()]


def test_a_bundle_can_be_split(tmp_path: Path) -> None:
    with collected(RAW) as collection:
        written = export_bundles(collection, tmp_path / "b.tar.gz", run_id="night", split=3)
    assert [(path.name, manifest.run_id) for path, manifest in written] == [
        ("b-0001.tar.gz", "night-0001"),
        ("b-0002.tar.gz", "night-0002"),
        ("b-0003.tar.gz", "night-0003"),
    ]
    assert [offsets(path) for path, _ in written] == [[0, 1, 2], [3, 4, 5], [6]]


def test_however_many_parts_each_event_is_decoded_twice(tmp_path: Path) -> None:
    """For the run id of its part, and for the part: a part does not begin at the first event again."""
    with collected(RAW) as collection, patch("assay_stream.report.export.orjson.loads", wraps=orjson.loads) as loads:
        assert len(export_bundles(collection, tmp_path / "b.tar.gz", run_id=None, split=1)) == len(RAW)
    assert loads.call_count == 2 * len(RAW)


def test_one_part_keeps_its_name(tmp_path: Path) -> None:
    with collected(RAW) as collection:
        ((path, manifest),) = export_bundles(collection, tmp_path / "b.tar.gz", run_id="night", split=7)
    assert (path.name, manifest.run_id) == ("b.tar.gz", "night")


def test_a_bad_run_id_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with collected([]) as collection, raises_code("bad_run_id"):
        export_bundles(collection, tmp_path / "b.tar.gz", run_id="a:b", split=None)


def test_nothing_makes_no_file(tmp_path: Path) -> None:
    with collected(RAW, ExportSelection(server_ids=frozenset({"none"}))) as collection:
        assert export_bundles(collection, tmp_path / "b.tar.gz", run_id=None, split=None) == []
        assert not any(export_parquet(collection, tmp_path / "p").values())
        assert not any(export_timesketch(collection, tmp_path / "t.csv").values())
        assert collection.left_out == 7
    assert list(tmp_path.iterdir()) == []


def test_datasets_have_what_the_engine_wrote(tmp_path: Path) -> None:
    outputs = replayed()
    raw = {
        kind: values(outputs, role)
        for kind, role in zip(Dataset, (Role.EVIDENCE, Role.ALERTS, Role.DEFINITIONS), strict=True)
    }
    with collected(line for lines in raw.values() for line in lines) as collection:
        counts = export_parquet(collection, tmp_path / "p")
    for kind, lines in raw.items():
        records = pq.read_table(tmp_path / "p" / f"{kind}.parquet")["record"].to_pylist()
        assert sorted(records) == sorted({line.decode() for line in lines})
        assert counts[kind] == len(records) > 0


def test_a_dataset_without_rows_is_not_written(tmp_path: Path) -> None:
    """An empty file would look like an answer."""
    with collected([definition()]) as collection:
        export_parquet(collection, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["definitions.parquet"]


def test_an_unwritable_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with collected(RAW) as collection:
        with raises_code("unwritable_file"):
            export_timesketch(collection, tmp_path / "no" / "t.csv")
        with raises_code("unwritable_folder"):
            export_parquet(collection, tmp_path / "file" / "p")


ALERT = alert_records(finding_of())[0].value or b""
REQUIRED = ("message", "datetime", "timestamp_desc")
"""What Timesketch's guide "Create timeline from JSONL or CSV file" demands."""


def read(*raw: bytes) -> list[ExportRecord]:
    return list(items(Stored("here", line) for line in raw))


def table(*raw: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(b"".join(as_csv(read(*raw))).decode(), newline="")))


def lines(*raw: bytes) -> list[dict[str, object]]:
    return [json.loads(line) for line in as_jsonl(read(*raw))]


@pytest.mark.parametrize("raw", [evidence(), ALERT])
def test_an_event_has_what_timesketch_demands(raw: bytes) -> None:
    for events in (table(raw), lines(raw)):
        for event in events:
            assert all(event[name] for name in REQUIRED)


def test_the_time_is_told_twice() -> None:
    (event,) = lines(evidence(time="2026-03-01T12:00:00.000007Z"))
    assert (event["datetime"], event["timestamp"]) == ("2026-03-01T12:00:00.000007+00:00", NOON_US + 7)


def test_messages_say_what_happened() -> None:
    bound = "sha256:" + "a" * 64
    messages = [line["message"] for line in lines(evidence(), evidence(data={"tool_definition_digest": bound}), ALERT)]
    assert messages == [
        "Tool call allow: server-a/read_file, definition unbound (definition_not_observed), pin unpinned",
        f"Tool call allow: server-a/read_file, definition {bound}, pin unpinned",
        "Alert (High, Create): The definition of a tool changed: server/tool (description)",
    ]


def test_both_forms_say_the_same() -> None:
    for row, line in zip(table(evidence(), ALERT), lines(evidence(), ALERT), strict=True):
        assert {name: value for name, value in row.items() if value} == {name: str(line[name]) for name in line}
    assert set(row) == set(HEADER)


def test_no_cell_is_a_formula() -> None:
    """Whatever a tool is called; JSON lines keep names as they are, since no spreadsheet opens them."""
    raw = evidence(data={"tool": "\u200b=1"})
    assert table(raw)[0]["tool_name"] == f"'{visible(chr(0x200B))}=1"
    assert lines(raw)[0]["tool_name"] == "\u200b=1"
