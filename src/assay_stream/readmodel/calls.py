"""Evidence into the store: for each call, a row with its bytes, its search keys and its digests."""

from __future__ import annotations

import sqlite3
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from importlib.resources import files
from itertools import groupby
from operator import attrgetter
from threading import local
from typing import Any

import msgspec
import orjson
import zstandard
from msgspec import Struct

from assay_stream.bindings.erasures import Erasures, Subject
from assay_stream.limits import DEFAULT_LIMITS, STORE_ERA_RECORDS, STORE_SUBJECTS_KEPT_MAX
from assay_stream.model.record import Record, erased_by
from assay_stream.readmodel.rows import CALL_COLUMNS, INT64_MAX, DigestValue
from assay_stream.readmodel.schema import insert_into, meta, put_meta
from assay_stream.text.times import time_us_in

Digests = list[tuple[str, str, str]]
"""Role, scheme and value of each."""

_HEX_DIGITS = 64
_HASH_BYTES = 6
_ENTRY = struct.Struct(f">{_HASH_BYTES}sH")
"""Of a mark: a hash, and the number of the call within its era."""
_ERA_COLUMNS = {"time_us": (8, "q"), "subject": (4, "I"), "server": (4, "I"), "tool": (4, "I"), "agent": (4, "I")}
"""Columns of evidence that eras have: bytes and format of an entry. Their order is part of the store's format."""


class _Identity(Struct, frozen=True, gc=False):
    schema_hash: str | None = None
    meta_hash: str | None = None


class _Binding(Struct, gc=False):
    scope: str
    full_digest: str | None = None
    catalogue_digest: str | None = None


class _Pin(Struct, gc=False):
    scheme: str | None = None
    expected: str | None = None
    observed: str | None = None


class _Signature(Struct, frozen=True, gc=False):
    key_fingerprint: str | None = None
    previous_hash: str | None = None


class _Inputs(Struct, frozen=True, gc=False):
    requests_hash: str | None = None


class _Task(Struct, frozen=True, gc=False):
    id_hash: str | None = None


class _Actor(Struct, frozen=True, gc=False):
    agent_id: str | None = None


class EvidenceData(Struct, gc=False):
    """The members of a decision that the store has columns or digests of."""

    server_id: str
    tool: str
    observer_id: str
    tool_call_id: str
    binding: _Binding
    pin: _Pin
    decision: str | None = None
    ok: bool | None = None
    unbound_reason: str | None = None
    actor: _Actor = _Actor()
    trace_id: str | None = None
    args_hash: str | None = None
    args_schema_hash: str | None = None
    result_hash: str | None = None
    policy_digest: str | None = None
    policy_snapshot_digest: str | None = None
    redaction: str | None = None
    tool_definition_digest: str | None = None
    tool_identity: _Identity = _Identity()
    signature: _Signature = _Signature()
    inputs: _Inputs = _Inputs()
    task: _Task = _Task()


class EvidenceLine(Struct, gc=False):
    """The members of a record of evidence that the store has columns or digests of."""

    id: str
    time: str
    assaycontenthash: str
    data: EvidenceData
    traceparent: str | None = None


EVIDENCE_LINES: msgspec.json.Decoder[EvidenceLine] = msgspec.json.Decoder(EvidenceLine)

_SHARED = (
    ("arguments_schema", "args_schema_hash", "args_schema_hash"),
    ("definition", "full", "binding.full_digest"),
    ("list", "catalogue", "binding.catalogue_digest"),
    ("pin_expected", "", "pin.expected"),
    ("pin_observed", "", "pin.observed"),
    ("policy", "policy_digest", "policy_digest"),
    ("policy_snapshot", "policy_snapshot_digest", "policy_snapshot_digest"),
    ("redaction", "redaction", "redaction"),
    ("tool_definition", "assay.v1", "tool_definition_digest"),
    ("tool_definition", "assay.schema_hash", "tool_identity.schema_hash"),
    ("tool_definition", "assay.meta_hash", "tool_identity.meta_hash"),
    ("signing_key", "schemapin.v1", "signature.key_fingerprint"),
    ("signature_previous", "schemapin.v1", "signature.previous_hash"),
)
"""Digests that calls with the same definition share: role, scheme and member. A pin names its scheme itself."""
_OWN = (
    ("record", "assaycontenthash", "assaycontenthash"),
    ("evidence", "id", "id"),
    ("arguments", "args_hash", "data.args_hash"),
    ("result", "result_hash", "data.result_hash"),
    ("call", "tool_call_id", "data.tool_call_id"),
    ("trace", "trace_id", "data.trace_id"),
    ("trace", "traceparent", "traceparent"),
    ("inputs", "requests_hash", "data.inputs.requests_hash"),
    ("task", "id_hash", "data.task.id_hash"),
)
"""Digests of one call alone, and the identifiers by which it can be found."""
_shared_values = attrgetter(*(member for _, _, member in _SHARED))
_own_values = attrgetter(*(member for _, _, member in _OWN))


def shared_digests(data: EvidenceData) -> Digests:
    named = zip(_SHARED, _shared_values(data), strict=True)
    return [(role, scheme or data.pin.scheme or "", value) for (role, scheme, _), value in named if value]


def own_digests(line: EvidenceLine) -> Digests:
    return [(role, scheme, value) for (role, scheme, _), value in zip(_OWN, _own_values(line), strict=True) if value]


def own_values(line: EvidenceLine) -> list[str]:
    return [value for value in _own_values(line) if value]


def digest_key(value: str) -> str:
    """Return the lookup key of a digest: bare hexadecimal, however its scheme prints it; other text unchanged."""
    bare = value.strip().removeprefix("sha256:")
    return bare.lower() if len(bare) == _HEX_DIGITS else bare


def mark_hasher(secret: bytes) -> Callable[[str], bytes]:
    """Return a hash function for the index of single calls; spellings that ``digest_key`` unifies have one hash.

    Args:
        secret: the store's own key: collisions cannot be constructed without it.
    """
    # As a prefix, a key of 16 bytes and a digest are one block to hash; as BLAKE2's own key they are two.
    keyed = blake2b(secret, digest_size=_HASH_BYTES).copy

    def hashed(value: str) -> bytes:
        found = keyed()
        found.update(digest_key(value).encode("utf-8", "surrogatepass"))
        return found.digest()

    return hashed


def marked_calls(connection: sqlite3.Connection, hashed: bytes, era: int, _: int | None = None) -> list[int]:
    """Return the numbers of the calls in an era that a hash is entered for."""
    statement = "SELECT entries FROM mark WHERE id = ? AND instr(entries, ?)"
    row = connection.execute(statement, (era << 8 | hashed[0], hashed)).fetchone()
    first, entries = era * STORE_ERA_RECORDS, b"" if row is None else row[0]
    # Equal digests of one call are several entries.
    return sorted({first + offset for entry, offset in _ENTRY.iter_unpack(entries) if entry == hashed})


def name_code(hashed: bytes) -> int:
    """Return the number that columns of eras have in place of a name, never 0."""
    return int.from_bytes(hashed[:4]) or 1


def calls_in(
    connection: sqlite3.Connection, wanted: Mapping[str, Collection[int]], era: int, oldest_us: int | None = None
) -> list[int]:
    """Return the numbers of the calls in an era that have one of some numbers in each column.

    Args:
        wanted: numbers by column; of a name, its ``name_code``: names may share one.
        oldest_us: leaves out calls before this event time.
    """
    offsets: Collection[int] | None = None
    for column, numbers in wanted.items():
        (entries,) = connection.execute(_ENTRIES, (_column_id(column, era),)).fetchone()
        if len(numbers) == 1 and next(iter(numbers)).to_bytes(4, "little") not in entries:
            return []
        values = _numbers(column, entries)
        offsets = [n for n in (range(len(values)) if offsets is None else offsets) if values[n] in numbers]
    if offsets and oldest_us is not None:
        times = _numbers("time_us", *connection.execute(_ENTRIES, (_column_id("time_us", era),)).fetchone())
        offsets = [offset for offset in offsets if times[offset] >= oldest_us]
    return [era * STORE_ERA_RECORDS + offset for offset in offsets or ()]


def _column_id(column: str, era: int) -> int:
    return list(_ERA_COLUMNS).index(column) << 40 | era


def _numbers(column: str, entries: bytes) -> tuple[int, ...]:
    width, code = _ERA_COLUMNS[column]
    return struct.unpack(f"<{len(entries) // width}{code}", entries)


def values_of(digests: Digests) -> tuple[DigestValue, ...]:
    return tuple(DigestValue(role=role, scheme=scheme, value=value) for role, scheme, value in digests)


_DigestRow = tuple[str, str, int, str, str]
_SUBJECT_BYTES = 16
_RECORD_BYTES_MAX = DEFAULT_LIMITS.record_bytes_max
_INSERT_DIGEST = "INSERT OR IGNORE INTO digest VALUES (?, ?, ?, ?, ?)"
_EVIDENCE = (*("id", "time_us", "source", "pos", "subject"), *(column.name for column in CALL_COLUMNS), "body")
_members = attrgetter(*(column.member for column in CALL_COLUMNS))
_COUNT = """INSERT INTO called VALUES (?, ?, ?, ?, ?)
  ON CONFLICT DO UPDATE SET calls = calls + excluded.calls, last_us = max(last_us, excluded.last_us)"""
_MARK = """INSERT INTO mark VALUES (?, ?)
  ON CONFLICT DO UPDATE SET entries = CAST(entries || excluded.entries AS BLOB)"""
_ERA = """INSERT INTO era VALUES (?, ?, ?)
  ON CONFLICT DO UPDATE SET first_us = min(first_us, excluded.first_us), last_us = max(last_us, excluded.last_us)"""
_ENTRIES = "SELECT entries FROM era_column WHERE id = ?"
# Entries begin with the era's first call, whether it is here or not.
_COLUMN = """INSERT INTO era_column VALUES (?, ?)
  ON CONFLICT DO UPDATE SET entries = CAST(entries || substr(excluded.entries, length(entries) + 1) AS BLOB)"""
_USED = "INSERT INTO subject_calls VALUES (?, ?) ON CONFLICT DO UPDATE SET calls = calls + excluded.calls"
_NAMES_KEPT_MAX = 8_192
_LEVEL = 1
_USUAL = files(__package__).joinpath("evidence.zdict").read_bytes()
"""What is usual in a record of evidence: it halves what one takes. Part of the store's format, from
``bench/store_dictionary.py``. Its tables of symbols make compressing a third faster than its text alone does."""


def read_line(value: bytes | None) -> EvidenceLine | None:
    """Decode the members of evidence that the store needs, ``None`` if the record is not evidence."""
    if value is None or len(value) > _RECORD_BYTES_MAX:
        return None
    try:
        line = EVIDENCE_LINES.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return line if line.id else None


class _Codec(local):
    """Per-thread compressor and decompressor: neither is thread-safe."""

    def __init__(self) -> None:
        usual = zstandard.ZstdCompressionDict(_USUAL, dict_type=zstandard.DICT_TYPE_FULLDICT)
        self.compress = zstandard.ZstdCompressor(
            _LEVEL, dict_data=usual, write_checksum=True, write_dict_id=False
        ).compress
        self.decompress = zstandard.ZstdDecompressor(dict_data=usual).decompress


_codec = _Codec()


def compressed(value: bytes) -> bytes:
    """Compress a record, with a checksum."""
    return _codec.compress(value)


def decompressed(body: bytes) -> bytes:
    """Decompress a stored record.

    Raises:
        zstandard.ZstdError: if it is damaged, or longer than a record can be.
    """
    if not 0 <= zstandard.frame_content_size(body) <= _RECORD_BYTES_MAX:
        raise zstandard.ZstdError("no record")
    return _codec.decompress(body)


class Calls:
    """Writes evidence to the store; the caller holds the transaction.

    Args:
        secret: key of the hashes in the search index.
    """

    def __init__(self, connection: sqlite3.Connection, secret: bytes) -> None:
        self._connection = connection
        self._hash = mark_hasher(secret)
        self._code = lru_cache(_NAMES_KEPT_MAX)(lambda name: 0 if name is None else name_code(self._hash(name)))
        self._subjects: dict[int, int] = {}

    def forget(self) -> None:
        """Forget what is cached of the store."""
        self._subjects.clear()

    def take(self, source: int, records: Sequence[Record], erasures: Erasures) -> tuple[int, int, int]:
        """Add records of one log; return how many were refused, were too old to keep, and are erased."""
        rows: list[tuple[Any, ...]] = []
        marks = defaultdict[int, bytearray](bytearray)
        called: dict[tuple[str, str, str], tuple[int, int]] = {}
        refused = dropped = erased = 0
        last, may_be_erased = meta(self._connection, "last_evidence", 0), bool(erasures.standing())
        # Evidence before this event time is counted but not kept, unless there is a legal hold.
        kept_from_us = -INT64_MAX if erasures.holds() else meta(self._connection, "horizon_us", -INT64_MAX)
        for record in records:
            if erased_by(record) is not None:
                erased += 1
                continue
            line = read_line(record.value)
            time_us = None if line is None else time_us_in(line.time)
            if line is None or time_us is None:
                refused += 1
                continue
            if time_us < kept_from_us:
                dropped += 1
                continue
            data = line.data
            if may_be_erased and erasures.due(Subject(data.server_id, data.actor.agent_id, time_us)):
                erased += 1
                continue
            last += 1
            rows.append(
                (
                    *(last, time_us, source, record.origin.offset, self._subject(data)),
                    *_members(data),
                    compressed(record.value or b""),
                )
            )
            era, offset = divmod(last, STORE_ERA_RECORDS)
            row, place_in_era = era << 8, offset.to_bytes(2)
            for hashed in map(self._hash, own_values(line)):
                marks[row | hashed[0]] += hashed + place_in_era
            place = data.server_id, data.tool, data.observer_id
            calls, last_us = called.get(place, (0, time_us))
            called[place] = calls + 1, max(last_us, time_us)
        put_meta(self._connection, "last_evidence", last)
        self._connection.executemany(insert_into("evidence", _EVIDENCE), rows)
        self._connection.executemany(_MARK, sorted(marks.items()))
        for era, group in groupby(rows, lambda row: row[0] // STORE_ERA_RECORDS):
            self._write_era(era, dict(zip(_EVIDENCE, zip(*group, strict=True), strict=True)))
        self._connection.executemany(_COUNT, sorted((*place, *counts) for place, counts in called.items()))
        return refused, dropped, erased

    def _write_era(self, era: int, columns: Mapping[str, Sequence[Any]]) -> None:
        numbers, times = columns["id"], columns["time_us"]
        self._connection.execute(_ERA, (era, min(times), max(times)))
        self._connection.executemany(_USED, sorted(Counter(columns["subject"]).items()))
        for column, (width, code) in _ERA_COLUMNS.items():
            before = numbers[0] % STORE_ERA_RECORDS * width
            is_number = column in ("time_us", "subject")
            values = columns[column] if is_number else map(self._code, columns[column])
            entries = struct.pack(f"<{before}x{len(numbers)}{code}", *values)
            self._connection.execute(_COLUMN, (_column_id(column, era), entries))

    def _subject(self, data: EvidenceData) -> int:
        # Remembered by hash: the texts are a kilobyte each. Texts hash by a key of this process.
        key = hash((data.server_id, data.tool, data.pin.scheme, _shared_values(data)))
        found = self._subjects.get(key)
        if found is None:
            if len(self._subjects) >= STORE_SUBJECTS_KEPT_MAX:
                self._subjects.clear()
            found = self._subjects[key] = self._stored_subject(data)
        return found

    def _stored_subject(self, data: EvidenceData) -> int:
        digests = shared_digests(data)
        key = blake2b(orjson.dumps((data.server_id, data.tool, digests)), digest_size=_SUBJECT_BYTES).digest()
        select = "SELECT id FROM subject WHERE server = ? AND tool = ? AND hash = ?"
        known = self._connection.execute(select, (data.server_id, data.tool, key)).fetchone()
        if known is not None:
            return int(known[0])
        insert = insert_into("subject", ("server", "tool", "full", "hash", "digests"))
        row = (data.server_id, data.tool, data.binding.full_digest or "", key, orjson.dumps(digests).decode())
        subject = int(self._connection.execute(f"{insert} RETURNING id", row).fetchone()[0])
        write_digests(self._connection, "calls", subject, digests)
        return subject


def write_digests(connection: sqlite3.Connection, place: str, owner: int, digests: Digests) -> None:
    """Index the places of digests, as far as they have a value."""
    connection.executemany(_INSERT_DIGEST, _digest_rows(place, owner, digests))


def drop_calls(connection: sqlite3.Connection, subject: int, calls: int) -> tuple[str, str, str] | None:
    """Drop the data shared by calls once no call is left; return its server, full digest and tool if so."""
    connection.execute("UPDATE subject_calls SET calls = calls - ? WHERE subject = ?", (calls, subject))
    if not connection.execute("DELETE FROM subject_calls WHERE subject = ? AND calls = 0", (subject,)).rowcount:
        return None
    statement = "DELETE FROM subject WHERE id = ? RETURNING digests, server, full, tool"
    digests, *shared = connection.execute(statement, (subject,)).fetchone()
    statement = "DELETE FROM digest WHERE value = ? AND place = ? AND owner = ? AND role = ? AND scheme = ?"
    connection.executemany(statement, _digest_rows("calls", subject, orjson.loads(digests)))
    server, full, tool = shared
    return server, full, tool


def _digest_rows(place: str, owner: int, digests: Digests) -> list[_DigestRow]:
    return [(digest_key(value), place, owner, role, scheme) for role, scheme, value in digests if value]


def drop_marks(connection: sqlite3.Connection, numbers: Iterable[int]) -> None:
    """Remove the index entries of calls."""
    gone = defaultdict[int, set[int]](set)
    for number in numbers:
        era, offset = divmod(number, STORE_ERA_RECORDS)
        gone[era].add(offset)
    of_era = "FROM mark WHERE id BETWEEN ?1 << 8 AND ?1 << 8 | 255"
    for era, offsets in gone.items():
        changed = []
        for number, entries in connection.execute(f"SELECT id, entries {of_era}", (era,)):
            kept = b"".join(_ENTRY.pack(*entry) for entry in _ENTRY.iter_unpack(entries) if entry[1] not in offsets)
            if len(kept) < len(entries):
                changed.append((kept, number))
        connection.executemany("UPDATE mark SET entries = ? WHERE id = ?", changed)
        for column, (width, _) in _ERA_COLUMNS.items():
            number = _column_id(column, era)
            values = bytearray(*connection.execute(_ENTRIES, (number,)).fetchone())
            for offset in offsets:
                values[offset * width : (offset + 1) * width] = bytes(width)
            connection.execute("UPDATE era_column SET entries = ? WHERE id = ?", (bytes(values), number))
        connection.execute(f"DELETE {of_era} AND entries = x''", (era,))
        gone_era = f"DELETE FROM era WHERE id = ?1 AND NOT EXISTS (SELECT 1 {of_era})"  # noqa: S608
        if connection.execute(gone_era, (era,)).rowcount:
            columns = [(_column_id(column, era),) for column in _ERA_COLUMNS]
            connection.executemany("DELETE FROM era_column WHERE id = ?", columns)
