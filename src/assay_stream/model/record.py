"""Records in, outputs out: the two types that enter and leave the core, and the partition that each belongs in.

They are named tuples: every call makes a few, and no other immutable type is created faster.

``murmur2`` as the Java client and aiokafka compute it (``org.apache.kafka.common.utils.Utils.murmur2``).
librdkafka clients agree only with ``partitioner=murmur2_random``.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from importlib.resources import files
from typing import Literal, NamedTuple

from assay_stream.errors import AssayStreamError, InputError
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.fields import OriginField

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2_partition(key: bytes, partitions: int) -> int:
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def home_of(server_id: str, partitions: int) -> int:
    """Return the partition for the records of a server; cached, since every call needs it."""
    if len(server_id) > DEFAULT_LIMITS.partition_name_chars_max:
        return murmur2_partition(server_id.encode(), partitions)
    return _cached_home(server_id, partitions)


@lru_cache(maxsize=DEFAULT_LIMITS.partitions_kept_max)
def _cached_home(server_id: str, partitions: int) -> int:
    return murmur2_partition(server_id.encode(), partitions)


def _murmur2(data: bytes) -> int:
    length = len(data)
    state = _SEED ^ length
    whole = length - length % 4
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ (word >> 24)) * _MULTIPLIER & _MASK
        state = (state * _MULTIPLIER & _MASK) ^ word
    if whole < length:
        state = (state ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    state = (state ^ (state >> 13)) * _MULTIPLIER & _MASK
    return state ^ (state >> 15)


Headers = tuple[tuple[str, bytes], ...]
"""Names and values. Of a record that was read a value may be ``None``, as Kafka allows: read ``value or b""``."""

SNAPSHOT_TYPE = "mcp.tools.list.observed"
LIST_CHANGED_TYPE = "mcp.tools.list_changed.observed"
CALL_TYPE = "mcp.tools.call.observed"
LOSS_TYPE = "mcp.observer.loss.observed"
"""Event types of what proxies publish. They are declared here because a proxy loads no models."""

OBSERVER_HEADER = "assay-observer-id"
"""Kafka header that names the observer, so that a record whose value cannot be read still has one."""

ERASED_HEADER, ERASED_LEAF_HEADER = "assay-erased-by", "assay-erased-leaf"
"""Headers of what stands in place of an erased record: the id of the erasure, and of evidence the hash of its leaf."""

LEFT_OUT_HEADER = "assay-left-out"
"""Header of a refused record that stands for others of its log, which are left out: how many, itself included."""

_HEADER_OVERHEAD_BYTES = 10
"""A header's two lengths are varints of up to five bytes each (KIP-98, record format v2)."""

made_of = tuple.__new__
"""Makes a named tuple of its fields, all of them and in order. Its own constructor is a Python function and takes
three times as long: this is for what is made for every call."""


class Role(StrEnum):
    """What a topic carries. Topic *names* are configuration; roles are what the core reasons about."""

    SNAPSHOTS = "snapshots"
    CONTROL = "control"
    CALLS = "calls"
    BINDINGS = "bindings"
    DEFINITIONS = "definitions"
    FINDINGS = "findings"
    ALERTS = "alerts"
    ALERT_STATES = "alert_states"
    EVIDENCE = "evidence"
    CHANGES = "changes"
    VERDICTS = "verdicts"
    REJECTED = "rejected"
    DEAD_LETTERS = "dead_letters"
    CHECKPOINTS = "checkpoints"
    AGENT_INPUTS = "agent_inputs"
    AGENT_STATES = "agent_states"
    INGESTED = "ingested"
    REROUTED = "rerouted"
    JOIN_PROGRESS = "join_progress"
    FORMATS = "formats"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """How the topic of a role is declared; ``topics.toml`` says what the fields mean."""

    name: str
    holds: str
    partitions: Literal["few", "many"]
    kept: Literal["year", "always", "compacted", "week", "year_of_writing"]
    margins: int
    together: str | None = None
    is_state: bool = False
    holds_input: bool = False
    of_agents: bool = False


_TABLE = tomllib.loads((files(__package__) / "topics.toml").read_text(encoding="utf-8"))
TOPICS: dict[Role, Topic] = {role: Topic(**_TABLE[role]) for role in Role}
TOPIC_NAMES: dict[Role, str] = {role: topic.name for role, topic in TOPICS.items()}
"""Topic name of every role, before an operator's prefix."""


class Origin(NamedTuple):
    """A record's place in its log, so that any output can name its inputs.

    Args:
        topic: name of the topic (or of the file, for a record read from a file).
        partition: partition number, 0 in a file.
        offset: offset in the partition, or line number counted from 0 in a file.
    """

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    def as_json(self) -> OriginField:
        return {"topic": self.topic, "partition": self.partition, "offset": self.offset}


Position = tuple[int, Origin]
"""Order of what was observed or set: event time in microseconds, then origin (ties: the later origin wins)."""


class Record(NamedTuple):
    """One record of an input log, exactly as it was read.

    Args:
        value: value bytes, or ``None`` for a tombstone.
        timestamp_ms: the log's timestamp of the record, milliseconds since the epoch.
        hold_expired: for a call: the operator's hold limit ended before the registry caught up.
        set_aside: it ended its worker too often, and is refused unread.
    """

    role: Role
    origin: Origin
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = 0
    hold_expired: bool = False
    set_aside: bool = False


def erased_by(record: Record) -> str | None:
    """Return the id of the erasure that a record says took its place, ``None`` for any other record."""
    if record.value is not None or record.key is not None:
        return None
    named = dict(record.headers).get(ERASED_HEADER)
    return None if named is None else named.decode("utf-8", "replace")


class Output(NamedTuple):
    """One record to be written.

    Args:
        value: value bytes, or ``None`` to delete the key from a compacted topic.
        timestamp_ms: event time for the log, milliseconds since the epoch.
        partition: partition number, or ``None`` for the partition of the key.
        label: what happened, for counters: ``bound:exact``, ``rejected:not_json``.
    """

    role: Role
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = 0
    partition: int | None = None
    label: str = ""


ERROR_HEADERS = ("error.code", "error.message", "error.topic", "error.partition", "error.offset")
"""What ``rejected`` puts behind a record's own headers, in this order."""


def size_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return the maximum size of a record's key, value and headers in a log, without the record's own overhead."""
    in_headers = sum(_HEADER_OVERHEAD_BYTES + len(name.encode()) + len(content or b"") for name, content in headers)
    return len(key or b"") + len(value or b"") + in_headers


def set_aside_error() -> InputError:
    return InputError(
        "record_kills_worker",
        "workers ended while they worked on this record, as often as they may try: find out why before it is "
        "published again",
    )


SET_ASIDE = set_aside_error().code
"""Code of a record that is refused unread."""


def rejected(record: Record, error: AssayStreamError) -> Output:
    """Return the rejected-topic copy of a record: original bytes, key and headers, and the reason for the refusal.

    Header names follow the style of Kafka's KIP-1034.
    """
    origin = record.origin
    why = (error.code, str(error), origin.topic, str(origin.partition), str(origin.offset))
    ours = tuple(
        (name, text.encode("utf-8", "backslashreplace")) for name, text in zip(ERROR_HEADERS, why, strict=True)
    )
    return Output(
        role=Role.REJECTED,
        key=record.key,
        value=record.value,
        headers=record.headers + ours,
        timestamp_ms=record.timestamp_ms,
        label=f"rejected:{error.code}",
    )
