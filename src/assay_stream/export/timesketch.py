"""Evidence and alerts as a Timesketch timeline: CSV or JSON lines.

Timesketch asks for ``message``, ``datetime`` (ISO 8601) and ``timestamp_desc``, takes ``timestamp`` (microseconds
since the epoch) beside them, and every further column as an attribute (its guide "Create timeline from JSONL or
CSV file"). It reads files named ``.csv`` and ``.jsonl`` only.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

import orjson

from assay_stream.export.columns import COLUMNS, ColumnType, Value, row_of
from assay_stream.export.input import Dataset, ExportRecord
from assay_stream.text.escaping import csv_line, json_bytes

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_US = 253_402_300_799_999_999
"""The last microsecond of the year 9999."""
_DESCRIPTIONS = {Dataset.EVIDENCE: "Tool Call Time", Dataset.ALERTS: "Alert Time"}
_DATA_TYPES = {Dataset.EVIDENCE: "assay_stream:evidence", Dataset.ALERTS: "assay_stream:alert"}
_OURS = ("message", "datetime", "timestamp", "timestamp_desc", "data_type")
_LEFT_OUT = {"time", "message", "record"}
HEADER = (
    *_OURS,
    *dict.fromkeys(column.name for kind in _DESCRIPTIONS for column in COLUMNS[kind] if column.name not in _LEFT_OUT),
)
"""The columns of the CSV file; a JSON line has those that are not null."""


def event_of(item: ExportRecord) -> dict[str, Value]:
    row = row_of(item)
    time_us = min(max(item.place.time_us, 0), _LAST_US)
    event: dict[str, Value] = {
        "message": _message(item.kind, row),
        "datetime": (_EPOCH + timedelta(microseconds=time_us)).isoformat(timespec="microseconds"),
        "timestamp": time_us,
        "timestamp_desc": _DESCRIPTIONS[item.kind],
        "data_type": _DATA_TYPES[item.kind],
    }
    for column in COLUMNS[item.kind]:
        value = row[column.name]
        if column.name in _LEFT_OUT or value is None:
            continue
        if column.type is ColumnType.TIME and isinstance(value, int):
            value = (_EPOCH + timedelta(microseconds=min(max(value, 0), _LAST_US))).isoformat()
        event[column.name] = value
    return event


def _message(kind: Dataset, row: dict[str, Value]) -> Value:
    if kind is Dataset.ALERTS:
        return f"Alert ({row['severity']}, {row['activity']}): {row['message'] or row['title']}"
    subject = f"{row['server_id']}/{row['tool_name']}"
    bound = row["tool_definition_digest"] or f"unbound ({row['unbound_reason']})"
    return f"Tool call {row['decision']}: {subject}, definition {bound}, pin {row['pin_status']}"


def as_jsonl(items: Iterable[ExportRecord]) -> Iterator[bytes]:
    """Yield the lines of a JSON lines file of evidence and alerts."""
    for item in items:
        yield json_bytes(orjson.dumps(event_of(item))) + b"\n"


def as_csv(items: Iterable[ExportRecord]) -> Iterator[bytes]:
    """Yield the lines of a CSV file of evidence and alerts, header first.

    Names of servers and tools are not ours, and a spreadsheet may run what starts like a formula: see ``csv_line``.
    JSON lines hold names as they are.
    """
    yield csv_line(HEADER).encode()
    for item in items:
        event = event_of(item)
        yield csv_line(event.get(name) for name in HEADER).encode()
