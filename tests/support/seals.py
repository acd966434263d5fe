"""Evidence records and checkpoints over them, for tests."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from assay_stream.core.checkpoint import Checkpoint, encode, leaf_of, sealed
from assay_stream.core.record import Origin, Record, Role
from assay_stream.core.seal_check import Report, check
from assay_stream.forensics.record_line import record_line
from assay_stream.schemes import dsse

TOPIC = "assay.tool.decision"
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
KEYS = dsse.keys_of([KEY.public_key()])


def a_record(offset: int) -> Record:
    """A short evidence record."""
    return Record(
        role=Role.EVIDENCE,
        origin=Origin(TOPIC, 0, offset),
        key=b"s",
        value=b"v%d" % offset,
        headers=(("h", b"x"),),
        timestamp_ms=1_000 + offset,
    )


def some_records(*offsets: int) -> list[Record]:
    """Records at some offsets."""
    return [a_record(offset) for offset in offsets]


def checkpoints_of(
    *ranges: list[Record], keys: list[Ed25519PrivateKey] | None = None, topic: str = TOPIC
) -> list[bytes]:
    """The checkpoint records of some ranges that follow one another."""
    before: Checkpoint | None = None
    values = []
    for number, records in enumerate(ranges):
        made = sealed(
            before,
            [(record.origin.offset, leaf_of(record)) for record in records],
            topic=topic,
            partition=0,
            sealed_at="2026-03-01T10:00:00Z",
            key=(keys or [KEY] * len(ranges))[number],
            software="test",
        )
        before = made.checkpoint
        values.append(encode(made))
    return values


def checked(values: list[bytes], records: list[Record], *, keys: dsse.Keys = KEYS, log_start: int = 0) -> Report:
    """What a check finds."""
    report = Report(topic=TOPIC, partition=0)
    check(report, list(enumerate(values)), records, keys, log_start=log_start)
    return report


def lines_of(records: list[Record]) -> bytes:
    """Records as an archive holds them."""
    return b"".join(record_line(record) + b"\n" for record in records)


def checkpoint_records(values: list[bytes], *, topic: str = "assay.evidence.checkpoint") -> list[Record]:
    """Checkpoints as their topic holds them."""
    return [
        Record(role=Role.CHECKPOINTS, origin=Origin(topic, 0, offset), key=None, value=value)
        for offset, value in enumerate(values)
    ]


def write_keys(folder: Path, name: str = "seal", key: Ed25519PrivateKey = KEY) -> None:
    """The files of a key pair."""
    (folder / f"{name}.pem").write_bytes(dsse.private_pem(key))
    (folder / f"{name}.pem").chmod(0o600)
    (folder / f"{name}.pub.pem").write_bytes(dsse.public_pem(key.public_key()))
