"""Exports: records collected, put in order, and written as bundles, datasets or a timeline.

Evidence is ordered by event time, then by topic, partition and offset of its call; alerts by event time, then by uid
and count; definitions by digest. Equal records count once. So equal records give equal files, in whatever order they
were read.

Timesketch asks for ``message``, ``datetime`` (ISO 8601) and ``timestamp_desc``, takes ``timestamp`` (microseconds
since the epoch) beside them, and every further column as an attribute (its guide "Create timeline from JSONL or
CSV file"). It reads files named ``.csv`` and ``.jsonl`` only.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from hashlib import sha256
from importlib import resources
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from assay_stream.canonical.digest import Digest, canonicalize
from assay_stream.errors import needing_extra
from assay_stream.files.local import Aside, locked_folder, writing, writing_to
from assay_stream.files.spool import Spool
from assay_stream.report.export_input import (
    Dataset,
    ExportPlace,
    ExportRecord,
    ExportSelection,
    Stored,
    items,
    write_bundle,
)
from assay_stream.schemes.assay_bundle import Manifest, RunRoot, check_run_id
from assay_stream.text.escaping import csv_line, json_bytes
from assay_stream.text.times import EPOCH, LAST_US, time_us_in

INT64_MAX = 2**63 - 1


class Column(NamedTuple):
    """One column, and the members that lead to its value in a record; none for the record itself.

    Its type is a key of ``_READ``. A time is microseconds since the epoch, JSON is canonical text.
    """

    name: str
    type: str
    path: tuple[str, ...]


def _columns() -> dict[Dataset, tuple[Column, ...]]:
    read = tomllib.loads(resources.files(__package__).joinpath("columns.toml").read_text("utf-8"))
    found = {}
    for kind in Dataset:
        columns = []
        for group in read[kind.value]:
            for text in group["names"].split():
                name, _, path = text.partition("=")
                columns.append(Column(name, group["type"], (*group["at"], *(path or name).split("."))))
        found[kind] = (*columns, Column("record", "json", ()))
    return found


COLUMNS = _columns()
"""The columns of each dataset, in order; the last one of each holds the whole record."""

Value = str | int | float | bool | None


def row_of(item: ExportRecord) -> dict[str, Value]:
    """Return a record as a row. A value of another type than its column's is null there; the record has it."""
    return {column.name: _value(item, column) for column in COLUMNS[item.kind]}


def _value(item: ExportRecord, column: Column) -> Value:
    if not column.path:
        return item.raw.decode()
    value: Any = item.content
    for name in column.path:
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    return _READ[column.type](value)


def _int64(value: Any) -> int | None:
    return value if type(value) is int and abs(value) <= INT64_MAX else None


_READ: dict[str, Callable[[Any], Value]] = {
    "text": lambda value: value if type(value) is str else None,
    # Alerts have milliseconds since the epoch, envelopes a text.
    "time": lambda value: _int64(value * 1_000 if type(value) is int else time_us_in(value)),
    "integer": _int64,
    "number": lambda value: float(value) if type(value) in (int, float) else None,
    "flag": lambda value: value if type(value) is bool else None,
    "json": lambda value: canonicalize(value).decode(),
}


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
    time_us = min(max(item.place.time_us, 0), LAST_US)
    event: dict[str, Value] = {
        "message": _message(item.kind, row),
        "datetime": (EPOCH + timedelta(microseconds=time_us)).isoformat(timespec="microseconds"),
        "timestamp": time_us,
        "timestamp_desc": _DESCRIPTIONS[item.kind],
        "data_type": _DATA_TYPES[item.kind],
    }
    for column in COLUMNS[item.kind]:
        value = row[column.name]
        if column.name in _LEFT_OUT or value is None:
            continue
        if column.type == "time" and isinstance(value, int):
            value = (EPOCH + timedelta(microseconds=min(max(value, 0), LAST_US))).isoformat()
        event[column.name] = value
    return event


def _message(kind: Dataset, row: dict[str, Value]) -> Value:
    if kind is Dataset.ALERTS:
        return f"Alert ({row['severity']}, {row['activity']}): {row['message'] or row['title']}"
    subject = f"{row['server_id']}/{row['tool_name']}"
    bound = row["tool_definition_digest"] or f"unbound ({row['unbound_reason']})"
    return f"Tool call {row['decision']}: {subject}, definition {bound}, pin {row['pin_status']}"


def as_jsonl(items: Iterable[ExportRecord]) -> Iterator[bytes]:
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


ROWS_PER_GROUP = 10_000
"""Rows held in memory at once: some 20 MB of evidence."""
ROW_GROUP_BYTES = 64 * 1024 * 1024
"""Or as many as have this much text: a definition may have megabytes."""


def write_parquet(path: Path, kind: Dataset, rows: Iterable[Mapping[str, Value]]) -> int:
    """Write a dataset, replacing the file whole or not at all, and return its number of rows.

    Raises:
        ConfigurationError: ``extra_missing``.
        InputError: ``unwritable_file``.
    """
    arrow, parquet = parquet_library()
    types = {
        "time": arrow.timestamp("us", tz="UTC"),
        "integer": arrow.int64(),
        "number": arrow.float64(),
        "flag": arrow.bool_(),
    }
    schema = arrow.schema([(each.name, types.get(each.type, arrow.string())) for each in COLUMNS[kind]])
    count = 0
    with writing(path), Aside() as aside, parquet.ParquetWriter(aside.path(path), schema, compression="zstd") as writer:
        for group in _groups(rows):
            count += len(group)
            writer.write_table(arrow.Table.from_pylist(group, schema=schema))
    return count


def parquet_library() -> tuple[Any, Any]:
    """Return the modules that write Parquet files.

    Raises:
        ConfigurationError: ``extra_missing``.
    """
    with needing_extra("parquet"):
        import pyarrow
        import pyarrow.parquet
    return pyarrow, pyarrow.parquet


def _groups(rows: Iterable[Mapping[str, Value]]) -> Iterator[list[Mapping[str, Value]]]:
    group, size_bytes = list[Mapping[str, Value]](), 0
    for row in rows:
        group.append(row)
        size_bytes += sum(len(value) for value in row.values() if isinstance(value, str))
        if len(group) >= ROWS_PER_GROUP or size_bytes >= ROW_GROUP_BYTES:
            yield group
            group, size_bytes = [], 0
    if group:
        yield group


_RUN_PREFIX = "assay-stream-"
_RUN_DIGITS = 32
_BUNDLE_SUFFIX = ".tar.gz"


class Collection:
    """The records of an export, on disk."""

    def __init__(self, selection: ExportSelection, kinds: frozenset[Dataset]) -> None:
        self._selection = selection
        self._kinds = kinds
        # Each once: the digest ends the key.
        self._spool: Spool[Dataset] = Spool(itemgetter(slice(5)))
        self.left_out = 0
        """How many records of these kinds were not selected."""

    def __enter__(self) -> Collection:
        return self

    def __exit__(self, *_: object) -> None:
        self._spool.close()

    def take(self, stored: Iterable[Stored]) -> None:
        """Add the selected records.

        Raises:
            InputError: as ``items``.
            OperatingError: ``no_room``.
        """
        for item in items(stored, kinds=self._kinds):
            if self._selection.wants(item):
                self._spool.put(item.kind, (*item.place, sha256(item.raw).digest(), item.raw))
            else:
                self.left_out += 1

    def items(self, kind: Dataset) -> Iterator[ExportRecord]:
        self._spool.finish()
        for *place, _, raw in self._spool.rows(kind):
            # Decoded strictly when it came in, so a fast decoder reads the same.
            yield ExportRecord(kind, ExportPlace(*place), raw, orjson.loads(raw))

    def events(self) -> Iterator[dict[str, Any]]:
        return (item.content for item in self.items(Dataset.EVIDENCE))

    def count(self, kind: Dataset) -> int:
        self._spool.finish()
        return sum(1 for _ in self._spool.rows(kind))


def export_bundles(
    collection: Collection, path: Path, *, run_id: str | None, split: int | None
) -> list[tuple[Path, Manifest]]:
    """Write the evidence as a bundle, or as several; none if there is no evidence.

    Args:
        path: the file; of several, ``evidence.tar.gz`` becomes ``evidence-0001.tar.gz`` and so on.
        run_id: name of the run, to which each of several adds its number. ``None`` makes it from the content hashes:
            equal evidence has the same run id.
        split: events of one bundle at most, ``None`` for one bundle.

    Raises:
        InputError: as ``write_bundle``.
    """
    if run_id is not None:
        check_run_id(run_id)
    total = collection.count(Dataset.EVIDENCE)
    size = total if split is None else split
    written = []
    ahead, events = collection.events(), collection.events()
    with writing(path), Aside() as aside:
        for number in range(1, -(-total // max(size, 1)) + 1):
            part = f"-{number:04}" if total > size else ""
            target = path.with_name(f"{_stem(path)}{part}{_BUNDLE_SUFFIX}") if part else path
            run = _run_id(islice(ahead, size)) if run_id is None else f"{run_id}{part}"
            written.append((target, write_bundle(aside.path(target), islice(events, size), run_id=run)))
        if written:
            for stale in (path, *numbered_bundles(path)):
                aside.remove(stale)
    return written


def numbered_bundles(path: Path) -> list[Path]:
    """Return the bundles that an earlier split export left under the name of a single bundle, sorted."""
    try:
        names = sorted(entry.name for entry in path.parent.iterdir())
    except OSError:
        return []  # writing there fails with what is wrong
    pattern = re.compile(re.escape(_stem(path)) + r"-\d{4,}" + re.escape(_BUNDLE_SUFFIX))
    return [path.with_name(name) for name in names if pattern.fullmatch(name)]


def _stem(path: Path) -> str:
    return path.name.removesuffix(_BUNDLE_SUFFIX)


def _run_id(events: Iterable[Mapping[str, Any]]) -> str:
    root = RunRoot()
    for event in events:
        root.add(Digest.parse(event["assaycontenthash"]))
    return f"{_RUN_PREFIX}{root.digest().hex[:_RUN_DIGITS]}"


def export_parquet(collection: Collection, folder: Path) -> dict[Dataset, int]:
    """Write one file for each kind that has records, and return the numbers of rows.

    The folder is made if missing. A file of a kind without records is removed: exports are never mixed.

    Raises:
        InputError: ``unwritable_folder`` or ``unwritable_file``.
        ConfigurationError: ``extra_missing``, ``output_in_use``.
    """
    counts = {kind: collection.count(kind) for kind in Dataset}
    if collection.left_out and not counts[Dataset.EVIDENCE] and not counts[Dataset.ALERTS]:
        # A selection does not narrow definitions: they alone are not what was asked for.
        counts = dict.fromkeys(Dataset, 0)
    if not any(counts.values()):
        return counts
    with writing_to(folder), locked_folder(folder), Aside() as aside:
        for kind, count in counts.items():
            path = folder / f"{kind.value}.parquet"
            aside.remove(path)
            if count:
                write_parquet(aside.path(path), kind, map(row_of, collection.items(kind)))
    return counts


def export_timesketch(collection: Collection, path: Path) -> dict[Dataset, int]:
    """Write evidence and alerts as one timeline, and return how many of each; no file if there are none.

    The name of the file ends in ``.csv`` or ``.jsonl``, which is also the format.

    Raises:
        InputError: ``unwritable_file``.
    """
    counts = Counter({kind: collection.count(kind) for kind in (Dataset.EVIDENCE, Dataset.ALERTS)})
    if not counts.total():
        return dict(counts)
    events = (item for kind in counts for item in collection.items(kind))
    with writing(path), Aside() as aside, aside.path(path).open("wb") as file:
        file.writelines(as_csv(events) if path.suffix == ".csv" else as_jsonl(events))
    return dict(counts)
