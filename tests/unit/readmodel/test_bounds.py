"""What the store keeps, and what it says of what it dropped."""

from __future__ import annotations

import random
import re
import sqlite3
import struct
from datetime import datetime, timedelta

import orjson
import pytest

from assay_stream.errors import InputError
from assay_stream.limits import STORE_ALERT_DIGESTS_MAX
from assay_stream.model.finding import Finding, Suppression, SuppressionRule
from assay_stream.model.record import Origin, Record, Role
from assay_stream.readmodel import calls, filling, inventory_queries, schema
from assay_stream.readmodel.calls import decompressed
from assay_stream.readmodel.filling import Bounds, Filler, LogState, fill
from assay_stream.readmodel.queries import Store
from assay_stream.readmodel.rows import AlertFilter, EvidenceFilter, Paging
from assay_stream.readmodel.schema import used_bytes
from tests.support.controls import a_control
from tests.support.readmodel import NOW_US, history, of_role, tables, written

EVIDENCE = of_role(history(), Role.EVIDENCE)
_EVER = 2**62


def _time_us(record: Record) -> int:
    return Store(_of([record])).evidence(EvidenceFilter()).rows[0].time_us


def _of(records: list[Record]) -> sqlite3.Connection:
    connection = schema.temporary()
    fill(connection, records)
    return connection


def _texts(connection: sqlite3.Connection) -> dict[str, object]:
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
    for what in (
        *("count(*) FROM subject", "count(*) FROM called", "count(*) FROM digest", "count(*) FROM era"),
        *("count(*), sum(length(entries)) FROM mark", "count(*), sum(calls) FROM subject_calls"),
        "count(*) FROM era_column",
    ):
        one, two = (each.execute(f"SELECT {what}").fetchone() for each in (connection, other))
        assert one == two, what


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


def test_evidence_that_went_for_room_says_nothing_about_age() -> None:
    connection = _of(EVIDENCE)
    Filler(connection).keep_within(Bounds(age_us=_EVER, size_bytes=1), now_us=NOW_US)
    status = Store(connection).status()
    assert status.dropped > 0
    assert status.complete_since_us is None


def test_under_a_legal_hold_late_evidence_is_kept() -> None:
    """Also where the bound had moved on before, with what was dropped until then."""
    held = a_control("hold.set", server_id="*", id="case", scope={"server_id": "server-0"})
    released = a_control("hold.remove", server_id="*", id="case", number=1)
    inputs = [
        Record(Role.CONTROL, Origin("control", 0, number), b"*", value, (), 0)
        for number, value in enumerate((held, released))
    ]
    hold, release = of_role(written(inputs), Role.CHANGES)
    connection = _of(EVIDENCE[:5])
    _keep_within(connection, age_us=0, now_us=NOW_US)
    filler = Filler(connection)
    filler.take([hold])
    filler.take(EVIDENCE[5:30])
    assert Store(connection).status().counts["evidence"] == 25
    filler.take([release])
    filler.take(EVIDENCE[30:])
    assert Store(connection).status().counts["evidence"] == 25
    _keep_within(connection, age_us=0, now_us=NOW_US)
    assert Store(connection).status().counts["evidence"] == 0


def _of_servers(connection: sqlite3.Connection) -> dict[str, list[int]]:
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
    monkeypatch.setattr(filling, "STORE_DROP_ROWS", 5)
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


def test_names_that_share_a_number_are_not_dropped_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which calls of an era a server has is known by a short hash, and so checked."""
    for module in (calls, filling):
        monkeypatch.setattr(module, "name_code", lambda _: 1)
    connection = _of([*EVIDENCE, *_flood(2_000)])
    before = _of_servers(_of(EVIDENCE))
    _keep(connection, size_bytes=used_bytes(_of(EVIDENCE)) * 3 // 2)
    after = _of_servers(connection)
    assert 0 < len(after.pop("flooded")) < 2_000
    assert after == before


def test_nothing_of_a_dropped_call_is_left_in_its_era() -> None:
    """Neither the numbers of its names nor its time: others of the era keep theirs, each in its place."""
    connection = _of(EVIDENCE)
    rows = connection.execute("SELECT id, time_us, subject FROM evidence ORDER BY time_us, id").fetchall()
    cut = rows[len(rows) // 2][1]
    Filler(connection).keep_within(Bounds(age_us=NOW_US - cut, size_bytes=_EVER), now_us=NOW_US)
    for column, (kind, place) in enumerate([("q", 1), ("I", 2)]):
        (entries,) = connection.execute("SELECT entries FROM era_column WHERE id = ?", (column << 40,)).fetchone()
        kept = {row[0]: row[place] for row in rows if row[1] >= cut}
        expected = [kept.get(number, 0) for number in range(len(EVIDENCE) + 1)]
        assert list(struct.unpack(f"<{len(expected)}{kind}", entries)) == expected


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
    (last_us,) = connection.execute("SELECT max(last_us) FROM called WHERE server = 'flooded'").fetchone()
    assert last_us < NOW_US


def test_what_a_drop_costs_does_not_grow_with_tools_times_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools whose last call goes and whose other one is old: the later calls of the server are not read for each."""
    tools = 200
    ahead, behind, busy = (
        _flood(tools),
        _flood(tools, ahead=timedelta(days=-2)),
        _flood(4_000, ahead=timedelta(days=-1)),
    )
    for number, record in enumerate((*ahead, *behind)):
        named = b'"tool":"rare-%d"' % (number % tools)
        value = re.sub(rb'"tool":"[^"]*"', named, record.value or b"")
        (ahead if number < tools else behind)[number % tools] = record._replace(value=value)
    calls_made = [*ahead, *behind, *busy]
    connection = _of([each._replace(origin=each.origin._replace(offset=at)) for at, each in enumerate(calls_made)])
    steps: list[int] = []
    connection.set_progress_handler(lambda: steps.append(1), 1_000)
    monkeypatch.setattr(filling, "STORE_DROP_ROWS", tools)
    assert Filler(connection).keep_within(Bounds(age_us=_EVER, size_bytes=1), now_us=NOW_US).rows == tools
    connection.set_progress_handler(None, 0)
    assert len(steps) < len(calls_made) // 4
    wrong = """SELECT count(*) FROM called c WHERE last_us != (SELECT max(time_us) FROM evidence e
      WHERE e.server = c.server AND e.tool = c.tool AND e.observer = c.observer)"""
    assert connection.execute(wrong).fetchone() == (0,)


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
        monkeypatch.setattr(filling, "STORE_DROP_ROWS", drop_rows)
        connection = schema.temporary()
        connection.executemany("INSERT INTO called VALUES (?, '', '', ?, 0)", list(enumerate(given)))
        surpluses = dict(filling._surpluses(connection))
        assert [calls - surpluses.get(str(server), 0) for server, calls in enumerate(given)] == left


def test_nothing_is_dropped_that_fits() -> None:
    """A look at the bounds changes nothing then."""
    connection = _of(EVIDENCE)
    before = tables(connection)
    assert not Filler(connection).keep_within(Bounds(age_us=_EVER, size_bytes=_EVER), now_us=NOW_US)
    assert tables(connection) == before


_ALL = Paging(limit=1_000)
_HISTORY = ("seen", "catalogue", "listed", "tool_fact", "definition", "alert", "alert_record", "evidence")


def _keep_within(
    connection: sqlite3.Connection, *, age_us: int = _EVER, size_bytes: int = _EVER, now_us: int = NOW_US
) -> None:
    filler = Filler(connection)
    while filler.keep_within(Bounds(age_us=age_us, size_bytes=size_bytes), now_us=now_us):
        pass


def _filled() -> sqlite3.Connection:
    connection = schema.temporary()
    fill(connection, history())
    return connection


def _count(connection: sqlite3.Connection, table: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608


def _dropped(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    return {(each.kind, each.bound) for each in Store(connection).status().drops}


def _relisted(times: int, tools: int = 3) -> list[Record]:
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
    _keep_within(connection, age_us=1, now_us=NOW_US + _EVER // 2)
    tools = Store(connection).tools(now_us=NOW_US, paging=_ALL).rows
    assert [(row.tool_name, row.full_digests) for row in tools] == [
        (row.tool_name, row.full_digests) for row in before if row.is_listed
    ]
    assert all(row.versions == len(row.full_digests) for row in tools)
    assert all(Store(connection).definition(full) is not None for row in tools for full in row.full_digests)
    assert _count(connection, "tool_fact") < _count(_filled(), "tool_fact")
    assert _dropped(connection) >= {("seen", "age")}


def test_a_list_that_returns_after_it_was_dropped_is_known_again() -> None:
    """The registry publishes a catalogue once, however often a server comes back to it: its facts are still here."""
    connection = _filled()
    lists = _relisted(2)
    fill(connection, lists)
    _keep_within(connection, age_us=1, now_us=NOW_US + _EVER // 2)
    store = Store(connection)
    names = {f"tool-0-{each}" for each in range(3)}
    assert names.isdisjoint(row.tool_name for row in store.tools(now_us=NOW_US, server_id="hostile", paging=_ALL).rows)
    first = next(each for each in lists if (each.key or b"").startswith(b'["seen"'))
    key = orjson.dumps([*orjson.loads(first.key or b"")[:-1], 10])
    value = orjson.dumps(orjson.loads(first.value or b"") | {"time_us": NOW_US + 10})
    again = first._replace(origin=Origin("assay.tool.binding", 7, len(lists)), key=key, value=value)
    fill(connection, [again])
    rows = store.tools(now_us=NOW_US, server_id="hostile", paging=_ALL).rows
    assert {row.tool_name for row in rows if row.is_listed} == names
    assert all({each.scheme for each in row.digests} >= {"full", "assay.v1"} for row in rows if row.is_listed)
    assert _of_server(connection, "hostile") == {"seen": 2, "tool_fact": 6, "listed": 6}


def test_closed_alerts_go_with_age_and_open_ones_stay() -> None:
    """Nobody has to look at a closed one again."""
    connection = _filled()
    alerts = Store(connection).alerts(AlertFilter(state=None), _ALL).rows
    connection.execute("UPDATE alert SET state = 'closed' WHERE uid = ?", (alerts[0].uid,))
    _keep_within(connection, age_us=1, now_us=NOW_US + _EVER // 2)
    left = [row.uid for row in Store(connection).alerts(AlertFilter(state=None), _ALL).rows]
    assert left == [row.uid for row in alerts[1:]]
    assert ("alert", "age") in _dropped(connection)
    orphans = "SELECT count(*) FROM alert_record WHERE alert NOT IN (SELECT id FROM alert)"
    assert connection.execute(orphans).fetchone() == (0,)


def test_a_server_that_changes_its_list_all_the_time_fills_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own oldest lists go, with tools, definitions and names; what others have stays."""
    monkeypatch.setattr(filling, "STORE_LISTS_PER_SERVER_MAX", 5)
    monkeypatch.setattr(filling, "STORE_DROP_ROWS", 7)
    connection = _filled()
    fill(connection, _relisted(40))
    _keep_within(connection)
    rows = "SELECT count(*) FROM {} WHERE server = 'hostile'"
    counts = {each: connection.execute(rows.format(each)).fetchone()[0] for each in ("seen", "catalogue", "tool_fact")}
    assert counts == {"seen": 5, "catalogue": 5, "tool_fact": 15}
    assert _count(connection, "definition") == _count(_filled(), "definition") + 15
    assert len(Store(connection).tools(now_us=NOW_US, server_id="hostile", paging=_ALL).rows) == 15
    assert Store(connection).status().counts["evidence"] == 60


def test_the_bound_of_size_holds_when_no_evidence_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists go, then alerts; what operators decided stays."""
    monkeypatch.setattr(filling, "STORE_DROP_ROWS", 5)
    connection = _filled()
    fill(connection, _relisted(200))
    decisions = _count(connection, "decision")
    assert decisions
    size = used_bytes(connection) // 2
    _keep_within(connection, size_bytes=size)
    assert used_bytes(connection) <= size
    assert _count(connection, "alert") > 0
    _keep_within(connection, size_bytes=1)
    assert {table: _count(connection, table) for table in _HISTORY if table != "definition"} == dict.fromkeys(
        (table for table in _HISTORY if table != "definition"), 0
    )
    assert _count(connection, "decision") == decisions


def _of_server(connection: sqlite3.Connection, server: str) -> dict[str, int]:
    named = "SELECT count(*) FROM {} WHERE server = ?"
    counts = {each: connection.execute(named.format(each), (server,)).fetchone()[0] for each in ("seen", "tool_fact")}
    listed = "SELECT count(*) FROM listed l JOIN catalogue c ON c.id = l.catalogue WHERE c.server = ?"
    return counts | {"listed": connection.execute(listed, (server,)).fetchone()[0]}


def _others(connection: sqlite3.Connection) -> list[dict[str, int]]:
    return [_of_server(connection, f"server-{number}") for number in range(3)]


def test_tools_of_one_server_are_bounded_even_those_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that shows every observer another long list; what is kept are its latest ones."""
    monkeypatch.setattr(filling, "STORE_LISTED_PER_SERVER_MAX", 100)
    connection = _filled()
    others = _others(connection)
    flood = _relisted(60, tools=20)
    for index, record in enumerate(flood):
        key = orjson.loads(record.key or b"") if record.role is Role.BINDINGS else [""]
        if key[0] == "seen":
            flood[index] = record._replace(key=orjson.dumps([*key[:2], f"observer-{key[-1]}", *key[3:]]))
    fill(connection, flood)
    _keep_within(connection)
    assert _of_server(connection, "hostile") == {"seen": 5, "tool_fact": 100, "listed": 100}
    assert _others(connection) == others
    assert _dropped(connection) == {("seen", "server")}
    assert Store(connection).status().counts["evidence"] == 60


def _with_texts(records: list[Record], size: int) -> list[Record]:
    """Put text that does not compress well into definitions."""
    noise = random.Random(1)
    for number, record in enumerate(records):
        if record.role is Role.DEFINITIONS:
            definition = {"name": "x", "description": noise.randbytes(size // 2).hex()}
            body = orjson.dumps({"definition": definition, "full_digest": (record.key or b"").decode()})
            records[number] = record._replace(value=body)
    return records


def _called(records: list[Record]) -> list[Record]:
    """Return a call of each tool that some records list."""
    listed = [record for record in records if (record.key or b"").startswith(b'["catalogue"')]
    tools = [tool for record in listed for tool in orjson.loads(record.value or b"")["tools"]]
    calls = []
    for number, (name, full) in enumerate(tools):
        content = orjson.loads(EVIDENCE[-1].value or b"") | {"id": f"call-{number}"}
        content["data"] |= {"server_id": "hostile", "tool": name}
        content["data"]["binding"]["full_digest"] = full
        place = Origin("assay.tool.decision", 7, number)
        calls.append(EVIDENCE[-1]._replace(origin=place, value=orjson.dumps(content)))
    return calls


def test_definitions_that_calls_used_drive_nothing_of_others_out() -> None:
    """A server that lists a long definition, has it called once, and goes on to the next: its calls go with them."""
    connection = _filled()
    others, before = {table: _count(connection, table) for table in ("alert", "finding")}, used_bytes(connection)
    flood = _with_texts(_relisted(60, tools=1), 40_000)
    fill(connection, flood)
    fill(connection, _called(flood[: len(flood) // 3]))
    _keep_within(connection, size_bytes=before + 200_000)
    assert used_bytes(connection) <= before + 200_000
    assert {table: _count(connection, table) for table in others} == others
    calls = dict(connection.execute("SELECT server, sum(calls) FROM called GROUP BY server").fetchall())
    assert sum(calls.get(f"server-{number}", 0) for number in range(3)) == 60
    assert _dropped(connection) == {("seen", "server"), ("evidence", "server")}


def test_a_definition_goes_with_the_last_call_that_used_it() -> None:
    """Where the lists with it went before."""
    connection = _filled()
    flood = _relisted(5)
    fill(connection, flood)
    fill(connection, _called(flood))
    before = {table: _count(connection, table) for table in ("definition", "tool_fact")}
    connection.execute("DELETE FROM fact")
    filling._Drops(connection).lists("SELECT id FROM seen WHERE server = ?", "hostile")
    assert {table: _count(connection, table) for table in before} == before
    filling._Drops(connection).evidence("SELECT id FROM evidence WHERE server = ?", [("hostile",)])
    assert {table: before[table] - _count(connection, table) for table in before} == dict.fromkeys(before, 15)


def test_definitions_that_the_registry_forgot_drive_nothing_out() -> None:
    """It keeps some of a server's history; their topic keeps them all. One whose facts may still come stays."""
    connection = _filled()
    others, before = {table: _count(connection, table) for table in _HISTORY}, used_bytes(connection)
    forgotten = [each for each in _with_texts(_relisted(60, tools=1), 40_000) if each.role is Role.DEFINITIONS]
    filler = fill(connection, forgotten)
    for behind in (1, 0, 0):
        end = forgotten[-1].origin.offset + 1 + behind
        filler.note({(Role.DEFINITIONS, *forgotten[0].origin[:2]): LogState(end=end)}, looked_us=NOW_US)
        assert filling._Drops(connection).unused_definitions() == 0
        assert not filler.keep_within(Bounds(age_us=_EVER, size_bytes=_EVER), now_us=NOW_US)
    _keep_within(connection, size_bytes=before + 200_000)
    assert {table: _count(connection, table) for table in _HISTORY} == others
    assert _dropped(connection) == {("definition", "size")}


def test_definitions_of_one_server_drive_no_evidence_out() -> None:
    """Where there is no room, who takes more than an eighth of it with definitions gives up lists first."""
    connection = _filled()
    others, before = _others(connection), used_bytes(connection)
    flood = _with_texts(_relisted(300), 2_000)
    fill(connection, flood)
    assert used_bytes(connection) > 2 * before
    _keep_within(connection, size_bytes=2 * before)
    assert used_bytes(connection) <= 2 * before
    assert _others(connection) == others
    assert Store(connection).status().counts["evidence"] == 60
    assert _dropped(connection) == {("seen", "server"), ("fact", "server")}
    with pytest.raises(InputError, match="facts_dropped"):
        Store(connection).bindings("hostile")
    assert Store(connection).bindings("server-0").find("server-0") is not None
    fill(connection, [_relisted(1)[3]._replace(origin=Origin("assay.tool.binding", 7, 10_000))])
    assert Store(connection).bindings().find("hostile") is None


def test_alerts_of_one_server_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closed ones go first; those of other servers stay, whatever their age."""
    monkeypatch.setattr(filling, "STORE_ALERTS_PER_SERVER_MAX", 10)
    connection = _filled()
    alerts = Store(connection).alerts(AlertFilter(state=None), _ALL).rows
    columns = "last_ms, severity, kind, 'hostile', tool, ?, assigned, definition, records, row"
    for number in range(18):
        connection.execute(
            f"INSERT INTO alert SELECT ?, ?, {columns} FROM alert WHERE uid = ?",  # noqa: S608
            (f"{number:064x}", 1_000 + number, "open" if number < 5 else "closed", alerts[0].uid),
        )
    _keep_within(connection)
    left = {row[0] for row in connection.execute("SELECT state FROM alert WHERE server = 'hostile' AND id < 1005")}
    assert left == {"open"}
    assert connection.execute("SELECT count(*) FROM alert WHERE server = 'hostile'").fetchone() == (10,)
    assert _count(connection, "alert") == len(alerts) + 10
    assert _dropped(connection) == {("alert", "server")}


def test_an_alert_that_goes_on_keeps_its_first_and_latest_records() -> None:
    """And no more digests than are looked for: one server can repeat itself for ever."""
    record = next(r for r in history() if r.role is Role.ALERTS and b"mcp_digest_after" in (r.value or b""))
    alert = orjson.loads(record.value or b"")
    bodies = []
    for number in range(300):
        alert["time"] += 1
        alert["unmapped"]["mcp_digest_after"] = f"sha256:{number:064x}"
        bodies.append(orjson.dumps(alert))
    connection = schema.temporary()
    place = record.origin
    fill(
        connection,
        [record._replace(origin=place._replace(offset=number), value=body) for number, body in enumerate(bodies)],
    )
    kept = connection.execute("SELECT body FROM alert_record ORDER BY id").fetchall()
    assert [decompressed(body) for (body,) in kept] == [*bodies[:5], *bodies[-15:]]
    assert STORE_ALERT_DIGESTS_MAX <= _count(connection, "digest") <= STORE_ALERT_DIGESTS_MAX + 5
    assert connection.execute("SELECT records FROM alert").fetchall() == [(300,)]


def test_repetitions_of_an_alert_do_not_push_out_what_was_done_about_it() -> None:
    """Of those in a row the latest is kept, which says how many there were."""
    record = next(r for r in history() if r.role is Role.ALERTS)
    alert = orjson.loads(record.value or b"")

    def written(number: int) -> Record:
        unmapped = {name: value for name, value in alert["unmapped"].items() if name not in ("mcp_repeats", "mcp_act")}
        if number == 50:
            unmapped |= {"mcp_act": "assign", "mcp_act_by": "ann", "mcp_assigned_to": "bob"}
        elif number:
            unmapped |= {"mcp_repeats": number}
        activity_id = 2 if number else 1
        body = orjson.dumps(alert | {"activity_id": activity_id, "time": alert["time"] + number, "unmapped": unmapped})
        return record._replace(origin=record.origin._replace(offset=number), value=body)

    connection = schema.temporary()
    fill(connection, [written(number) for number in range(100)])
    kept = connection.execute("SELECT body FROM alert_record ORDER BY id").fetchall()
    times = [orjson.loads(decompressed(body))["time"] - alert["time"] for (body,) in kept]
    assert times == [0, 49, 50, 99]
    assert connection.execute("SELECT records FROM alert").fetchall() == [(100,)]


def test_what_joins_or_ends_an_alert_is_no_repetition_of_it() -> None:
    """It is shown with its time, and so is the last repetition before it."""
    record = next(r for r in history() if r.role is Role.ALERTS)
    alert = orjson.loads(record.value or b"")
    update: dict[str, object] = {"activity_id": 2}
    joined = {"mcp_reasons": "pin_mismatch"}
    with_reason = {"message": f"{alert['message']}; pin_mismatch"}
    written: list[tuple[dict[str, object], dict[str, object]]] = [
        (update, {"mcp_repeats": 1}),
        (update, {"mcp_repeats": 2}),
        (update | with_reason, {"mcp_repeats": 3, **joined}),
        (update | with_reason, {"mcp_repeats": 4, **joined}),
        (update | with_reason, {"mcp_repeats": 5, **joined}),
        (
            {"activity_id": 3, "activity_name": "Close"} | with_reason,
            {"mcp_repeats": 5, "mcp_resolved_by": "decided", **joined},
        ),
    ]
    bodies = [record.value or b""]
    bodies += [orjson.dumps(alert | top | {"unmapped": alert["unmapped"] | more}) for top, more in written]
    places = [record.origin._replace(offset=number) for number in range(len(bodies))]
    connection = schema.temporary()
    fill(connection, [record._replace(origin=place, value=body) for place, body in zip(places, bodies, strict=True)])
    kept = connection.execute("SELECT body FROM alert_record ORDER BY id").fetchall()
    repeats = [orjson.loads(decompressed(body))["unmapped"].get("mcp_repeats") for (body,) in kept]
    assert repeats == [None, 2, 3, 5, 5]


def _rule(key: str, name: str, offset: int, *, is_set: bool = True) -> Record:
    rule = SuppressionRule(id=name, server_id=key, author="ann", reason="known")
    value = Suppression(rule=rule, is_set=is_set, time_us=1_000_000).encode()
    return Record(Role.FINDINGS, Origin("rules", 0, offset), key.encode(), value)


def test_suppression_rules_outlive_findings() -> None:
    """However old they are, and however little room there is; a rule that is taken back is gone."""
    connection = _filled()
    fill(connection, [_rule("server-0", "mine", 0), _rule("*", "all", 1), _rule("*", "gone", 2)])
    fill(connection, [_rule("*", "gone", 3, is_set=False)])
    _keep_within(connection, age_us=1, size_bytes=1, now_us=NOW_US + _EVER // 2)
    left = [entry for entry in Store(connection).findings("server-0", "*") if isinstance(entry, Suppression)]
    assert [entry.rule.id for entry in left] == ["all", "mine"]
    assert _count(connection, "finding") == 0


def test_findings_of_one_key_hide_no_rule_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory_queries, "STORE_FINDINGS_PER_SERVER_MAX", 2)
    connection = schema.temporary()
    findings = of_role(history(), Role.FINDINGS)
    keys = sorted({(record.key or b"").decode() for record in findings})
    fill(connection, [_rule("*", "all", 0), *findings])
    found = Store(connection).findings("*", *keys)
    assert len(keys) > 1
    assert [entry.rule.id for entry in found if isinstance(entry, Suppression)] == ["all"]
    assert len({each.server_id for each in found if isinstance(each, Finding)}) > 1


def test_changes_that_nobody_decided_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A domain that changes its keys at will; what operators decided stays."""
    monkeypatch.setattr(filling, "STORE_CHANGES_PER_SERVER_MAX", 4)
    connection = _filled()
    decided = _count(connection, "decision")
    for number in range(10):
        connection.execute(
            "INSERT INTO decision (time_us, change, server, body) VALUES (?, 'key', 'hostile', x'')", (number,)
        )
    _keep_within(connection)
    assert connection.execute("SELECT min(time_us) FROM decision WHERE server = 'hostile'").fetchone() == (6,)
    assert _count(connection, "decision") == decided + 4
