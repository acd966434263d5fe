"""Parts of the topics, over brokers in memory."""

# ruff: noqa: ARG002 - the signatures are the client's

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError

from assay_stream.config import Settings, load_settings
from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.files.seal_files import LogName
from assay_stream.kafka import ranges
from assay_stream.kafka.connection import FetchedRecord
from assay_stream.kafka.ranges import KafkaLogs, LogRanges, marked, set_aside_place
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import Headers, Origin, Record, Role, rejected, set_aside_error
from tests.support.seals import TOPIC, some_records

SETTINGS = load_settings()
CALLS = topic_names(SETTINGS)[Role.CALLS]


class Broker:
    """Partitions of the call topic: offsets that hold records, where each begins and ends."""

    def __init__(self) -> None:
        self.offsets = {0: [2, 3, 5, 6], 1: [], 2: [0]}
        self.firsts = {0: 2, 1: 4, 2: 0}
        self.ends = {0: 8, 1: 4, 2: 1}
        self.running = 0

    async def list_topics(self) -> list[str]:
        """Names."""
        return [CALLS]

    async def describe_topics(self, names: list[str]) -> list[dict[str, Any]]:
        """Partitions."""
        return [{"topic": name, "partitions": [{"partition": number} for number in self.ends]} for name in names]

    async def close(self) -> None:
        """Nothing to do."""


class Consumer:
    """A consumer of it; it hands out two records at a time, and passes over what is no record, as Kafka does."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._at: dict[TopicPartition, int] = {}

    async def start(self) -> None:
        """Count it."""
        self._broker.running += 1

    async def stop(self) -> None:
        """Count it."""
        self._broker.running -= 1

    async def beginning_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Where partitions begin."""
        return {place: self._broker.firsts[place.partition] for place in places}

    async def end_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Where they end."""
        return {place: self._broker.ends[place.partition] for place in places}

    async def offsets_for_times(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, Any]:
        """The first record of a time, which is its offset in seconds."""
        found = {}
        for place, time_ms in times.items():
            later = [at for at in self._broker.offsets[place.partition] if at * 1_000 >= time_ms]
            found[place] = FetchedRecord(CALLS, place.partition, later[0], 0, b"", b"", ()) if later else None
        return found

    def assign(self, places: list[TopicPartition]) -> None:
        """Nothing to do."""

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Go there."""
        self._at[place] = offset

    async def position(self, place: TopicPartition) -> int:
        """Where it is."""
        return self._at[place]

    async def getmany(self, place: TopicPartition, **_: Any) -> dict[TopicPartition, list[FetchedRecord]]:
        """What comes next."""
        left = [at for at in self._broker.offsets[place.partition] if at >= self._at[place]][:2]
        self._at[place] = left[-1] + 1 if left else self._broker.ends[place.partition]
        return {place: [FetchedRecord(CALLS, place.partition, at, at * 1_000, b"k", b"v%d" % at, ()) for at in left]}


SET_ASIDE = Origin(CALLS, 0, 3)


async def read_set_aside(_: Settings) -> frozenset[Origin]:
    """One record of the deployment was set aside."""
    return frozenset({SET_ASIDE})


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    """The brokers that the module reaches."""
    made = Broker()

    async def start_admin(*_: Any, **__: Any) -> Broker:
        return made

    monkeypatch.setattr("assay_stream.kafka.connection.start_admin", start_admin)
    monkeypatch.setattr(ranges, "reading_consumer", lambda _, **__: Consumer(made))
    monkeypatch.setattr(ranges, "read_set_aside", read_set_aside)
    return made


async def read(logs: LogRanges, number: int, first: int = 0) -> list[int]:
    """The offsets of what a partition gives."""
    return [record.origin.offset async for batch in logs.read(Role.CALLS, number, first=first) for record in batch]


async def test_a_partition_is_read_to_where_it_ended(broker: Broker) -> None:
    """From its beginning or from an offset on; what is written after it was opened is not read."""
    async with LogRanges(SETTINGS, [Role.CALLS]) as logs:
        broker.offsets[0].append(9)
        broker.ends[0] = 10
        assert logs.partitions(Role.CALLS) == [0, 1, 2]
        assert logs.starts() == {(CALLS, 0): 2, (CALLS, 1): 4, (CALLS, 2): 0}
        assert [await read(logs, number) for number in range(3)] == [[2, 3, 5, 6], [], [0]]
        assert [await read(logs, 0, first) for first in (1, 3, 4, 7, 8, 99)] == [
            [2, 3, 5, 6],
            [3, 5, 6],
            [5, 6],
            [],
            [],
            [],
        ]


async def test_a_topic_is_read_partition_by_partition(broker: Broker) -> None:
    """With the records' places, keys and times; every consumer is let go."""
    async with LogRanges(SETTINGS, [Role.CALLS]) as logs:
        records = [record async for record in logs.records(Role.CALLS)]
    assert [record.origin[1:] for record in records] == [(0, 2), (0, 3), (0, 5), (0, 6), (2, 0)]
    assert (records[0].role, records[0].key, records[0].value, records[0].timestamp_ms) == (
        Role.CALLS,
        b"k",
        b"v2",
        2_000,
    )
    assert broker.running == 0
    # What the deployment refused unread is refused by whoever reads it again.
    assert [record.origin for record in records if record.set_aside] == [SET_ASIDE]


async def test_a_time_gives_an_offset_before_which_nothing_is_as_late(broker: Broker) -> None:
    """Where nothing is, the end."""
    async with LogRanges(SETTINGS, [Role.CALLS]) as logs:
        assert [await logs.offset_at(Role.CALLS, 0, time_ms) for time_ms in (0, 4_000, 6_001)] == [2, 5, 8]


async def test_a_missing_topic_is_named(broker: Broker) -> None:
    """With the command that creates it; nothing is left running."""
    with pytest.raises(ConfigurationError, match="topics apply") as caught:
        async with LogRanges(SETTINGS, [Role.CALLS, Role.EVIDENCE]):
            raise AssertionError("it was opened")
    assert caught.value.code == "topic_missing"
    assert broker.running == 0


PLACE = Origin("mcp.tools.list", 1, 7)


def a_rejected(*own: tuple[str, bytes]) -> Record:
    """The rejected copy of a record that was set aside, with headers of its own."""
    output = rejected(Record(Role.SNAPSHOTS, PLACE, b"k", b"v", own), set_aside_error())
    return Record(Role.REJECTED, Origin("assay.rejected", 0, 0), output.key, output.value, output.headers)


def test_the_copy_names_the_place() -> None:
    """Headers that the record had before do not count."""
    assert set_aside_place(a_rejected()) == PLACE
    assert set_aside_place(a_rejected(("error.code", b"not_json"), ("error.offset", b"9"))) == PLACE


@pytest.mark.parametrize(
    "headers", [(), (("error.code", b"not_json"),), (("error.code", b"record_kills_worker"), ("error.topic", b"t"))]
)
def test_other_copies_name_none(headers: Headers) -> None:
    """Refused for something else, or not by us."""
    assert set_aside_place(a_rejected()._replace(headers=headers)) is None


def test_records_are_marked_by_their_place() -> None:
    """And no other."""
    records = [Record(Role.SNAPSHOTS, PLACE._replace(offset=offset), None, None) for offset in (6, 7)]
    assert [record.set_aside for record in marked(records, frozenset({PLACE}))] == [False, True]
    assert marked(records, frozenset()) == records


SEALED = some_records(*range(3, 10))


class Ranges:
    """Partition 0 has records, two a batch; partition 1 is empty."""

    error: Exception | None = None
    is_stuck = False
    entered = 0
    reading = 0

    def __init__(self, settings: Settings, roles: list[Role]) -> None:
        assert roles == [Role.EVIDENCE]
        self.bounds = {(TOPIC, 0): (3, 10), (TOPIC, 1): (0, 0)}

    async def __aenter__(self) -> Ranges:
        Ranges.entered += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        Ranges.entered -= 1

    async def read(self, role: Role, number: int, **_: object) -> AsyncGenerator[list[Record], None]:
        """The batches."""
        if Ranges.error is not None:
            raise Ranges.error
        Ranges.reading += 1
        try:
            if Ranges.is_stuck:
                await asyncio.sleep(3_600)
            for at in range(0, 0 if number else len(SEALED), 2):
                yield SEALED[at : at + 2]
        finally:
            Ranges.reading -= 1


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaLogs]:
    """The evidence of two partitions."""
    monkeypatch.setattr(ranges, "LogRanges", Ranges)
    monkeypatch.setattr(Ranges, "error", None)
    monkeypatch.setattr(Ranges, "is_stuck", False)
    with asyncio.Runner() as runner, KafkaLogs(load_settings(connect_limit_s=1), Role.EVIDENCE, runner) as made:
        assert Ranges.entered == 1
        yield made
    assert (Ranges.entered, Ranges.reading) == (0, 0)


def test_a_log_can_be_read_several_times(logs: KafkaLogs) -> None:
    """Record by record."""
    assert logs.names() == [LogName(TOPIC, 0), LogName(TOPIC, 1)]
    for _ in range(2):
        assert list(logs.records(LogName(TOPIC, 0))) == SEALED
        assert list(logs) == SEALED, "all logs, one after the other"
    assert (logs.start(LogName(TOPIC, 0)), logs.start(LogName(TOPIC, 1))) == (3, 0)


def test_a_log_that_is_empty_or_not_there_has_no_records(logs: KafkaLogs) -> None:
    """Of another topic neither."""
    assert list(logs.records(LogName(TOPIC, 1))) == []
    assert list(logs.records(LogName("other", 0))) == []
    assert logs.start(LogName("other", 0)) == 0


def test_a_log_that_is_left_early_leaves_nothing_open(logs: KafkaLogs) -> None:
    """The fixture counts."""
    records = logs.records(LogName(TOPIC, 0))
    assert next(records) == SEALED[0]
    assert Ranges.reading == 1
    records.close()  # type: ignore[attr-defined]


def test_a_broker_that_fails_is_an_error_of_ours(logs: KafkaLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    """So is one that gives nothing for too long."""
    monkeypatch.setattr(Ranges, "error", KafkaConnectionError())
    with pytest.raises(OperatingError, match="brokers_failing"):
        list(logs.records(LogName(TOPIC, 0)))
    monkeypatch.setattr(Ranges, "error", None)
    monkeypatch.setattr(Ranges, "is_stuck", True)
    with pytest.raises(OperatingError, match="brokers_failing"):
        list(logs.records(LogName(TOPIC, 0)))
