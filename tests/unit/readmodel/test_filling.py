"""Records go into the store once, whole batches at a time, and nothing that is written there stops it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import orjson
import pytest
import zstandard

from assay_stream.errors import ConfigurationError, InputError, OperatingError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.record import Origin, Record, Role
from assay_stream.readmodel import calls, schema
from assay_stream.readmodel.filling import Filler, LogState, fill, witness_of
from assay_stream.readmodel.queries import Store, load
from assay_stream.readmodel.rows import EvidenceFilter, Paging
from tests.support.readmodel import NOW_US, data_of, history, of_role, tables


def test_every_record_is_counted_in_its_log() -> None:
    """What was read of each log is what the log holds."""
    records = history()
    read = {(row.topic, row.partition): row.read for row in load(records).positions()}
    held: dict[tuple[str, int], int] = {}
    for record in records:
        held[record.origin[:2]] = held.get(record.origin[:2], 0) + 1
    assert read == held


def test_records_delivered_again_change_nothing() -> None:
    """A record before the position of its log was taken in before."""
    connection = schema.temporary()
    filler = fill(connection, history())
    before = tables(connection)
    assert filler.take(history()[10:40]) == 0
    assert filler.take(history()) == 0
    assert tables(connection) == before


def test_a_batch_that_fails_leaves_nothing_behind() -> None:
    """Records, counts and positions of a batch are one transaction, and what was remembered of it is forgotten."""
    connection = schema.temporary()
    filler = fill(connection, history()[:50])
    before = tables(connection)
    connection.execute("CREATE TEMP TRIGGER broken BEFORE UPDATE ON source BEGIN SELECT RAISE(ABORT, 'broken'); END")
    with pytest.raises(InputError, match="store_unreadable"):
        filler.take(history()[50:])
    connection.execute("DROP TRIGGER broken")
    assert tables(connection) == before
    filler.take(history()[50:])
    assert tables(connection, "meta") == tables(_filled(), "meta")


@pytest.mark.parametrize(("calls", "pages_left"), [(60, 2), (1_200, 2), (1_200, 100), (1_200, 200)])
def test_a_full_disk_is_an_error_of_ours(calls: int, pages_left: int) -> None:
    """It says what to check; once there is room, filling goes on where it stopped."""
    connection = schema.temporary()
    filler = Filler(connection)
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + pages_left}")
    with pytest.raises(OperatingError, match="store_failing"):
        filler.take(history(calls))
    connection.execute("PRAGMA max_page_count = 1000000")
    filler.take(history(calls))
    assert tables(connection) == tables(_filled(calls))


def test_batches_of_any_size_fill_the_same_tables() -> None:
    """What is in them depends on the records and their order alone."""
    connection = schema.temporary()
    filler = Filler(connection)
    records = history(1_200)
    for start in range(0, len(records), 7):
        filler.take(records[start : start + 7])
    assert tables(connection) == tables(_filled(1_200))


def _filled(calls: int = 60) -> sqlite3.Connection:
    connection = schema.temporary()
    Filler(connection).take(history(calls))
    return connection


HOSTILE = [
    None,
    b"",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"id": 1}',
    b'{"id":"x","time":"2026-02-30T00:00:00Z","assaycontenthash":"x","data":{}}',
    orjson.dumps({"data": "x" * 1_000_000}),
]


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize(
    "role", [Role.EVIDENCE, Role.ALERTS, Role.CHANGES, Role.VERDICTS, Role.BINDINGS, Role.DEFINITIONS]
)
def test_what_is_none_of_ours_is_counted_and_passed(role: Role, value: bytes | None) -> None:
    """The store goes on behind records that somebody else wrote."""
    foreign = Record(role, Origin("other", 0, 7), b"\xff", value)
    store = load([foreign, *history()])
    found = {row.topic: row for row in store.positions()}["other"]
    assert (found.read, found.refused, found.following) == (1, 1, 8)
    assert store.status().counts == load(history()).status().counts


def test_evidence_without_an_id_is_none() -> None:
    """A row by which nothing can be found would be lost to its era, and stop what drops the last of it."""
    [first, second, *_] = of_role(history(), Role.EVIDENCE)
    event = orjson.loads(second.value or b"") | {"id": ""}
    store = load([first, second._replace(value=orjson.dumps(event))])
    assert store.status().counts["evidence"] == 1
    assert sum(row.refused for row in store.positions()) == 1


def test_a_time_in_the_year_9999_is_a_time() -> None:
    """It sorts behind all others and breaks no sum."""
    [first, *rest] = of_role(history(), Role.EVIDENCE)
    late = orjson.loads(first.value or b"") | {"time": "9999-12-31T23:59:59.999999Z"}
    store = load([first._replace(value=orjson.dumps(late)), *rest])
    assert store.evidence(EvidenceFilter(), Paging(limit=1)).rows[0].time_us == 253_402_300_799_999_999


def test_names_are_what_servers_chose() -> None:
    """Quotes, control characters and half of a query are names like others."""
    hostile = "x'; DROP TABLE evidence; --\x00\x1b[2J\u202e\U0001f600"
    first = of_role(history(), Role.EVIDENCE)[0]
    event = orjson.loads(first.value or b"")
    event["data"] |= {"server_id": hostile, "tool": hostile, "observer_id": hostile}
    store = load([first._replace(value=orjson.dumps(event))])
    [row] = store.evidence(EvidenceFilter(server_id=hostile, tool_name=hostile, observer_id=hostile)).rows
    assert (row.server_id, row.tool_name, row.observer_id) == (hostile, hostile, hostile)
    assert [row.server_id for row in store.servers(now_us=NOW_US).rows] == [hostile]


def test_a_store_belongs_to_one_deployment() -> None:
    """Offsets of another cluster mean something else."""
    filler = Filler(schema.temporary())
    filler.begin("cluster a")
    filler.begin("cluster a")
    with pytest.raises(ConfigurationError, match=r"store_of_another.*store run --rebuild"):
        filler.begin("cluster b")


def test_the_last_record_of_a_log_is_known_again() -> None:
    """A hash over key and value tells it from any other at its place."""
    connection = schema.temporary()
    filler = fill(connection, history())
    last = of_role(history(), Role.EVIDENCE)[-1]
    assert filler.witness(*last.origin[:2]) == (last.origin.offset, witness_of(last))
    assert witness_of(last._replace(key=b"other")) != witness_of(last)
    assert filler.witness("nothing", 0) is None


def test_offsets_that_are_gone_are_counted() -> None:
    """Reading goes on behind a hole, and the store says how large it was."""
    connection = schema.temporary()
    filler = Filler(connection)
    filler.note({(Role.ALERTS, "alerts", 0): LogState(120, 120, 130)})
    [row] = Store(connection).positions()
    assert (row.following, row.lost, row.end, row.lag) == (120, 120, 130, 10)


def test_facts_are_kept_under_their_key() -> None:
    """A fact that is published again takes the place of the former one; a tombstone takes it away."""
    records = of_role(history(), Role.BINDINGS)
    ends = {record.origin.partition: record.origin.offset for record in records}
    again = [
        record._replace(origin=record.origin._replace(offset=ends[record.origin.partition] + 1 + index))
        for index, record in enumerate(records)
    ]
    assert load([*records, *again]).status().counts == load(records).status().counts
    gone = [
        record._replace(value=None, origin=record.origin._replace(offset=record.origin.offset + 100_000))
        for record in again
    ]
    counts = load([*records, *again, *gone]).status().counts
    assert (counts["tool_fact"], counts["catalogue"], counts["seen"]) == (0, 0, 0)


def test_a_compacted_topic_gives_the_same_store() -> None:
    """What the latest records of each key say is all that counts."""
    records = list(history())
    latest = {(record.role, record.key, record.origin.partition): record.origin for record in records}
    compacted = [
        record
        for record in records
        if record.role in (Role.EVIDENCE, Role.ALERTS, Role.CHANGES)
        or latest[record.role, record.key, record.origin.partition] == record.origin
    ]
    assert len(compacted) < len(records)
    one, other = load(records), load(compacted)
    assert one.servers(now_us=NOW_US) == other.servers(now_us=NOW_US)
    assert one.tools(now_us=NOW_US) == other.tools(now_us=NOW_US)
    assert one.versions("server-0", "tool_0") == other.versions("server-0", "tool_0")


def test_evidence_is_what_the_topic_holds() -> None:
    """A recount of the records gives the store's counts."""
    records = of_role(history(), Role.EVIDENCE)
    store = load(history())
    for row in store.servers(now_us=NOW_US).rows:
        assert row.calls == sum(data_of(record)["server_id"] == row.server_id for record in records)
    found = store.evidence(EvidenceFilter(), Paging(limit=1_000)).rows
    assert sorted(row.origin for row in found) == sorted(record.origin for record in records)
    for record in records:
        whole = store.evidence_at(str(record.origin))
        assert whole is not None
        assert whole.value == record.value


def test_who_hears_nothing_of_brokers_does_not_make_a_store_look_fresh() -> None:
    connection = schema.temporary()
    filler, store = Filler(connection), Store(connection)
    filler.note({(Role.ALERTS, "alerts", 0): LogState(end=0)}, looked_us=7)
    filler.note({(Role.ALERTS, "alerts", 0): LogState(end=0)}, looked_us=None)
    assert store.status().looked_us == 7


def test_a_store_that_was_deleted_stops_filling(tmp_path: Path) -> None:
    """What went into a file without a name would be lost, and readers would see nothing of it."""
    with schema.writing(tmp_path) as connection:
        filler = Filler(connection)
        filler.note({(Role.ALERTS, "alerts", 0): LogState(end=0)}, looked_us=1)
        (tmp_path / schema.FILE).unlink()
        with pytest.raises(ConfigurationError) as caught:
            filler.note({(Role.ALERTS, "alerts", 0): LogState(end=0)}, looked_us=2)
    assert caught.value.code == "store_missing"
    assert "store run" in caught.value.message


@pytest.mark.parametrize("cut", [0, 4])
def test_a_record_is_inflated_to_its_longest_only(cut: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes that somebody else stored must not fill memory; a damaged record is an error too."""
    monkeypatch.setattr(calls, "_RECORD_BYTES_MAX", 1_000)
    body = calls.compressed(b"\0" * (1_000 if cut else 1_002))
    with pytest.raises(zstandard.ZstdError):
        calls.decompressed(body[: len(body) - cut])
    assert len(calls.decompressed(calls.compressed(b"\0" * 1_000))) == 1_000


def test_evidence_longer_than_a_record_is_none() -> None:
    value = of_role(history(), Role.EVIDENCE)[0].value
    assert value is not None
    assert calls.read_line(value) is not None
    assert calls.read_line(value + b" " * DEFAULT_LIMITS.record_bytes_max) is None
