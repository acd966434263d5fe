"""What the store keeps, and what it says of what it dropped."""

from __future__ import annotations

import sqlite3
from datetime import datetime, timedelta

import orjson
import pytest

from assay_stream.model.record import Record, Role
from assay_stream.readmodel import bounds, schema
from assay_stream.readmodel.bounds import Bounds
from assay_stream.readmodel.filling import Filler, fill
from assay_stream.readmodel.queries import Store
from assay_stream.readmodel.rows import EvidenceFilter, Paging
from assay_stream.readmodel.status import used_bytes
from tests.support.readmodel import NOW_US, history, of_role, tables

EVIDENCE = of_role(history(), Role.EVIDENCE)
_EVER = 2**62


def _time_us(record: Record) -> int:
    return Store(_of([record])).evidence(EvidenceFilter()).rows[0].time_us


def _of(records: list[Record]) -> sqlite3.Connection:
    connection = schema.in_memory()
    fill(connection, records)
    return connection


def _texts(connection: sqlite3.Connection) -> dict[str, object]:
    """What a store answers, whatever the numbers in it."""
    store = Store(connection)
    everything = Paging(limit=1_000)
    return {
        "evidence": [row.origin for row in store.evidence(EvidenceFilter(), everything).rows],
        "servers": store.servers(now_us=NOW_US, paging=everything).rows,
        "tools": store.tools(now_us=NOW_US, paging=everything).rows,
        "observers": store.observers(now_us=NOW_US, paging=everything).rows,
    }


def test_old_evidence_goes_with_all_that_follows_from_it() -> None:
    """The store is what it would be, had it never had what it dropped."""
    times = sorted(map(_time_us, EVIDENCE))
    cut = times[len(times) // 2]
    connection = _of(EVIDENCE)
    filler = Filler(connection)
    dropped = filler.keep_within(Bounds(age_us=NOW_US - cut, size_bytes=_EVER), now_us=NOW_US).rows
    kept = [record for record in EVIDENCE if _time_us(record) >= cut]
    assert dropped == len(EVIDENCE) - len(kept) > 0
    assert not filler.keep_within(Bounds(age_us=NOW_US - cut, size_bytes=_EVER), now_us=NOW_US)
    other = _of(kept)
    assert _texts(connection) == _texts(other)
    for table in ("name", "subject", "tally", "called", "digest", "mark", "word"):
        one, two = (each.execute(f"SELECT count(*) FROM {table}").fetchone() for each in (connection, other))  # noqa: S608
        assert one == two, table


def test_the_store_says_from_when_on_it_is_complete() -> None:
    """What was dropped is counted; late evidence from before is counted, too, and not kept."""
    times = sorted(map(_time_us, EVIDENCE))
    connection = _of(EVIDENCE[:30])
    filler = Filler(connection)
    assert Store(connection).status().complete_since_us is None
    cut = times[-1] + 1
    filler.keep_within(Bounds(age_us=NOW_US - cut, size_bytes=_EVER), now_us=NOW_US)
    filler.take(EVIDENCE)
    status = Store(connection).status()
    assert (status.complete_since_us, status.dropped) == (cut, len(EVIDENCE))
    assert status.counts["evidence"] == 0
    assert {row.following for row in status.positions} == {EVIDENCE[-1].origin.offset + 1}


def _of_servers(connection: sqlite3.Connection) -> dict[str, list[int]]:
    """Where the evidence of each server stands in its log, in order."""
    found: dict[str, list[int]] = {}
    for row in Store(connection).evidence(EvidenceFilter(), Paging(limit=1_000)).rows:
        found.setdefault(row.server_id, []).append(row.origin.offset)
    return {server: sorted(offsets) for server, offsets in found.items()}


def _keep(connection: sqlite3.Connection, *, size_bytes: int) -> None:
    filler = Filler(connection)
    while filler.keep_within(Bounds(age_us=_EVER, size_bytes=size_bytes), now_us=NOW_US):
        pass
    assert used_bytes(connection) <= size_bytes


def test_where_there_is_no_room_the_first_of_the_largest_servers_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the rest fits: as many are left of each of these servers, and those that came last."""
    monkeypatch.setattr(bounds, "STORE_DROP_ROWS", 5)
    connection = _of(EVIDENCE)
    before = _of_servers(connection)
    _keep(connection, size_bytes=used_bytes(connection) - 4_096)
    after = _of_servers(connection)
    assert {server: offsets[-len(after[server]) :] for server, offsets in before.items()} == after
    dropped = {server for server in before if len(after[server]) < len(before[server])}
    assert dropped
    largest = max(map(len, after.values()))
    assert all(largest - 1 <= len(after[server]) <= largest for server in dropped)
    status = Store(connection).status()
    assert (status.complete_since_us, status.dropped) == (None, len(EVIDENCE) - sum(map(len, after.values())))


def _flood(count: int, *, ahead: timedelta = timedelta()) -> list[Record]:
    """Calls on a server that nobody else uses, behind all others in the log."""
    offset = EVIDENCE[-1].origin.offset + 1
    records = []
    for number in range(count):
        record = EVIDENCE[number % len(EVIDENCE)]
        content = orjson.loads(record.value or b"")
        content["data"]["server_id"] = "flooded"
        content["id"] = f"flood-{number}"
        content["time"] = (datetime.fromisoformat(content["time"]) + ahead).isoformat()
        origin = record.origin._replace(offset=offset + number)
        records.append(record._replace(value=orjson.dumps(content), origin=origin))
    return records


@pytest.mark.parametrize("ahead", [timedelta(), timedelta(hours=23), timedelta(days=3_000), timedelta(days=-1)])
@pytest.mark.parametrize("is_first", [False, True])
def test_a_flood_on_one_server_leaves_others_their_history(ahead: timedelta, is_first: bool) -> None:
    """However its calls are dated, and whether they came before all others or behind them."""
    flood = _flood(2_000, ahead=ahead)
    connection = _of([*flood, *EVIDENCE] if is_first else [*EVIDENCE, *flood])
    before = _of_servers(_of(EVIDENCE))
    if is_first:
        # A log is read in order: what has a lower offset than what was read is not taken in.
        connection = _of(flood)
        fill(connection, [record._replace(origin=record.origin._replace(topic="other")) for record in EVIDENCE])
    _keep(connection, size_bytes=used_bytes(_of(EVIDENCE)) * 3 // 2)
    after = _of_servers(connection)
    flooded = after.pop("flooded")
    assert after == before
    assert 0 < len(flooded) < 2_000
    assert flooded == sorted(record.origin.offset for record in flood)[-len(flooded) :]


def test_calls_dated_ahead_do_not_outlive_those_behind_them_on_their_server() -> None:
    """The same server: what came first goes first, though its date makes it the newest."""
    ahead, following = _flood(1_000, ahead=timedelta(hours=23)), _flood(2_000)[1_000:]
    connection = _of([*EVIDENCE, *ahead, *following])
    _keep(connection, size_bytes=used_bytes(_of(EVIDENCE)) * 3 // 2)
    kept = _of_servers(connection)["flooded"]
    assert kept == [record.origin.offset for record in following][-len(kept) :]
    (last_us,) = connection.execute(
        "SELECT max(last_us) FROM called WHERE server = (SELECT id FROM name WHERE text = 'flooded')"
    ).fetchone()
    assert last_us < NOW_US


def test_what_is_dropped_of_each_server_is_worked_out_from_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers with the most lose most, to the same number; never more than a tenth of everything at once."""
    for given, drop_rows, left in (
        ([100, 10, 1], 50, [88, 10, 1]),
        ([1_000, 1_000, 10], 500, [899, 899, 10]),
        ([5, 5, 5], 100, [4, 4, 4]),
        ([1_000, 30], 7, [993, 30]),
        ([1], 100, [0]),
        ([], 100, []),
    ):
        monkeypatch.setattr(bounds, "STORE_DROP_ROWS", drop_rows)
        connection = schema.in_memory()
        connection.executemany("INSERT INTO called VALUES (?, 0, ?, 0)", list(enumerate(given)))
        surpluses = dict(bounds._surpluses(connection))
        assert [calls - surpluses.get(server, 0) for server, calls in enumerate(given)] == left


def test_nothing_is_dropped_that_fits() -> None:
    """A look at the bounds changes nothing then."""
    connection = _of(EVIDENCE)
    before = tables(connection)
    assert not Filler(connection).keep_within(Bounds(age_us=_EVER, size_bytes=_EVER), now_us=NOW_US)
    assert tables(connection) == before
