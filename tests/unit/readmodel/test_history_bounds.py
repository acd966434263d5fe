"""What goes from the store beside evidence, and what stays."""

from __future__ import annotations

import sqlite3

import orjson
import pytest

from assay_stream.model.record import Origin, Record, Role
from assay_stream.readmodel import bounds, history_bounds, schema
from assay_stream.readmodel.bounds import Bounds, used_bytes
from assay_stream.readmodel.filling import Filler, fill
from assay_stream.readmodel.queries import Store
from assay_stream.readmodel.rows import AlertFilter, Paging
from tests.support.readmodel import NOW_US, history

_EVER = 2**62
_ALL = Paging(limit=1_000)
_HISTORY = ("seen", "catalogue", "listed", "tool_fact", "definition", "alert", "alert_record", "evidence")


def _keep(
    connection: sqlite3.Connection, *, age_us: int = _EVER, size_bytes: int = _EVER, now_us: int = NOW_US
) -> None:
    filler = Filler(connection)
    while filler.keep_within(Bounds(age_us=age_us, size_bytes=size_bytes), now_us=now_us):
        pass


def _filled() -> sqlite3.Connection:
    connection = schema.in_memory()
    fill(connection, history())
    return connection


def _count(connection: sqlite3.Connection, table: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608


def _relisted(times: int, tools: int = 3) -> list[Record]:
    """A server that answers every question with other tools."""
    records: list[Record] = []
    real = next(r for r in history() if r.role is Role.BINDINGS and (r.key or b"").startswith(b'["tool"'))
    fact = orjson.loads(real.value or b"")
    for number in range(times):
        named = [[f"tool-{number}-{each}", f"sha256:{2**100 + number * tools + each:064x}"] for each in range(tools)]
        digest, seen = f"sha256:{2**200 + number:064x}", {"completeness": "complete", "signatures": None}
        facts = [
            *((["tool", "hostile", True, full], {**fact, "schemes": {"assay.v1": full}}) for _, full in named),
            (["catalogue", "hostile", digest], {"server_scoped": True, "tools": named}),
            (
                ["seen", "hostile", "observer", "snapshots", 0, number],
                {**seen, "catalogue": digest, "snapshot_id": f"s{number}", "time_us": NOW_US + number},
            ),
        ]
        for key, value in facts:
            origin = Origin("assay.tool.binding", 7, len(records))
            records.append(Record(Role.BINDINGS, origin, orjson.dumps(key), orjson.dumps(value), (), 0))
        for _, full in named:
            body = orjson.dumps({"definition": {"name": "x"}, "full_digest": full})
            origin = Origin("assay.tool.definition", 7, len(records))
            records.append(Record(Role.DEFINITIONS, origin, full.encode(), body, (), 0))
    return records


def test_replaced_lists_go_with_age_and_those_in_force_stay() -> None:
    """However long nothing changed: what each observer was shown last is what the server is."""
    connection = _filled()
    before = Store(connection).tools(now_us=NOW_US, paging=_ALL).rows
    _keep(connection, age_us=1, now_us=NOW_US + _EVER // 2)
    tools = Store(connection).tools(now_us=NOW_US, paging=_ALL).rows
    assert [(row.tool_name, row.full_digests) for row in tools] == [
        (row.tool_name, row.full_digests) for row in before if row.is_listed
    ]
    assert all(row.versions == len(row.full_digests) for row in tools)
    assert all(Store(connection).definition(full) is not None for row in tools for full in row.full_digests)
    assert _count(connection, "tool_fact") < _count(_filled(), "tool_fact")
    assert Store(connection).status().dropped_lists > 0


def test_closed_alerts_go_with_age_and_open_ones_stay() -> None:
    """Nobody has to look at a closed one again."""
    connection = _filled()
    alerts = Store(connection).alerts(AlertFilter(state=None), _ALL).rows
    connection.execute("UPDATE alert SET state = 'closed' WHERE uid = ?", (alerts[0].uid,))
    _keep(connection, age_us=1, now_us=NOW_US + _EVER // 2)
    left = [row.uid for row in Store(connection).alerts(AlertFilter(state=None), _ALL).rows]
    assert left == [row.uid for row in alerts[1:]]
    assert Store(connection).status().dropped_alerts == 1
    orphans = "SELECT count(*) FROM alert_record WHERE alert NOT IN (SELECT id FROM alert)"
    assert connection.execute(orphans).fetchone() == (0,)


def test_a_server_that_changes_its_list_all_the_time_fills_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own oldest lists go, with tools, definitions and names; what others have stays."""
    monkeypatch.setattr(history_bounds, "STORE_LISTS_PER_SERVER_MAX", 5)
    monkeypatch.setattr(history_bounds, "STORE_DROP_ROWS", 7)
    connection = _filled()
    fill(connection, _relisted(40))
    _keep(connection)
    rows = "SELECT count(*) FROM {} WHERE server = (SELECT id FROM name WHERE text = 'hostile')"
    counts = {each: connection.execute(rows.format(each)).fetchone()[0] for each in ("seen", "catalogue", "tool_fact")}
    assert counts == {"seen": 5, "catalogue": 5, "tool_fact": 15}
    assert _count(connection, "definition") == _count(_filled(), "definition") + 15
    assert connection.execute("SELECT count(*) FROM name WHERE text GLOB 'tool-*'").fetchone() == (15,)
    assert len(Store(connection).tools(now_us=NOW_US, server_id="hostile", paging=_ALL).rows) == 15
    assert Store(connection).status().counts["evidence"] == 60


def test_the_bound_of_size_holds_when_no_evidence_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists go, then alerts; what operators decided stays."""
    for module in (bounds, history_bounds):
        monkeypatch.setattr(module, "STORE_DROP_ROWS", 5)
    connection = _filled()
    fill(connection, _relisted(200))
    decisions = _count(connection, "decision")
    assert decisions
    size = used_bytes(connection) // 2
    _keep(connection, size_bytes=size)
    assert used_bytes(connection) <= size
    assert _count(connection, "alert") > 0
    _keep(connection, size_bytes=1)
    assert {table: _count(connection, table) for table in _HISTORY if table != "definition"} == dict.fromkeys(
        (table for table in _HISTORY if table != "definition"), 0
    )
    assert _count(connection, "decision") == decisions
