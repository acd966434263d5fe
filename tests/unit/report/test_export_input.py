"""What an export is made of, and which of it is asked for."""

import gzip
from pathlib import Path

import orjson
import pytest

from assay_stream.errors import InputError
from assay_stream.model.record import Role
from assay_stream.replay.order import offset_ranges
from assay_stream.report.export_input import (
    Dataset,
    ExportRecord,
    ExportSelection,
    Stored,
    items,
    stored_in,
    write_bundle,
)
from tests.support.alerts import alert_records, finding_of
from tests.support.errors import raises_code
from tests.support.exports import NOON, NOON_US, a_file, definition, evidence, record_line

ALERT = alert_records(finding_of())[0].value or b""


def read(*paths: Path) -> list[ExportRecord]:
    return list(items(stored_in(paths)))


def one(raw: bytes) -> ExportRecord:
    (item,) = items([Stored("here", raw)])
    return item


@pytest.mark.parametrize(
    ("raw", "kind"), [(evidence(), Dataset.EVIDENCE), (ALERT, Dataset.ALERTS), (definition(), Dataset.DEFINITIONS)]
)
def test_a_record_is_told_by_what_it_is(raw: bytes, kind: Dataset) -> None:
    item = one(raw)
    assert (item.kind, item.raw, item.content) == (kind, raw, orjson.loads(raw))


def test_evidence_stands_where_its_call_stood() -> None:
    assert one(evidence(7)).place == (NOON_US, "mcp.tools.call", 3, 7)


@pytest.mark.parametrize("raw", [b"7", b"[]", b"{}", b'{"specversion":"1.0","type":"mcp.tools.call.observed"}'])
def test_what_is_nothing_to_export_is_an_error(raw: bytes) -> None:
    """An observation above all: it must be replayed, not exported. The place is named."""
    with raises_code("not_exportable", match=r"here: .*replay"):
        one(raw)


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (evidence().replace(b"read_file", b"send_file"), "content_hash_mismatch"),
        (evidence(time="today"), "not_evidence"),
        (evidence(time="2026-03-01T12:00:00"), "not_evidence"),
        (ALERT.replace(b'"time":', b'"tame":'), "not_an_alert"),
        (definition().replace(b"sha256:0", b"sha256:x"), "not_a_definition"),
        (b'{"full_digest":"sha256:' + b"0" * 64 + b'","definition":7}', "not_a_definition"),
        (b'{"a":1,"a":1}', "duplicate_key"),
        (evidence(data={"deep": eval("[" * 70 + "]" * 70)}), "too_deep"),  # noqa: S307
    ],
)
def test_an_unsound_record_is_named(raw: bytes, code: str) -> None:
    with raises_code(code, match=r"here: ") as caught:
        one(raw)
    assert "send_file" not in str(caught.value)


def test_lines_record_lines_gzip_and_bundles_give_the_same(tmp_path: Path) -> None:
    raw = [evidence(number) for number in range(3)]
    plain = a_file(tmp_path / "plain.ndjson", *raw)
    log = a_file(tmp_path / "log.ndjson", *(record_line(line, offset=at) for at, line in enumerate(raw)))
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    bundle = tmp_path / "b.tar.gz"
    write_bundle(bundle, map(orjson.loads, raw), run_id="r")
    assert [item.raw for item in read(plain)] == raw
    assert read(plain) == read(log) == read(packed)
    assert [item.place for item in read(bundle)] == [item.place for item in read(plain)]
    assert [item.content["data"] for item in read(bundle)] == [item.content["data"] for item in read(plain)]


def test_a_folder_is_what_a_replay_wrote(tmp_path: Path) -> None:
    a_file(tmp_path / "evidence.ndjson", evidence())
    a_file(tmp_path / "alerts.ndjson", ALERT)
    a_file(tmp_path / "rejected.ndjson", b"junk")
    assert [item.kind for item in read(tmp_path)] == [Dataset.EVIDENCE, Dataset.ALERTS]


@pytest.mark.parametrize(
    "names", [("evidence.ndjson.gz", "alerts.jsonl"), ("evidence-0.ndjson.gz", "alerts.ndjson.gz")]
)
def test_compressed_results_in_a_folder_are_not_left_out(names: tuple[str, str], tmp_path: Path) -> None:
    """As `archive` and `seal archive` write them; an export without them would look whole."""
    for name, raw in zip(names, (evidence(), ALERT), strict=True):
        (tmp_path / name).write_bytes(gzip.compress(raw + b"\n"))
    assert [item.kind for item in read(tmp_path)] == [Dataset.EVIDENCE, Dataset.ALERTS]


def test_a_folder_without_results_is_an_error(tmp_path: Path) -> None:
    """Beside another input nobody would notice that it holds nothing to export."""
    a_file(tmp_path / "calls.ndjson", b"{}")
    with raises_code("unreadable_file", match=r"evidence\*.ndjson, alerts\*.ndjson, definitions\*.ndjson"):
        read(tmp_path)


def test_other_records_of_an_archive_are_passed_over(tmp_path: Path) -> None:
    """An archive of a whole deployment holds observations beside the evidence."""
    path = a_file(
        tmp_path / "a", record_line(b"{}", Role.CALLS), record_line(evidence()), record_line(b"{}", Role.BINDINGS)
    )
    assert [item.raw for item in read(path)] == [evidence()]


def test_a_record_of_another_kind_than_its_topic_is_an_error(tmp_path: Path) -> None:
    with raises_code("not_exportable", match="line 1 of a"):
        read(a_file(tmp_path / "a", record_line(ALERT)))


def test_blank_lines_count(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 3 of a"):
        read(a_file(tmp_path / "a", evidence(), b"  ", b"{}"))


CALLS = "mcp.tools.call"


def chosen(selection: ExportSelection, *raw: bytes) -> list[int]:
    return [index for index, line in enumerate(raw) if selection.wants(next(items([Stored("here", line)])))]


def test_a_range_of_time_has_its_beginning_and_not_its_end() -> None:
    """Two ranges that meet share nothing; definitions have no time."""
    times = ["2026-03-01T11:59:59.999999Z", NOON, "2026-03-01T13:00:00+01:00", "2026-03-01T12:00:00.000001Z"]
    raw = [*(evidence(time=time) for time in times), definition()]
    assert chosen(ExportSelection(since_us=NOON_US), *raw) == [1, 2, 3, 4]
    assert chosen(ExportSelection(until_us=NOON_US), *raw) == [0, 4]
    assert chosen(ExportSelection(since_us=NOON_US, until_us=NOON_US + 1), *raw) == [1, 2, 4]


def test_servers_can_be_asked_for() -> None:
    raw = [evidence(), evidence(data={"server_id": "b"}), ALERT, definition(), evidence(data={"server_id": None})]
    assert chosen(ExportSelection(server_ids=frozenset({"b", "server"})), *raw) == [1, 2, 3]


def test_offsets_can_be_asked_for() -> None:
    """Of the calls, the end excluded; alerts are not of calls."""
    raw = [*(evidence(number) for number in range(4)), ALERT]
    assert chosen(ExportSelection(offsets=offset_ranges([f"{CALLS}:3=1..3"])), *raw) == [1, 2]
    assert chosen(ExportSelection(offsets=offset_ranges([f"{CALLS}:3=..1", f"{CALLS}:3=3.."])), *raw) == [0, 3]
    assert chosen(ExportSelection(offsets=offset_ranges([f"{CALLS}:2=0..9"])), *raw) == []
    assert chosen(ExportSelection(offsets=offset_ranges(["another:3=0..9"])), *raw) == []
