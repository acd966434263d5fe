"""Records as rows."""

import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay_stream.errors import ConfigurationError, InputError
from assay_stream.model.record import Role
from assay_stream.report import export as module
from assay_stream.report.export import COLUMNS, Value, row_of, write_parquet
from assay_stream.report.export_input import Dataset, Stored, items
from tests.support.alerts import TIME_US, A, B, alert_records, finding_of
from tests.support.errors import raises_code
from tests.support.exports import NOON_US, definition, evidence, replayed, values


def row(raw: bytes) -> dict[str, Value]:
    (item,) = items([Stored("here", raw)])
    return row_of(item)


def test_evidence_has_its_columns() -> None:
    found = row(evidence(7, data={"timing": {"duration_ms": 3}, "ok": False, "error": {"code": "E"}}))
    assert {name: value for name, value in found.items() if value is not None} == {
        "time": NOON_US,
        "type": "assay.tool.decision",
        "id": "id-7",
        "source": "urn:assay-stream",
        "content_hash": orjson.loads(str(found["record"]))["assaycontenthash"],
        "producer": "assay-stream",
        "producer_version": "1.2.3",
        "producer_git": "unknown",
        "server_id": "server-a",
        "observer_id": "proxy-1",
        "tool_name": "read_file",
        "decision": "allow",
        "reason_code": "P_OK",
        "unbound_reason": "definition_not_observed",
        "binding_scope": "none",
        "pin_status": "unpinned",
        "ok": False,
        "error_code": "E",
        "duration_ms": 3.0,
        "origin_topic": "mcp.tools.call",
        "origin_partition": 3,
        "origin_offset": 7,
        "record": evidence(7, data={"timing": {"duration_ms": 3}, "ok": False, "error": {"code": "E"}}).decode(),
    }


def test_an_alert_has_its_columns() -> None:
    found = row(alert_records(finding_of())[0].value or b"")
    assert found["time"] == found["first_seen"] == TIME_US // 1_000 * 1_000
    assert (found["kind"], found["server_id"], found["tool_name"]) == ("tool_changed", "server", "tool")
    assert (found["digest_before"], found["digest_after"], found["count"]) == (A, B, 1)
    assert (found["activity"], found["status"], found["origin_offset"]) == ("Create", "New", 0)


def test_a_definition_has_its_columns() -> None:
    found = row(definition("t", description="d", outputSchema={"b": 1, "a": [None, 1e3]}))
    assert (found["name"], found["description"], found["title"]) == ("t", "d", None)
    assert (found["input_schema"], found["output_schema"]) == ("{}", '{"a":[null,1000],"b":1}')


@pytest.mark.parametrize(
    "data",
    [
        {"tool": 7, "ok": "yes", "origin": 3, "timing": {"duration_ms": True}},
        {"tool": None, "ok": None, "origin": {"topic": 1, "partition": 2.5, "offset": 2**64}, "timing": []},
    ],
)
def test_a_value_of_another_type_is_null(data: dict[str, object]) -> None:
    found = row(evidence(data=data))
    for name in ("tool_name", "ok", "origin_topic", "origin_partition", "origin_offset", "duration_ms"):
        assert found[name] is None


@pytest.mark.parametrize(
    ("kind", "role", "never"),
    [
        (
            Dataset.EVIDENCE,
            Role.EVIDENCE,
            {"id", "server_id", "tool_name", "decision", "binding_scope", "pin_status", "origin_offset"},
        ),
        (Dataset.ALERTS, Role.ALERTS, {"time", "uid", "kind", "severity_id", "count", "observers", "server_id"}),
        (Dataset.DEFINITIONS, Role.DEFINITIONS, {"full_digest", "name", "input_schema", "definition", "projection"}),
    ],
)
def test_what_the_engine_writes_fills_the_columns(kind: Dataset, role: Role, never: set[str]) -> None:
    found = [row(raw) for raw in values(replayed(), role)]
    assert found
    assert all(line[name] is not None for line in found for name in never)
    assert set(found[0]) == {column.name for column in COLUMNS[kind]}


def test_names_are_unique_and_the_record_is_last() -> None:
    for columns in COLUMNS.values():
        assert len({column.name for column in columns}) == len(columns)
        assert columns[-1] == ("record", "json", ())


ROW: dict[str, Value] = {column.name: None for column in COLUMNS[Dataset.EVIDENCE]}


def rows(count: int) -> list[dict[str, Value]]:
    return [ROW | {"origin_offset": number, "time": 1_772_366_400_000_001, "ok": True} for number in range(count)]


def test_types_are_the_columns(tmp_path: Path) -> None:
    write_parquet(tmp_path / "e.parquet", Dataset.EVIDENCE, [ROW])
    schema = pq.read_schema(tmp_path / "e.parquet")
    assert schema.names == list(ROW)
    found = {name: schema.field(name).type for name in ("time", "id", "ok", "duration_ms", "origin_offset")}
    assert found == {
        "time": pa.timestamp("us", tz="UTC"),
        "id": pa.string(),
        "ok": pa.bool_(),
        "duration_ms": pa.float64(),
        "origin_offset": pa.int64(),
    }


def test_values_are_read_back(tmp_path: Path) -> None:
    assert write_parquet(tmp_path / "e.parquet", Dataset.EVIDENCE, rows(3)) == 3
    (first, *_) = found = pq.read_table(tmp_path / "e.parquet").to_pylist()
    assert [line["origin_offset"] for line in found] == [0, 1, 2]
    assert (first["time"], first["ok"]) == (datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC), True)


def test_rows_are_written_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS_PER_GROUP", 4)
    write_parquet(tmp_path / "e.parquet", Dataset.EVIDENCE, rows(9))
    assert pq.read_metadata(tmp_path / "e.parquet").num_row_groups == 3
    monkeypatch.setattr(module, "ROW_GROUP_BYTES", 10)
    write_parquet(tmp_path / "e.parquet", Dataset.EVIDENCE, [row | {"record": "x" * 20} for row in rows(3)])
    assert pq.read_metadata(tmp_path / "e.parquet").num_row_groups == 3


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "e.parquet"
    path.write_bytes(b"before")

    def broken() -> Iterator[dict[str, Any]]:
        yield ROW
        raise InputError("not_exportable", "x")

    with pytest.raises(InputError):
        write_parquet(path, Dataset.EVIDENCE, broken())
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"before", ["e.parquet"])


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with raises_code("extra_missing", kind=ConfigurationError, match=r"pyarrow .* 'assay-stream\[parquet\]'"):
        module.parquet_library()


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with raises_code("unwritable_file"):
        write_parquet(tmp_path / "no" / "e.parquet", Dataset.EVIDENCE, [ROW])
