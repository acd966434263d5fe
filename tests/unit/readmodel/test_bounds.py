"""What the store keeps, and what it says of what it dropped."""

from __future__ import annotations

import sqlite3

import orjson
import pytest

from assay_stream.limits import store as limits
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


def test_where_there_is_no_room_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the rest fits."""
    monkeypatch.setattr(bounds, "STORE_DROP_ROWS", 5)
    connection = _of(EVIDENCE)
    filler = Filler(connection)
    size = used_bytes(connection) - 4_096
    while filler.keep_within(Bounds(age_us=_EVER, size_bytes=size), now_us=NOW_US):
        pass
    left = sorted(row.time_us for row in Store(connection).evidence(EvidenceFilter(), Paging(limit=1_000)).rows)
    assert left == sorted(map(_time_us, EVIDENCE))[-len(left) :]
    assert 0 < len(left) < len(EVIDENCE)
    assert used_bytes(connection) <= size
    assert Store(connection).status().complete_since_us is not None


def test_what_is_dated_ahead_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A false date keeps nothing in the store that its own date would have driven out."""
    monkeypatch.setattr(bounds, "STORE_DROP_ROWS", 10)
    ahead = [
        record._replace(value=orjson.dumps(orjson.loads(record.value or b"") | {"time": "9999-01-01T00:00:00Z"}))
        for record in EVIDENCE[:10]
    ]
    connection = _of([*ahead, *EVIDENCE[10:]])
    filler = Filler(connection)
    assert filler.keep_within(Bounds(age_us=_EVER, size_bytes=used_bytes(connection) - 1), now_us=NOW_US).rows == 10
    status = Store(connection).status()
    assert (status.complete_since_us, status.dropped) == (None, 10)
    assert _texts(connection) == _texts(_of([*EVIDENCE[10:]]))
    assert (status.newest_us or 0) < NOW_US + limits.STORE_AHEAD_US


def test_nothing_is_dropped_that_fits() -> None:
    """A look at the bounds changes nothing then."""
    connection = _of(EVIDENCE)
    before = tables(connection)
    assert not Filler(connection).keep_within(Bounds(age_us=_EVER, size_bytes=_EVER), now_us=NOW_US)
    assert tables(connection) == before
