"""What the registry and the alert stage publish, into the store: definitions, lists, verdicts, alerts and decisions.

Facts and verdicts are rows under their key and its partition, as in their compacted topics: a tombstone deletes a row,
so that the store is the same whether it was filled before or after a compaction.

A row keeps the key of the single fact. Once a run replaces that fact, the row belongs to the run, and the single fact's
tombstone deletes nothing. So the result does not depend on how far the topic was compacted.
"""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Any

import orjson

from assay_stream.alerts.view import AlertView, read_alert, row_of, view_of
from assay_stream.bindings.sightings import rows_of, seen_at
from assay_stream.bindings.state import OF_REGISTRIES
from assay_stream.canonical.decode import decode_json
from assay_stream.errors import AssayStreamError
from assay_stream.limits import STORE_ALERT_DIGESTS_MAX, STORE_ALERT_HEAD, STORE_ALERT_RECORDS_MAX
from assay_stream.model.facts import (
    Catalogue,
    Fact,
    Progress,
    RunCut,
    Seen,
    SeenRun,
    ToolFact,
    decode_fact,
    decode_key,
    encode_key,
    encode_value,
)
from assay_stream.model.finding import Finding, NameClaim, Resolution, Suppression, decode_entry
from assay_stream.model.record import Origin, Record, Role
from assay_stream.model.state_table import KEY, read_level
from assay_stream.model.wire import FactKey, origin_of_key
from assay_stream.readmodel.calls import Digests, compressed, decompressed, write_digests
from assay_stream.readmodel.rows import INT64_MAX, rank_of
from assay_stream.readmodel.schema import insert_into
from assay_stream.text.times import time_us_of

KINDS = (Seen.fact_kind, SeenRun.fact_kind, RunCut.fact_kind)
_DROP_SINGLE = "DELETE FROM seen WHERE part = ? AND fact = ? AND run IS NULL"
_DROP_OF_RUN = """DELETE FROM seen WHERE server = ? AND observer = ? AND part = ? AND run = ?
  AND pos {} (SELECT value FROM json_each(?))"""


_OF_REGISTRIES = OF_REGISTRIES | {Progress.fact_kind}
"""Kinds of facts that no question rests on."""
_TABLES = {"tool": "tool_fact", "catalogue": "catalogue"}
"""Kinds of facts whose rows stand under their keys, and their tables."""

_FOREIGN = (
    AssayStreamError,
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    RecursionError,
    OverflowError,
    # A member of another type than its column has.
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)
"""What a record that is none of ours raises, wherever it is read or written."""


class Inventory:
    """Writes records of everything but evidence to the store; the caller holds the transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._takers = {
            Role.BINDINGS: self._fact,
            Role.VERDICTS: self._verdict,
            Role.DEFINITIONS: self._definition,
            Role.FINDINGS: self._finding,
            Role.ALERTS: self._alert,
            Role.CHANGES: self._decision,
        }

    def take(self, record: Record) -> bool:
        """Add one record, completely or not at all; return False if it is not one of ours.

        Raises:
            ConfigurationError: ``format_too_new`` for the mark of a later format level.
        """
        if record.key == KEY and record.role is Role.BINDINGS:
            read_level(record)
            return True
        self._connection.execute("SAVEPOINT taking")
        try:
            self._takers[record.role](record)
        except _FOREIGN:
            self._connection.execute("ROLLBACK TO taking")
            return False
        finally:
            # A full disk has ended the transaction already, and the savepoint with it.
            if self._connection.in_transaction:
                self._connection.execute("RELEASE taking")
        return True

    def _one(self, statement: str, *given: object) -> Any:
        row = self._connection.execute(statement, given).fetchone()
        return None if row is None else row[0]

    def _drop(self, table: str, part: int, fact: bytes) -> None:
        self._connection.execute(f"DELETE FROM {table} WHERE part = ? AND fact = ?", (part, fact))  # noqa: S608

    def _fact(self, record: Record) -> None:
        key, part = decode_key(record.key), record.origin.partition
        kind = str(key[0])
        if kind in _OF_REGISTRIES:
            return
        fact = None if record.value is None else decode_fact(key, record.value)
        self._keep_fact(record, str(key[1]), fact)
        if kind in _TABLES:
            self._drop(_TABLES[kind], part, record.key or b"")
            if fact is not None:
                self._insert_fact(fact, part, record.key or b"")
        elif kind in KINDS:
            self._list(key, fact, part)

    def _list(self, key: FactKey, fact: Fact | None, part: int) -> None:
        """Keep the rows of lists. A truncation mark goes with its run, or when that is rewritten."""
        if key[0] == Seen.fact_kind:
            self._connection.execute(_DROP_SINGLE, (part, encode_key(key)))
            if isinstance(fact, Seen):
                self._put(fact, part, None)
                self._list_again(fact, part)
            return
        origin: Origin = origin_of_key(list(key[3:]))
        run = str(key[1]), str(key[2]), part, origin.offset
        if isinstance(fact, RunCut):
            gone = [origin.offset + further for further in fact.gone]
            self._connection.execute(_DROP_OF_RUN.format("IN"), (*run, _json(gone)))
        elif key[0] == SeenRun.fact_kind:
            rows = [seen_at(fact, row) for row in rows_of(fact)] if isinstance(fact, SeenRun) else []
            kept = [seen.origin.offset for seen in rows]
            self._connection.execute(_DROP_OF_RUN.format("NOT IN"), (*run, _json(kept)))
            for seen in rows:
                self._put(seen, part, origin.offset)
            if rows:
                self._list_again(rows[0], part)

    def _list_again(self, seen: Seen, part: int) -> None:
        """Bring back what was dropped of a catalogue with the last list of it: the registry publishes it only once."""
        known = "SELECT 1 FROM catalogue WHERE server = ? AND digest = ? AND part = ?"
        if self._one(known, seen.server_id, seen.catalogue, part):
            return
        catalogue = self._insert_again(Catalogue.fact_kind, part, (seen.server_id, seen.catalogue))
        if isinstance(catalogue, Catalogue):
            for full in sorted({full for _, full in catalogue.definitions()}):
                self._insert_again(ToolFact.fact_kind, part, (seen.server_id, catalogue.server_scoped, full))

    def _insert_again(self, kind: str, part: int, rest: FactKey) -> Fact | None:
        """Insert the rows of a fact that is still here, if they are not; return it."""
        key = (kind, *rest)
        raw = encode_key(key)
        body = self._one("SELECT body FROM fact WHERE part = ? AND key = ?", part, raw)
        if body is None:
            return None
        fact = decode_fact(key, decompressed(body))
        if not self._one(f"SELECT 1 FROM {_TABLES[kind]} WHERE part = ? AND fact = ?", part, raw):  # noqa: S608
            self._insert_fact(fact, part, raw)
        return fact

    def _put(self, seen: Seen, part: int, run: int | None) -> None:
        row = {"part": part, "fact": encode_key(seen.key()), "server": seen.server_id, "observer": seen.observer_id}
        row |= {"time_us": min(seen.time_us, INT64_MAX), "pos": seen.origin.offset, "digest": seen.catalogue}
        row |= {"snapshot": seen.snapshot_id, "run": run}
        known = "ON CONFLICT (part, fact) DO UPDATE SET run = coalesce(excluded.run, run)"
        self._connection.execute(f"{insert_into('seen', row)} {known}", tuple(row.values()))

    def _keep_fact(self, record: Record, server: str, fact: Fact | None) -> None:
        part, key, value = record.origin.partition, record.key or b"", record.value or b""
        if fact is None or self._one("SELECT 1 FROM without_facts WHERE server = ?", server):
            self._connection.execute("DELETE FROM fact WHERE part = ? AND key = ?", (part, key))
            return
        if isinstance(fact, ToolFact):
            value = encode_value(replace(fact, packed=""))
        self._connection.execute(
            "INSERT OR REPLACE INTO fact VALUES (?, ?, ?, ?)", (part, key, server, compressed(value))
        )

    def _insert(self, table: str, digests: Digests, **columns: object) -> int:
        """Insert a row with the places of its digests; those without a value are left out."""
        row = int(self._one(f"{insert_into(table, columns)} RETURNING id", *columns.values()))
        write_digests(self._connection, "tool" if table == "tool_fact" else table, row, digests)
        return row

    def _insert_fact(self, fact: Fact, part: int, key: bytes) -> None:
        match fact:
            case ToolFact(server_id=server, full=full):
                schemes, errors = dict(fact.schemes), dict(fact.errors)
                digests = [("definition", "full", full), *(("tool_definition", *each) for each in schemes.items())]
                columns = {"full": full, "schemes": _json(schemes), "errors": _json(errors)}
                self._insert("tool_fact", digests, part=part, fact=key, server=server, **columns)
            case Catalogue(server_id=server, digest=digest):
                digests = [("list", "catalogue", digest)]
                row = self._insert("catalogue", digests, part=part, fact=key, server=server, digest=digest)
                self._connection.executemany(
                    "INSERT OR IGNORE INTO listed VALUES (?, ?, ?)",
                    [(row, name, full) for name, full in fact.definitions()],
                )

    def _verdict(self, record: Record) -> None:
        server, tool = orjson.loads(record.key or b"")
        part, key = record.origin.partition, record.key or b""
        content = None if record.value is None else orjson.loads(record.value)
        if not isinstance(server, str) or not isinstance(tool, str | None) or not isinstance(content, dict | None):
            raise ValueError("a verdict's key is an array of server and tool")
        row: dict[str, object] = {}
        digests: Digests = []
        if content is not None:
            row = {"status": str(content["status"]), "action": str(content["action"]), "body": _json(content)}
            digests += [("pin", scheme, str(value or "")) for scheme, value in content.get("pins", {}).items()]
            for scheme, values in content.get("rejected", {}).items():
                digests += [("rejected", scheme, str(value or "")) for value in values]
        self._drop("verdict", part, key)
        if row:
            self._insert("verdict", digests, part=part, fact=key, server=server, tool=tool, **row)

    def _definition(self, record: Record) -> None:
        full = (record.key or b"").decode()
        if record.value is None:
            self._connection.execute("DELETE FROM definition WHERE full = ?", (full,))
            return
        content = decode_json(record.value)
        if not isinstance(content, dict) or not isinstance(content.get("definition"), dict):
            raise ValueError("a definition record has a member definition, an object")
        full = full or content["full_digest"]
        row = self._one(
            "INSERT INTO definition (full, body) VALUES (?, ?) "
            "ON CONFLICT DO UPDATE SET body = excluded.body RETURNING id",
            full,
            compressed(record.value),
        )
        write_digests(self._connection, "definition", row, [("definition", "full", full)])

    def _alert(self, record: Record) -> None:
        alert = read_alert(record.value)
        view = view_of(alert)
        row, definition = row_of(view), view.fact("mcp_digest_after")
        next_id = "SELECT coalesce((SELECT id FROM alert WHERE uid = ?), max(id) + 1, 1) FROM alert"
        number = self._one(next_id, row.uid)
        columns = {
            "last_ms": min(max(row.last_seen_ms, 0), INT64_MAX),
            "severity": rank_of(row.severity_id),
            "kind": row.kind,
            "server": row.server_id,
            "tool": row.tool_name,
            "state": row.state.value,
            "assigned": row.assigned_to,
            "definition": definition,
            "row": _json(row),
        }
        insert = insert_into("alert", ("uid", "id", "records", *columns))
        latest = ", ".join(f"{name} = excluded.{name}" for name in columns)
        self._connection.execute(
            f"{insert} ON CONFLICT (uid) DO UPDATE SET {latest}, records = records + 1",
            (row.uid, number, 1, *columns.values()),
        )
        self._drop_repeated(number, view)
        self._connection.execute(
            "INSERT INTO alert_record (alert, time_ms, body) VALUES (?, ?, ?)",
            (number, min(max(view.time_ms, 0), INT64_MAX), compressed(record.value or b"")),
        )
        # What a history shows is kept, and no more: an alert may go on for long.
        self._connection.execute(
            "DELETE FROM alert_record WHERE id = (SELECT id FROM alert_record WHERE alert = ?1 ORDER BY id LIMIT 1 "
            "OFFSET ?2) AND (SELECT count(*) FROM alert_record WHERE alert = ?1) > ?3",
            (number, STORE_ALERT_HEAD, STORE_ALERT_RECORDS_MAX),
        )
        count = "SELECT count(*) FROM digest WHERE place = 'alert' AND owner = ? AND place != 'calls'"
        if self._one(count, number) >= STORE_ALERT_DIGESTS_MAX:
            return
        scheme = view.fact("mcp_pin_scheme")
        named = [
            ("definition_before", "full", view.fact("mcp_digest_before")),
            ("definition_after", "full", definition),
            ("pin_expected", scheme, view.fact("mcp_pin_expected")),
            ("pin_observed", scheme, view.fact("mcp_pin_observed")),
            ("detection", "detection", view.fact("mcp_detection_digest")),
        ]
        write_digests(self._connection, "alert", number, named)

    def _drop_repeated(self, number: int, view: AlertView) -> None:
        """Drop the latest record of an alert if it repeats the one before, and the new one repeats it in turn."""
        latest = "SELECT id, body FROM alert_record WHERE alert = ? ORDER BY id DESC LIMIT 2"
        stored = self._connection.execute(latest, (number,)).fetchall() if view.fact("mcp_repeats") else ()
        if len(stored) > 1:
            last, before = (view_of(read_alert(decompressed(body))) for _, body in stored)
            if view.repeats(last) and last.repeats(before):
                self._connection.execute("DELETE FROM alert_record WHERE id = ?", (stored[0][0],))

    def _finding(self, record: Record) -> None:
        entry = decode_entry(record.value)
        body = compressed(record.value or b"")
        if isinstance(entry, Suppression):
            place = entry.rule.server_id, entry.rule.id
            self._connection.execute("DELETE FROM suppression WHERE server = ? AND rule = ?", place)
            if entry.is_set:
                self._connection.execute("INSERT INTO suppression VALUES (?, ?, ?)", (*place, body))
        elif isinstance(entry, Finding | NameClaim | Resolution):
            self._insert("finding", [], server=(record.key or b"").decode(), time_us=entry.time_us, body=body)

    def _decision(self, record: Record) -> None:
        event = decode_json(record.value or b"")
        data = event["data"]
        texts = [data.get("tool_name", data.get("tool")), data.get("author"), data.get("alert_uid")]
        named = [data.get("scheme"), data.get("value"), data.get("key_fingerprint"), event.get("assaycontenthash")]
        optional = [*texts, *named, data.get("reason")]
        if not isinstance(event["time"], str) or not all(isinstance(text, str | None) for text in optional):
            raise ValueError("a change is an event with a time and data")
        origin = Origin(**data["origin"])
        if [type(part) for part in origin] != [str, int, int]:
            raise ValueError("a change names the place of its control record")
        scheme, value, key, content = (text or "" for text in named)
        digests = [
            ("decision", scheme, value),
            ("signing_key", "schemapin.v1", key),
            ("record", "assaycontenthash", content),
        ]
        columns = dict(zip(("tool", "author", "alert"), texts, strict=True))
        body, server, change = compressed(record.value or b""), str(data["server_id"]), str(data["change"])
        time_us = time_us_of(event["time"])
        self._insert("decision", digests, time_us=time_us, change=change, server=server, **columns, body=body)


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
