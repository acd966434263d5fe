"""Sightings of lists in the store: a row for each, whether its fact is a single one or a row of a run.

A row keeps the key of the single fact. Once a run replaces that fact, the row belongs to the run, and the single fact's
tombstone deletes nothing. So the result does not depend on how far the topic was compacted.
"""

from __future__ import annotations

import sqlite3

from assay_stream.bindings.sightings import seen_at
from assay_stream.bindings.state import rows_of
from assay_stream.model.facts import Seen, encode_key
from assay_stream.model.record import Origin
from assay_stream.model.run_facts import RunCut, SeenRun
from assay_stream.model.wire import FactKey, origin_of_key

KINDS = (Seen.fact_kind, SeenRun.fact_kind, RunCut.fact_kind)
_INT64_MAX = 2**63 - 1
_PUT = """INSERT INTO seen (part, fact, server, observer, time_us, pos, digest, snapshot, run)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (part, fact) DO UPDATE SET run = coalesce(excluded.run, run)"""
_DROP_SINGLE = "DELETE FROM seen WHERE part = ? AND fact = ? AND run IS NULL"
_OF_RUN = "FROM seen WHERE server = ? AND observer = ? AND part = ? AND run = ?"


class Sightings:
    """Writes facts of lists to the store; the caller holds the transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def take(self, fact: Seen | SeenRun | RunCut, part: int) -> None:
        match fact:
            case Seen():
                self._connection.execute(_DROP_SINGLE, (part, encode_key(fact.key())))
                self._put(fact, part, None)
            case SeenRun():
                rows = [seen_at(fact, row) for row in rows_of(fact)]
                self._keep(fact.key(), part, {seen.origin.offset for seen in rows})
                for seen in rows:
                    self._put(seen, part, fact.origin.offset)
            case RunCut():
                gone = {fact.origin.offset + further for further in fact.gone}
                self._keep(fact.key(), part, self._offsets(fact.key(), part) - gone)

    def forget(self, key: FactKey, part: int) -> None:
        """Remove a fact. A truncation mark goes with its run, or when that is rewritten."""
        if key[0] == Seen.fact_kind:
            self._connection.execute(_DROP_SINGLE, (part, encode_key(key)))
        elif key[0] == SeenRun.fact_kind:
            self._keep(key, part, set())

    def _offsets(self, key: FactKey, part: int) -> set[int]:
        return {row[0] for row in self._connection.execute(f"SELECT pos {_OF_RUN}", self._run(key, part))}

    def _keep(self, key: FactKey, part: int, offsets: set[int]) -> None:
        """Delete the rows of a run except those with the given offsets."""
        run = self._run(key, part)
        gone = [(*run, offset) for offset in self._offsets(key, part) - offsets]
        self._connection.executemany(f"DELETE {_OF_RUN} AND pos = ?", gone)

    def _run(self, key: FactKey, part: int) -> tuple[str, str, int, int]:
        _, server_id, observer_id, *place = key
        origin: Origin = origin_of_key(place)
        return str(server_id), str(observer_id), part, origin.offset

    def _put(self, seen: Seen, part: int, run: int | None) -> None:
        self._connection.execute(
            _PUT,
            (
                part,
                encode_key(seen.key()),
                seen.server_id,
                seen.observer_id,
                min(seen.time_us, _INT64_MAX),
                seen.origin.offset,
                seen.catalogue,
                seen.snapshot_id,
                run,
            ),
        )
