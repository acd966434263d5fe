"""Evidence and alerts as a timeline."""

from __future__ import annotations

import csv
import io
import json

import pytest

from assay_stream.export.input import ExportRecord, Stored, items
from assay_stream.export.rows import HEADER, as_csv, as_jsonl
from assay_stream.text.escaping import visible
from tests.support.alerts import alert_records, finding_of
from tests.support.exports import NOON_US, evidence

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


HOSTILE = [
    *("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "\u200b=1", "＝1", "\ufeff+1"),
    *("\u3000=1", "\u2007\u00a0=1", "\u2028=1", "\x00=1", "\x1b=1", "\U000e0020=1", "\u115f=1", "\u180e=1"),
    *("＋1", "－1", "＠SUM(A1)", "﹢1", "﹣1", "﹦1", "﹫x", "⁼1", '"=1', "'=1", "`=1", ' "\u200b=1', "\r\n=1"),
]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_cell_is_a_formula(name: str) -> None:
    """Whatever a server or a tool is called, with or without something invisible before it."""
    (row,) = table(evidence(data={"server_id": name, "tool": name}))
    assert row["server_id"] == row["tool_name"] == f"'{visible(name, keep=chr(10))}"
    assert not any(cell.lstrip()[:1] in tuple("=+-@＝") for cell in row.values() if cell)


def test_ordinary_names_are_as_they_are() -> None:
    """A dash or a sign within a name is none at its beginning; quotes and line feeds survive."""
    (row,) = table(evidence(data={"server_id": 'a-b,"c"\nd', "tool": "x=y"}))
    assert (row["server_id"], row["tool_name"]) == ('a-b,"c"\nd', "x=y")


@pytest.mark.parametrize("name", HOSTILE)
def test_json_lines_keep_names_as_they_are(name: str) -> None:
    """They are data, and no spreadsheet opens them."""
    assert lines(evidence(data={"tool": name}))[0]["tool_name"] == name
