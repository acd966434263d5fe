"""The sealer against a log in memory: ranges, going on, and the ways in which it ends."""

# ruff: noqa: ARG002 - the signatures are the client's

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError, KafkaError, ProducerFenced
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from assay_stream.config import load_settings
from assay_stream.errors import ConfigurationError, InputError, IntegrityError, OperatingError
from assay_stream.kafka import log as kafka_log
from assay_stream.kafka.connection import FetchedRecord
from assay_stream.model.record import Origin, Record, Role
from assay_stream.schemes import ed25519
from assay_stream.seal.checkpoint import decode
from assay_stream.worker import sealing
from assay_stream.worker.sealing import OpenRange, Sealer, SealPlan, check_siblings
from tests.support.kept import Kept
from tests.support.seals import KEY, KEYS, OTHER_KEY, TOPIC, Fleet, a_record, checked, checkpoints_of, some_records

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOME = TopicPartition(TOPIC, 0)


class Log:
    """One partition of evidence and its checkpoints, with the clients that reach them."""

    def __init__(self, records: Iterable[Record], values: Iterable[bytes] = ()) -> None:
        self.records = list(records)
        self.values = list(values)
        self.beginning = 0
        self.position_ = 0
        self.errors: list[KafkaError] = []
        self.opening_errors: list[KafkaError] = []
        self.quiet_polls = 0
        self._quiet = 0
        self.opened = 0
        self.closed = 0
        self.committed: list[int] = []

    @property
    def end(self) -> int:
        """Behind the last record, and the marker of its transaction."""
        return self.records[-1].origin.offset + 2 if self.records else 0

    # The consumer.
    async def start(self) -> None:
        """Nothing to do."""

    async def stop(self) -> None:
        """Nothing to do."""

    def assign(self, partitions: list[TopicPartition]) -> None:
        """There is one."""
        assert partitions == [HOME]

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go there."""
        self.position_ = offset

    async def position(self, partition: TopicPartition) -> int:
        """Where it is."""
        return self.position_

    async def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the log begins."""
        return {HOME: self.beginning}

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Where it ends."""
        return {HOME: self.end}

    async def getmany(self, *, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[FetchedRecord]]:
        """Nothing for some times, then all that there is."""
        if self._quiet:
            self._quiet -= 1
            return {}
        found = [record for record in self.records if record.origin.offset >= self.position_]
        self.position_ = max(self.position_, self.end)
        return {HOME: [FetchedRecord(*r.origin, r.timestamp_ms, r.key, r.value, r.headers) for r in found]}

    # The writer.
    async def open(self) -> None:
        """Count it."""
        self.opened += 1
        self._quiet = self.quiet_polls
        if self.opening_errors:
            raise self.opening_errors.pop(0)

    async def close(self) -> None:
        """Count it."""
        self.closed += 1

    def gather(self) -> Kept:
        """What takes the outputs."""
        return Kept()

    async def write(self, gathered: Kept, offsets: Mapping[TopicPartition, int], group_id: str) -> None:
        """Keep it, or fail."""
        if self.errors:
            raise self.errors.pop(0)
        [output] = gathered.outputs
        assert (output.role, output.partition, group_id) == (Role.CHECKPOINTS, 0, "assay-stream-seal")
        assert output.value is not None
        self.values.append(output.value)
        self.committed.append(offsets[HOME])

    async def last_record(self, consumer: object, role: Role, partition: TopicPartition) -> Record | None:
        """The last checkpoint. The producer was opened before."""
        assert self.opened > self.closed
        assert partition == TopicPartition("assay.evidence.checkpoint", 0)
        if not self.values:
            return None
        return Record(role, Origin(partition.topic, 0, len(self.values) - 1), None, self.values[-1])


class LogClients:
    """What reaches the log."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def consumer(self, **_: object) -> Log:
        """The log itself."""
        return self._log

    def producer(self, transactional_id: str) -> None:
        """The log's own writer takes its place."""


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_log, "_PAUSE_S", 0.0)


async def seal(
    log: Log,
    monkeypatch: pytest.MonkeyPatch,
    *,
    key: Ed25519PrivateKey = KEY,
    trusted: ed25519.Keys = KEYS,
    every_records: int = 3,
) -> None:
    """Seal what the log holds."""
    monkeypatch.setattr(sealing, "TransactionalWriter", lambda _, **__: log)
    monkeypatch.setattr(sealing, "read_last", log.last_record)
    plan = SealPlan(key=key, trusted=trusted, every_records=every_records, every_s=60.0, log_name="test", once=True)
    clients: Any = LogClients(log)
    sealer = Sealer(
        load_settings(), plan, partitions=1, clients=clients, now=lambda: datetime(2026, 3, 1, 10, tzinfo=UTC)
    )
    await sealer.run()
    assert log.opened == log.closed


async def test_everything_there_is_is_sealed_in_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """None larger than asked for, the last as large as it comes; a check finds that all of it holds."""
    log = Log(some_records(2, 3, 5, 6, 8, 9, 10))
    await seal(log, monkeypatch)
    assert [decode(value, KEYS).checkpoint.records for value in log.values] == [3, 3, 1]
    assert log.committed == [6, 10, 11]
    report = checked(log.values, log.records)
    assert (report.verified, report.unsealed, report.faults) == (7, 0, [])


async def test_the_next_run_goes_on_where_the_last_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sealed twice, and nothing new is written where nothing came."""
    log = Log(some_records(0, 1, 2))
    await seal(log, monkeypatch)
    await seal(log, monkeypatch)
    assert len(log.values) == 1
    log.records += some_records(4, 5)
    await seal(log, monkeypatch)
    assert [decode(value, KEYS).checkpoint.first_offset for value in log.values] == [0, 4]
    assert checked(log.values, log.records).verified == 5


async def test_a_new_key_continues_a_chain_that_it_is_told_to_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without being told it ends, and writes nothing."""
    log = Log(some_records(0, 1), checkpoints_of(some_records(0)))
    own = ed25519.keys_of([OTHER_KEY.public_key()])
    with pytest.raises(InputError, match=r"checkpoint_not_continued.*seal_key_unknown.*--also-trust"):
        await seal(log, monkeypatch, key=OTHER_KEY, trusted=own)
    assert len(log.values) == 1
    await seal(log, monkeypatch, key=OTHER_KEY, trusted=KEYS | own)
    assert checked(log.values, log.records, keys=KEYS | own).verified == 2


@pytest.mark.parametrize("value", [b"{", *checkpoints_of(some_records(0), topic="other")])
async def test_what_is_no_checkpoint_of_this_log_is_not_continued(
    value: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else wrote it: the message has its place."""
    with pytest.raises(InputError, match=r"checkpoint_not_continued.*offset 0 of assay.evidence.checkpoint"):
        await seal(Log(some_records(0, 1), [value]), monkeypatch)


async def test_evidence_that_is_shorter_than_what_is_sealed_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log made anew must not get a chain that seems to continue the old one."""
    log = Log(some_records(0, 1), checkpoints_of(some_records(*range(9))))
    with pytest.raises(IntegrityError, match=r"evidence_cut_off.*ends at offset 3 and is sealed up to 8"):
        await seal(log, monkeypatch)
    assert len(log.values) == 1


async def test_what_expired_before_it_was_sealed_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chain goes on at the start of the log."""
    log = Log([a_record(7)], checkpoints_of(some_records(0, 1)))
    log.beginning = 7
    await seal(log, monkeypatch)
    assert decode(log.values[-1], KEYS).checkpoint.first_offset == 7
    report = checked(log.values, log.records, log_start=7)
    assert (report.verified, report.expired, report.faults) == (1, 2, [])


async def test_a_failed_write_is_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the last checkpoint that stands, with a producer of its own."""
    log = Log(some_records(*range(7)))
    log.errors = [KafkaConnectionError(), KafkaConnectionError()]
    await seal(log, monkeypatch)
    assert log.opened == 3
    assert checked(log.values, log.records).verified == 7


@pytest.mark.parametrize("quiet_polls", [0, 2])
async def test_brokers_that_fail_for_too_long_end_it(quiet_polls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a number of failed writes in a row, also with polls between them that found nothing."""
    log = Log(some_records(0))
    log.quiet_polls = quiet_polls
    log.errors = [KafkaConnectionError()] * 20
    with pytest.raises(OperatingError, match="brokers_failing"):
        await seal(log, monkeypatch)
    assert log.opened == 11


async def test_a_producer_that_cannot_be_opened_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """And closed first."""
    log = Log(some_records(0))
    log.opening_errors = [KafkaConnectionError()]
    await seal(log, monkeypatch)
    assert (log.opened, len(log.values)) == (2, 1)


async def test_a_sealer_that_was_shut_out_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would shut the other one out in turn."""
    log = Log(some_records(0))
    log.errors = [ProducerFenced()]
    with pytest.raises(ConfigurationError, match="sealer_fenced"):
        await seal(log, monkeypatch)
    assert (log.opened, log.values) == (1, [])


@pytest.mark.parametrize(("checkpoints", "goes_on"), [(2, True), (1, False), (0, False)])
def test_a_sealer_does_not_go_on_where_a_sibling_knows_of_more(checkpoints: int, goes_on: bool) -> None:
    """Sealing on would heal the cut over: it ends, and names both partitions."""
    fleet = Fleet(2)
    for partition in (0, 0, 1):
        fleet.grow(partition, 2)
        fleet.seal(partition)
    left = fleet.chains[0][:checkpoints]
    writer: Any = None
    ranges = {
        0: OpenRange(partition=0, writer=writer, before=left[-1].checkpoint if left else None),
        1: OpenRange(partition=1, writer=writer, before=fleet.chains[1][-1].checkpoint),
    }
    if goes_on:
        check_siblings(ranges)
        return
    with pytest.raises(IntegrityError, match="partition 1 was sealed after 4 records of partition 0") as caught:
        check_siblings(ranges)
    assert caught.value.code == "checkpoints_cut_off"
