"""Records into the store, and what it keeps of them within an age and a size. Each batch is one transaction, with the
positions up to which its logs were read.

1. A record before the position of its log is a duplicate and skipped, however it is redelivered.
2. Invalid records are counted as refused, never fatal: the store must not stop where the stages go on.
3. Evidence that was erased on record is dropped, and not added again. Under a legal hold nothing else is dropped.
4. The tables depend only on the records and their order, not on how they are batched.
5. Beyond the bounds, rows are dropped and counted, and the store records from when on its evidence is complete. What
   derives from dropped evidence and lists goes with them, as if the store had never held them.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby, islice
from operator import itemgetter
from typing import NamedTuple

import orjson

from assay_stream.bindings.erasures import RELEASE, Erasures, ScopeAct, act_in, acts_in, span_us
from assay_stream.errors import ConfigurationError
from assay_stream.limits import (
    STORE_ALERTS_PER_SERVER_MAX,
    STORE_BATCH_RECORDS,
    STORE_CHANGES_PER_SERVER_MAX,
    STORE_DROP_ROWS,
    STORE_FINDINGS_PER_SERVER_MAX,
    STORE_LISTED_PER_SERVER_MAX,
    STORE_LISTS_PER_SERVER_MAX,
)
from assay_stream.model.fields import ScopeField
from assay_stream.model.finding import ANY_SERVER
from assay_stream.model.record import Record, Role
from assay_stream.readmodel.calls import Calls, calls_in, decompressed, drop_calls, drop_marks, mark_hasher, name_code
from assay_stream.readmodel.inventory import Inventory
from assay_stream.readmodel.rows import INT64_MAX
from assay_stream.readmodel.schema import REBUILD, failures, meta, put_meta, used_bytes

ROLES = (*(Role.BINDINGS, Role.DEFINITIONS, Role.VERDICTS, Role.CHANGES, Role.FINDINGS, Role.ALERTS), Role.EVIDENCE)
"""What the store is filled from."""

LogPlace = tuple[Role, str, int]
"""Role, topic and partition."""
_TIMESTAMP_MS_MAX = 2**63 // 1_000 - 1
_WITNESS_BYTES = 16


class LogState(NamedTuple):
    """How far a log goes.

    Args:
        following: continue here at the earliest: what precedes it is not a record, or is gone.
        lost: number of offsets that are gone.
        end: its current end, ``None`` if unknown.
    """

    following: int = 0
    lost: int = 0
    end: int | None = None


class Filler:
    """Fills a store; its only writer.

    Args:
        connection: from ``schema.writing`` or ``schema.temporary``.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._path = connection.execute("PRAGMA database_list").fetchone()[2] or "a temporary store"
        self._inode = _inode_of(self._path)
        self._calls = Calls(connection, meta(connection, "secret", b""))
        self._inventory = Inventory(connection)
        self.refresh()

    @property
    def read(self) -> int:
        """Number of records read from all logs, including refused ones."""
        return int(self.connection.execute("SELECT coalesce(sum(read), 0) FROM source").fetchone()[0])

    @property
    def latest_us(self) -> int:
        """Log time of the latest record that follows from an input, microseconds since the epoch; 0 without one.

        Findings and alerts do not count: ticks among them carry the clock of a worker.
        """
        clocked = (Role.FINDINGS.value, Role.ALERTS.value)
        latest = "SELECT coalesce(max(time_us), 0) FROM source WHERE role NOT IN (?, ?)"
        return int(self.connection.execute(latest, clocked).fetchone()[0])

    def refresh(self) -> None:
        """Reload cached state from the store."""
        self._calls.forget()
        self._erasures = erasures_in(self.connection)

    def position(self, topic: str, partition: int) -> int | None:
        """Return the next offset to read in a log, ``None`` if nothing was read."""
        found = self._known_source(topic, partition)
        return None if found is None else found[1]

    def take(self, records: Sequence[Record]) -> int:
        """Add records, all or none; return how many were new.

        Args:
            records: records of one log in offset order.
        """
        new = 0
        with self._transaction():
            for (role, topic, part), group in groupby(records, lambda record: (record.role, *record.origin[:2])):
                new += self._take_log((role, topic, part), list(group))
        return new

    def note(self, logs: Mapping[LogPlace, LogState], *, looked_us: int | None = None) -> None:
        """Update the state of logs without a record.

        Args:
            looked_us: when the brokers last reported the ends, microseconds since the epoch; ``None`` leaves it
                unchanged.

        Raises:
            ConfigurationError: ``store_missing`` if the file was removed: everything written would be lost.
        """
        if self._inode is not None and self._inode != _inode_of(self._path):
            raise ConfigurationError(
                "store_missing", f"{self._path} was deleted or replaced while it was filled: start store run again"
            )
        with self._transaction():
            for place, state in logs.items():
                number, _ = self._source(place)
                self.connection.execute(
                    "UPDATE source SET next = max(next, ?), lost = lost + ?, ends = coalesce(?, ends) WHERE id = ?",
                    (state.following, state.lost, state.end, number),
                )
            if looked_us is not None:
                put_meta(self.connection, "looked_us", looked_us)

    def keep_within(self, bounds: Bounds, *, now_us: int) -> Dropped:
        """Drop some rows that are too old, or too many; repeat until nothing is dropped. Under a hold: nothing."""
        if self._erasures.holds():
            return Dropped()
        with self._transaction():
            done = _drop(self.connection, bounds, now_us=now_us)
            self._count_dropped(done.kind, done.bound, done.rows)
            if not done:
                _settle_definitions(self.connection)
            if (done.kind, done.bound) == ("evidence", "age"):
                oldest_us = now_us - bounds.age_us
                put_meta(self.connection, "horizon_us", max(meta(self.connection, "horizon_us", oldest_us), oldest_us))
        if done.rows:
            self.refresh()
        return done

    def _count_dropped(self, kind: str, bound: str, rows: int) -> None:
        if rows:
            self.connection.execute(
                "INSERT INTO dropped VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET rows = rows + excluded.rows",
                (kind, bound, rows),
            )

    def begin(self, deployment: str) -> None:
        """Record what the store is filled from, before the first record.

        Args:
            deployment: identifies the cluster and the topics.

        Raises:
            ConfigurationError: ``store_of_another`` if it holds another deployment's records.
        """
        with self._transaction():
            before = meta(self.connection, "deployment", deployment)
            if before != deployment:
                raise ConfigurationError(
                    "store_of_another",
                    f"the store was filled from {before}, not from {deployment}: give each deployment a store of its "
                    f"own, or {REBUILD}",
                )
            put_meta(self.connection, "deployment", deployment)

    def witness(self, topic: str, partition: int) -> tuple[int, bytes] | None:
        """Return offset and hash of the last record read from a log, if any."""
        row = self.connection.execute(
            "SELECT last, witness FROM source WHERE topic = ? AND part = ? AND last IS NOT NULL", (topic, partition)
        ).fetchone()
        return None if row is None else (row[0], row[1])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with failures(self._path):
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.connection.execute("COMMIT")
            except BaseException:
                # SQLite itself ends some transactions, as where the disk is full.
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                self.refresh()
                raise

    def _source(self, place: LogPlace) -> tuple[int, int]:
        """Return the number of a log, and the next offset to read in it."""
        role, topic, part = place
        insert = "INSERT INTO source (role, topic, part, next) VALUES (?, ?, ?, 0) RETURNING id, next"
        known = self._known_source(topic, part)
        return known or self.connection.execute(insert, (role.value, topic, part)).fetchone()

    def _known_source(self, topic: str, part: int) -> tuple[int, int] | None:
        statement = "SELECT id, next FROM source WHERE topic = ? AND part = ?"
        found: tuple[int, int] | None = self.connection.execute(statement, (topic, part)).fetchone()
        return found

    def _take_log(self, place: LogPlace, records: list[Record]) -> int:
        number, following = self._source(place)
        new: list[Record] = []
        for record in records:
            if record.origin.offset >= following:
                new.append(record)
                following = min(record.origin.offset + 1, INT64_MAX)
        if not new:
            return 0
        dropped = erased = 0
        if place[0] is Role.EVIDENCE:
            refused, dropped, erased = self._calls.take(number, new, self._erasures)
        else:
            refused = sum(not self._inventory.take(record) for record in new)
        if place[0] is Role.CHANGES and (acts := list(acts_in(new))):
            erased = self._erase(acts)
        self._count_dropped("evidence", "age", dropped)
        self._count_dropped("evidence", "erased", erased)
        self.connection.execute(
            "UPDATE source SET next = ?, read = read + ?, refused = refused + ?, time_us = max(time_us, ?), last = ?, "
            "witness = ? WHERE id = ?",
            (
                following,
                len(new),
                refused,
                min(new[-1].timestamp_ms, _TIMESTAMP_MS_MAX) * 1_000,
                following - 1,
                witness_of(new[-1]),
                number,
            ),
        )
        return len(new)

    def _erase(self, acts: Sequence[ScopeAct]) -> int:
        """Drop what is erased as far as no hold stands: with an erasure, and when a hold is released."""
        for act in acts:
            self._erasures.take(act)
        # What was erased before stays so: only a release brings more of it.
        new = None if any(act.act == RELEASE for act in acts) else {act.origin for act in acts}
        standing = [act for act in self._erasures.standing() if new is None or act.origin in new]
        due = [act for act in standing if not self._erasures.holds(act.scope)]
        rows = 0
        if due:
            # The file does not keep their bytes either.
            self.connection.execute("PRAGMA secure_delete = ON")
            scopes: list[ScopeField] = [act.scope or {} for act in due]
            given = [(*span_us(scope), scope.get("server_id"), scope.get("agent_id")) for scope in scopes]
            rows = _Drops(self.connection).evidence(_ERASED, given, are_latest=True)
        # The cached rows of what calls share are looked up again.
        self._calls.forget()
        return rows


def erasures_in(connection: sqlite3.Connection) -> Erasures:
    """Return the erasures and holds that a store has read."""
    rows = connection.execute("SELECT body FROM decision WHERE server = ?", (ANY_SERVER,))
    return Erasures(act for (body,) in rows if (act := act_in(orjson.loads(decompressed(body)))) is not None)


def _inode_of(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return None


def witness_of(record: Record) -> bytes:
    """Return a hash that identifies a record."""
    found = blake2b(digest_size=_WITNESS_BYTES)
    for part in (record.key, record.value):
        found.update(b"-" if part is None else b"+%d:" % len(part) + part)
    return found.digest()


def fill(connection: sqlite3.Connection, records: Iterable[Record]) -> Filler:
    """Fill a store from records of ``ROLES``; others are skipped."""
    filler = Filler(connection)
    ours = (record for record in records if record.role in ROLES)
    while batch := list(islice(ours, STORE_BATCH_RECORDS)):
        filler.take(batch)
    return filler


_EVIDENCE = "DELETE FROM evidence WHERE id IN ({}) RETURNING id, server, tool, observer, subject, time_us"
_OLD_EVIDENCE = "SELECT id FROM evidence WHERE time_us < ? ORDER BY time_us LIMIT ?"
_NUMBERED = "SELECT value FROM json_each(?)"
_SERVERS_OF = "SELECT e.id, e.server FROM json_each(?) j CROSS JOIN evidence e ON e.id = j.value ORDER BY e.id"
_COUNT_LESS = "UPDATE called SET calls = calls - 1 WHERE server = ? AND tool = ? AND observer = ?"
_NOT_CALLED = "DELETE FROM called WHERE server = ? AND tool = ? AND observer = ? AND calls = 0"
_LAST_CALL = """UPDATE called SET last_us = (SELECT e.time_us FROM evidence e INDEXED BY evidence_server
  WHERE e.tool = called.tool AND e.server = called.server AND e.observer = called.observer
  ORDER BY e.time_us DESC LIMIT 1) WHERE server = ? AND tool = ? AND observer = ? AND last_us <= ?"""
_LAST_CALLS = """UPDATE called SET last_us = e.last_us FROM (SELECT tool, observer, max(time_us) AS last_us
    FROM evidence INDEXED BY evidence_server WHERE server = ?1 GROUP BY 1, 2) e
  WHERE called.server = ?1 AND called.tool = e.tool AND called.observer = e.observer"""
_SOUGHT_ONE_BY_ONE_MAX = 16
"""Places of one server whose last calls are looked for one by one, back from its latest; of more, all are read."""

_ERASED = """SELECT id FROM evidence WHERE time_us >= ?1 AND time_us < ?2 AND (?3 IS NULL OR server = ?3)
  AND (?4 IS NULL OR agent = ?4)"""
_LISTS = "DELETE FROM seen WHERE id IN ({}) RETURNING server, digest"
_REPLACED = """EXISTS (SELECT 1 FROM seen l WHERE l.server = s.server AND l.observer = s.observer
  AND l.time_us >= s.time_us AND (l.time_us, l.pos, l.part) > (s.time_us, s.pos, s.part))"""
_OLD_LISTS = f"SELECT s.id FROM seen s WHERE s.time_us < ? AND {_REPLACED} ORDER BY s.time_us LIMIT ?"  # noqa: S608
_REPLACED_LISTS = f"SELECT s.id FROM seen s WHERE s.server = ? AND {_REPLACED} ORDER BY s.time_us LIMIT ?"  # noqa: S608
_FIRST_LISTS = f"SELECT s.id, s.digest FROM seen s WHERE s.server = ? ORDER BY NOT {_REPLACED}, s.time_us LIMIT ?"  # noqa: S608
_TOOLS_OF = """SELECT count(*) FROM catalogue c JOIN listed l ON l.catalogue = c.id
  WHERE c.server = ? AND c.digest = ?"""
_OLDEST_LISTS = "SELECT id FROM seen ORDER BY time_us LIMIT ?"
_NOT_SEEN = "NOT EXISTS (SELECT 1 FROM seen WHERE digest = ?2 AND server = ?1)"
_UNSEEN_TOOLS = f"""SELECT c.server, l.full, l.tool FROM catalogue c JOIN listed l ON l.catalogue = c.id
  WHERE c.server = ?1 AND c.digest = ?2 AND {_NOT_SEEN}"""  # noqa: S608
_UNSEEN = f"DELETE FROM catalogue WHERE server = ?1 AND digest = ?2 AND {_NOT_SEEN}"  # noqa: S608
_UNKNOWN_TOOL = """DELETE FROM tool_fact WHERE server = ?1 AND full = ?2
  AND NOT EXISTS (SELECT 1 FROM listed l JOIN catalogue c ON c.id = l.catalogue
    WHERE c.server = ?1 AND l.tool = ?3 AND l.full = ?2)
  AND NOT EXISTS (SELECT 1 FROM subject WHERE server = ?1 AND tool = ?3 AND full = ?2)"""
_UNKNOWN_DEFINITION = """DELETE FROM definition WHERE full = ?1 AND NOT EXISTS (SELECT 1 FROM digest
  WHERE value = lower(replace(?1, 'sha256:', '')) AND place != 'definition')"""
_ENDS = f"SELECT count(ends), coalesce(sum(next < ends), 0) FROM source WHERE role != '{Role.EVIDENCE}'"  # noqa: S608
_UNUSED_DEFINITIONS = """DELETE FROM definition WHERE id IN (SELECT id FROM definition d WHERE id <= ? AND NOT EXISTS
  (SELECT 1 FROM digest WHERE value = lower(replace(d.full, 'sha256:', '')) AND place != 'definition') LIMIT ?)"""
_TAKEN = """SELECT t.server, sum(length(d.body)) AS bytes FROM (SELECT server, full FROM tool_fact
    UNION SELECT server, full FROM subject) t JOIN definition d ON d.full = t.full
  WHERE EXISTS (SELECT 1 FROM seen WHERE server = t.server) OR EXISTS (SELECT 1 FROM called WHERE server = t.server)
  GROUP BY t.server ORDER BY bytes DESC, t.server"""

_CROWDED = "SELECT server, count(*) - ? FROM {} WHERE {} GROUP BY server HAVING count(*) > ?"
_CROWDED_TOOLS = """SELECT c.server, count(*) - ? FROM catalogue c CROSS JOIN listed l ON l.catalogue = c.id
  GROUP BY c.server HAVING count(*) > ? AND EXISTS (SELECT 1 FROM seen WHERE server = c.server)"""
_ROWS = "DELETE FROM {0} WHERE id IN (SELECT id FROM {0} WHERE {1} ORDER BY {2} LIMIT ?)"
_FIRST = {"alert": "state != 'closed', last_ms", "finding": "time_us", "decision": "time_us, id"}
"""Which rows of a table are dropped first."""

_CALLS = "SELECT coalesce(sum(calls), 0) FROM called WHERE server = ?"
_FACTS = "SELECT server, sum(length(body)) AS bytes FROM fact GROUP BY server ORDER BY bytes DESC, server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Retention bounds of the store.

    Args:
        age_us: maximum age in microseconds: of evidence by event time, of closed alerts and of replaced lists.
        size_bytes: maximum size of the whole store.
    """

    age_us: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """Result of one ``keep_within``.

    Args:
        kind: table of the rows.
        bound: ``age``, ``size``, or ``server`` if one server had more than its share.
    """

    rows: int = 0
    kind: str = "evidence"
    bound: str = "size"

    def __bool__(self) -> bool:
        return self.rows > 0


def _drop(connection: sqlite3.Connection, bounds: Bounds, *, now_us: int) -> Dropped:
    """Drop some rows beyond the bounds. The caller holds the transaction, and repeats until nothing is dropped.

    1. Too old: evidence, closed alerts, findings, replaced lists. 2. Beyond one server's share, even if there is room:
    it must not displace the rows of others. 3. Beyond the size: definitions that nothing refers to; if definitions or
    facts exceed their share, lists and then evidence, or all facts, of the largest server; the first evidence of the
    servers with the most; the oldest findings and lists; alerts, closed ones first; finally facts.

    Verdicts follow from pins, policies and the lists in force; operators' decisions are never dropped.
    """
    drops = _Drops(connection)
    done = next(filter(None, _beyond(drops, now_us - bounds.age_us)), Dropped())
    if done or used_bytes(connection) <= bounds.size_bytes:
        return done
    return next(filter(None, _for_room(drops, bounds.size_bytes)), Dropped())


def _beyond(drops: _Drops, old_us: int) -> Iterator[Dropped]:
    """Drop rows that are too old, and those beyond one server's share, step by step."""
    yield Dropped(rows=drops.evidence(_OLD_EVIDENCE, [(old_us, STORE_DROP_ROWS)]), bound="age")
    yield drops.rows("alert", "age", "state = 'closed' AND last_ms < ?", old_us // 1_000)
    yield drops.rows("finding", "age", "time_us < ?", old_us)
    for table, condition, rows_max in (
        ("finding", "TRUE", STORE_FINDINGS_PER_SERVER_MAX),
        ("alert", "TRUE", STORE_ALERTS_PER_SERVER_MAX),
        ("decision", "author IS NULL", STORE_CHANGES_PER_SERVER_MAX),
    ):
        for server, surplus in drops.crowded(_CROWDED.format(table, condition), rows_max):
            yield drops.rows(table, "server", f"server = ? AND {condition}", server, limit=surplus)
    for server, surplus in drops.crowded(_CROWDED.format("seen", "TRUE"), STORE_LISTS_PER_SERVER_MAX):
        yield Dropped(rows=drops.lists(_REPLACED_LISTS, server, surplus), kind="seen", bound="server")
    for server, surplus in drops.crowded(_CROWDED_TOOLS, STORE_LISTED_PER_SERVER_MAX):
        yield Dropped(rows=drops.first_lists(server, tools=surplus), kind="seen", bound="server")
    yield Dropped(rows=drops.lists(_OLD_LISTS, old_us, STORE_DROP_ROWS), kind="seen", bound="age")


def _for_room(drops: _Drops, size_bytes: int) -> Iterator[Dropped]:
    """Drop rows until the store fits its size, step by step."""
    yield Dropped(rows=drops.unused_definitions(), kind="definition")
    greedy = _greedy(drops.connection, _TAKEN, size_bytes)
    if greedy is not None:
        yield Dropped(rows=drops.first_lists(greedy, tools=STORE_DROP_ROWS // 10), kind="seen", bound="server")
        # Calls keep the definitions that they used.
        calls = drops.connection.execute(_CALLS, (greedy,)).fetchone()[0]
        first = _first_calls(drops.connection, {greedy: min(STORE_DROP_ROWS, calls // 10 + 1)})
        yield Dropped(rows=drops.evidence(_NUMBERED, [(str(first),)], are_latest=True), bound="server")
    greedy = _greedy(drops.connection, _FACTS, size_bytes)
    if greedy is not None:
        yield Dropped(rows=drops.facts(greedy), kind="fact", bound="server")
    first = _first_calls(drops.connection, dict(_surpluses(drops.connection)))
    yield Dropped(rows=drops.evidence(_NUMBERED, [(str(first),)], are_latest=True))
    yield drops.rows("finding", "size", "TRUE")
    yield Dropped(rows=drops.lists(_OLDEST_LISTS, STORE_DROP_ROWS), kind="seen")
    yield drops.rows("alert", "size", "TRUE")
    for largest, _ in drops.connection.execute(f"{_FACTS} LIMIT 1").fetchall():
        yield Dropped(rows=drops.facts(largest), kind="fact")


def _settle_definitions(connection: sqlite3.Connection) -> None:
    """Note which definitions were there the last time that every log but those of evidence had been read to its end.

    Logs are not read at one moment: what refers to a definition may arrive in the next batch. By the time after that it
    is here, or does not come. Evidence is not waited for: it can take hours, and would be dropped for want of room.
    """
    is_live, behind = connection.execute(_ENDS).fetchone()
    if is_live and not behind:
        latest = connection.execute("SELECT coalesce(max(id), 0) FROM definition").fetchone()[0]
        # Ids above are given again.
        put_meta(connection, "definitions_settled", min(meta(connection, "definitions_read", 0), latest))
        put_meta(connection, "definitions_read", latest)


def _greedy(connection: sqlite3.Connection, taken_by: str, size_bytes: int) -> str | None:
    """Return the largest server, if it takes more than an eighth of the store, or all servers together more than half.

    Args:
        taken_by: query for servers and bytes, largest first.
    """
    taken = connection.execute(taken_by).fetchall()
    if not taken or (taken[0][1] <= size_bytes // 8 and sum(row[1] for row in taken) <= size_bytes // 2):
        return None
    return str(taken[0][0])


def _surpluses(connection: sqlite3.Connection) -> list[tuple[str, int]]:
    """Return the servers to drop evidence of, and how much, so that the largest are left with equal numbers."""
    statement = "SELECT server, sum(calls) AS calls FROM called GROUP BY server ORDER BY calls DESC, server"
    counts = connection.execute(statement).fetchall()
    wanted = min(STORE_DROP_ROWS, sum(calls for _, calls in counts) // 10 + 1)
    share = taken = 0
    for number, (_, calls) in enumerate(counts, start=1):
        taken += calls
        share = max(taken - wanted, 0) // number
        if number == len(counts) or counts[number][1] <= share:
            break
    return [(server, calls - share) for server, calls in counts if calls > share]


def _first_calls(connection: sqlite3.Connection, surpluses: dict[str, int]) -> list[int]:
    """Return the numbers of the first calls of servers in the order in which they came, as many as asked of each.

    A caller can date its calls, but not say when they were read.
    """
    hashed = mark_hasher(meta(connection, "secret", b""))
    codes = {server: name_code(hashed(server)) for server in surpluses}
    found: list[int] = []
    for (era,) in connection.execute("SELECT id FROM era ORDER BY id"):
        numbers = str(calls_in(connection, {"server": set(codes.values())}, era))
        for number, server in connection.execute(_SERVERS_OF, (numbers,)):
            if server in codes:
                found.append(number)
                surpluses[server] -= 1
                if not surpluses[server]:
                    del codes[server]
        if not codes:
            break
    return found


class _Drops:
    """Drops rows with everything derived from them."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def crowded(self, statement: str, rows_max: int) -> list[tuple[str, int]]:
        """Return servers with more than ``rows_max`` rows, limited to as many as are dropped at once."""
        found = self.connection.execute(statement, (rows_max, rows_max)).fetchall()
        return [(server, min(surplus, STORE_DROP_ROWS)) for server, surplus in found]

    def evidence(self, chosen: str, given: Iterable[tuple[object, ...]], *, are_latest: bool = False) -> int:
        """Drop evidence; return the number of rows.

        Args:
            chosen: query for row numbers, run once for each of ``given``.
            are_latest: whether they may include the latest calls of their tool.
        """
        statement = _EVIDENCE.format(chosen)
        gone = [row for each in given for row in self.connection.execute(statement, each).fetchall()]
        many = self.connection.executemany
        drop_marks(self.connection, (row[0] for row in gone))
        places = [row[1:4] for row in gone]
        many(_COUNT_LESS, places)
        many(_NOT_CALLED, sorted(set(places)))
        if are_latest:
            # In order of time: of each place, its latest is the last.
            latest = {
                (server, tool, observer): time_us
                for _, server, tool, observer, _, time_us in sorted(gone, key=itemgetter(5))
            }
            for server, of_server in groupby(sorted(latest.items()), lambda item: item[0][0]):
                rows = [(*place, time_us) for place, time_us in of_server]
                if len(rows) > _SOUGHT_ONE_BY_ONE_MAX:
                    self.connection.execute(_LAST_CALLS, (server,))
                else:
                    many(_LAST_CALL, rows)
        dropped = [drop_calls(self.connection, *each) for each in sorted(Counter(row[4] for row in gone).items())]
        self._definitions(filter(None, dropped))
        return len(gone)

    def rows(self, table: str, bound: str, condition: str, *given: object, limit: int = STORE_DROP_ROWS) -> Dropped:
        statement = _ROWS.format(table, condition, _FIRST[table])
        return Dropped(rows=self.connection.execute(statement, (*given, limit)).rowcount, kind=table, bound=bound)

    def facts(self, server: str) -> int:
        """Drop all facts about a server: keeping some of them would give wrong answers."""
        self.connection.execute("INSERT OR IGNORE INTO without_facts VALUES (?)", (server,))
        return self.connection.execute("DELETE FROM fact WHERE server = ?", (server,)).rowcount

    def first_lists(self, server: str, *, tools: int) -> int:
        """Drop lists of a server with at least this many tools: replaced ones first, then the oldest."""
        chosen: list[int] = []
        for number, digest in self.connection.execute(_FIRST_LISTS, (server, STORE_DROP_ROWS)).fetchall():
            chosen.append(number)
            tools -= self.connection.execute(_TOOLS_OF, (server, digest)).fetchone()[0]
            if tools <= 0:
                break
        return self.lists(_NUMBERED, str(chosen))

    def lists(self, chosen: str, *given: object) -> int:
        gone = self.connection.execute(_LISTS.format(chosen), given).fetchall()
        tools: set[tuple[str, str, str]] = set()
        for place in sorted(set(gone)):
            tools.update(self.connection.execute(_UNSEEN_TOOLS, place).fetchall())
            self.connection.execute(_UNSEEN, place)
        self._definitions(tools)
        return len(gone)

    def unused_definitions(self) -> int:
        """Drop definitions whose facts the registry forgot, or whose alerts were dropped: their topic has them all."""
        is_live, _ = self.connection.execute(_ENDS).fetchone()
        settled = meta(self.connection, "definitions_settled", 0) if is_live else INT64_MAX
        return self.connection.execute(_UNUSED_DEFINITIONS, (settled, STORE_DROP_ROWS)).rowcount

    def _definitions(self, used: Iterable[tuple[str, str, str]]) -> None:
        """Drop definitions that no list and no call refers to any more, given by server, full digest and tool."""
        tools = sorted(set(used))
        self.connection.executemany(_UNKNOWN_TOOL, tools)
        self.connection.executemany(_UNKNOWN_DEFINITION, sorted({(full,) for _, full, _ in tools}))
