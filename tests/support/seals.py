"""Evidence records and checkpoints over them, for tests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from assay_stream.files.lines import record_line
from assay_stream.model.checkpoint import Checkpoint, Sealed, encode, leaf_of, sealed
from assay_stream.model.record import Origin, Record, Role
from assay_stream.schemes import tlog
from assay_stream.seal.check import LogName, Report, check

TOPIC = "assay.tool.decision"
LOG_NAME = "example.com/test"
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
KEYS = tlog.keys_of([KEY.public_key()])


def a_record(offset: int) -> Record:
    return Record(
        role=Role.EVIDENCE,
        origin=Origin(TOPIC, 0, offset),
        key=b"s",
        value=b"v%d" % offset,
        headers=(("h", b"x"),),
        timestamp_ms=1_000 + offset,
    )


def some_records(*offsets: int) -> list[Record]:
    return [a_record(offset) for offset in offsets]


def a_seal(before: Checkpoint | None, records: list[Record], **changes: Any) -> Sealed:
    """Seal records behind a checkpoint; the rest is as in a topic of one partition."""
    leaves = [(record.origin.offset, leaf_of(record)) for record in records]
    fields = {"topic": TOPIC, "partition": 0, "partitions": 1, "siblings": (), "log_name": LOG_NAME, "key": KEY}
    fields |= {"sealed_at": "2026-03-01T10:00:00Z", "software": "test"} | changes
    return sealed(before, leaves, **fields)  # type: ignore[arg-type]


def checkpoints_of(
    *ranges: list[Record], keys: list[Ed25519PrivateKey] | None = None, topic: str = TOPIC, log_name: str = LOG_NAME
) -> list[bytes]:
    """The checkpoint records of some ranges that follow one another."""
    before: Checkpoint | None = None
    values = []
    for number, records in enumerate(ranges):
        key = (keys or [KEY] * len(ranges))[number]
        made = a_seal(before, records, topic=topic, key=key, log_name=log_name)
        before = made.checkpoint
        values.append(encode(made))
    return values


def checked(values: list[bytes], records: list[Record], *, keys: tlog.Keys = KEYS, log_start: int = 0) -> Report:
    report = Report(topic=TOPIC, partition=0)
    check(report, list(enumerate(values)), records, keys, log_start=log_start)
    return report


def lines_of(records: list[Record]) -> bytes:
    return b"".join(record_line(record) + b"\n" for record in records)


def checkpoint_records(
    values: list[bytes], *, topic: str = "assay.evidence.checkpoint", partition: int = 0
) -> list[Record]:
    return [
        Record(role=Role.CHECKPOINTS, origin=Origin(topic, partition, offset), key=None, value=value)
        for offset, value in enumerate(values)
    ]


def write_keys(folder: Path, name: str = "seal", key: Ed25519PrivateKey = KEY) -> None:
    (folder / f"{name}.pem").write_bytes(tlog.private_pem(key))
    (folder / f"{name}.pem").chmod(0o600)
    (folder / f"{name}.pub.pem").write_bytes(tlog.public_pem(key.public_key()))


class Fleet:
    """Evidence in several partitions, sealed as the sealer does it, and cut as somebody might.

    Args:
        partitions: how many.
        salt: what tells the records of one fleet from those of another.
    """

    def __init__(self, partitions: int, *, salt: bytes = b"") -> None:
        self.salt = salt
        self.records: list[list[Record]] = [[] for _ in range(partitions)]
        self.chains: list[list[Sealed]] = [[] for _ in range(partitions)]

    def grow(self, partition: int, count: int) -> None:
        log = self.records[partition]
        for offset in range(len(log), len(log) + count):
            value = b"%d/%d%s" % (partition, offset, self.salt)
            log.append(Record(Role.EVIDENCE, Origin(TOPIC, partition, offset), b"s", value, (), offset))

    def seal(self, partition: int) -> None:
        chain = self.chains[partition]
        before = chain[-1].checkpoint if chain else None
        first = 0 if before is None else before.last_offset + 1
        if records := self.records[partition][first:]:
            others = [other[-1] for number, other in enumerate(self.chains) if other and number != partition]
            siblings = [made.checkpoint.head for made in others]
            chain.append(a_seal(before, records, partition=partition, partitions=len(self.records), siblings=siblings))

    def cut(self, partition: int, *, checkpoints: int) -> None:
        """Take the last checkpoints of a partition away, and the evidence from there on."""
        chain = self.chains[partition]
        del chain[len(chain) - checkpoints :]
        del self.records[partition][chain[-1].checkpoint.last_offset + 1 if chain else 0 :]

    def logs(self) -> tuple[dict[LogName, list[Record]], dict[LogName, list[Record]]]:
        evidence = {LogName(TOPIC, number): log for number, log in enumerate(self.records) if log}
        chains = {
            LogName("assay.evidence.checkpoint", number): checkpoint_records(
                [encode(made) for made in chain], partition=number
            )
            for number, chain in enumerate(self.chains)
            if chain
        }
        return evidence, chains

    def write(self, folder: Path) -> None:
        """Write the files of an archive, in place of those that are there."""
        folder.mkdir(exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
        for kind, logs in zip(("evidence", "checkpoints"), self.logs(), strict=True):
            for name, records in logs.items():
                (folder / f"{kind}-{name.partition}.ndjson").write_bytes(lines_of(records))


class MemoryLogs:
    def __init__(self, logs: dict[LogName, list[Record]]) -> None:
        self.logs = logs

    def names(self) -> list[LogName]:
        return sorted(self.logs)

    def records(self, name: LogName) -> Iterator[Record]:
        return iter(self.logs.get(name, []))

    def start(self, name: LogName) -> int:
        return 0 if name else 1
