"""Parts of the topics of a deployment, over a cluster in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError

from assay_stream.config import load_settings
from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.join import Routing, reroute
from assay_stream.kafka import ranges
from assay_stream.kafka.ranges import KafkaLogs, LogRanges, marked, read_foreign, set_aside_place
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import TOPIC_NAMES, Headers, Origin, Record, Role, rejected, set_aside_error
from assay_stream.seal.check import LogName
from tests.support.events import SERVER
from tests.support.log_ranges import LogsInMemory, stand_in
from tests.support.memory_cluster import MemoryCluster

SETTINGS = load_settings(connect_limit_s=1)
CALLS, REJECTED = (topic_names(SETTINGS)[role] for role in (Role.CALLS, Role.REJECTED))
SET_ASIDE = Origin(CALLS, 0, 3)


class Brokers:
    def __init__(self) -> None:
        self.cluster = MemoryCluster({CALLS: 3, REJECTED: 1})
        for number, count in ((0, 7), (2, 1)):
            for offset in range(count):
                self.cluster.append(CALLS, number, b"k", b"v%d" % offset)
        self.cluster.delete_before(CALLS, 0, 2)
        copy = rejected(Record(Role.CALLS, SET_ASIDE, b"k", b"v3", ()), set_aside_error())
        self.cluster.append(REJECTED, 0, copy.key, copy.value, headers=copy.headers)
        self.running = 0
        self.error: Exception | None = None
        self.is_stuck = False

    async def list_topics(self) -> list[str]:
        return [CALLS, REJECTED]

    async def describe_topics(self, names: list[str]) -> list[dict[str, Any]]:
        counts = {CALLS: 3, REJECTED: 1}
        return [{"topic": name, "partitions": [{"partition": n} for n in range(counts[name])]} for name in names]

    async def close(self) -> None:
        """Nothing to do."""

    def consumer(self, *_: object, **options: Any) -> Any:
        consumer = self.cluster.consumer(**options)
        getmany, start, stop = consumer.getmany, consumer.start, consumer.stop

        async def started() -> None:
            self.running += 1
            await start()

        async def stopped() -> None:
            self.running -= 1
            await stop()

        async def fetch(*partitions: Any, **options: Any) -> Any:
            if self.error is not None:
                raise self.error
            if self.is_stuck:
                await asyncio.sleep(3_600)
            return await getmany(*partitions, **options | {"max_records": 2})

        consumer.start, consumer.stop, consumer.getmany = started, stopped, fetch
        return consumer


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Brokers]:
    made = Brokers()

    async def start_admin(*_: Any, **__: Any) -> Brokers:
        return made

    monkeypatch.setattr("assay_stream.kafka.connection.start_admin", start_admin)
    monkeypatch.setattr(ranges, "reading_consumer", made.consumer)
    yield made
    assert made.running == 0


async def offsets(logs: LogRanges, number: int, first: int = 0) -> list[int]:
    return [record.origin.offset async for batch in logs.read(Role.CALLS, number, first=first) for record in batch]


async def test_a_partition_is_read_to_where_it_ended(brokers: Brokers) -> None:
    """From its beginning or from an offset on; what is written after it was opened is not read."""
    async with LogRanges(SETTINGS, [Role.CALLS]) as logs:
        brokers.cluster.append(CALLS, 0, b"k", b"later")
        assert logs.partitions(Role.CALLS) == [0, 1, 2]
        assert logs.starts() == {(CALLS, 0): 2, (CALLS, 1): 0, (CALLS, 2): 0}
        assert [await offsets(logs, number) for number in range(3)] == [[2, 3, 4, 5, 6], [], [0]]
        assert [await offsets(logs, 0, first) for first in (1, 5, 7, 99)] == [[2, 3, 4, 5, 6], [5, 6], [], []]


async def test_a_topic_is_read_partition_by_partition(brokers: Brokers) -> None:
    """What the deployment refused unread is marked, and refused by whoever reads it again."""
    async with LogRanges(SETTINGS, [Role.CALLS]) as logs:
        records = [record async for record in logs.records(Role.CALLS)]
    assert [record.origin[1:] for record in records] == [(0, 2), (0, 3), (0, 4), (0, 5), (0, 6), (2, 0)]
    assert (records[0].role, records[0].key, records[0].value) == (Role.CALLS, b"k", b"v2")
    assert [record.origin for record in records if record.set_aside] == [SET_ASIDE]


async def test_a_time_after_all_records_gives_the_end(brokers: Brokers) -> None:
    """A time before them gives the first."""
    async with LogRanges(SETTINGS, [Role.CALLS]) as logs:
        assert [await logs.offset_at(Role.CALLS, 0, time_ms) for time_ms in (0, 1)] == [2, 7]


async def test_a_missing_topic_is_named(brokers: Brokers) -> None:
    """With the command that creates it, or that somebody else's has another name; nothing is left running."""
    with pytest.raises(ConfigurationError, match=r"topic_missing.*topics apply"):
        await LogRanges(SETTINGS, [Role.CALLS, Role.EVIDENCE]).__aenter__()
    with pytest.raises(ConfigurationError, match=r"topic_missing.*Check its name"):
        await anext(read_foreign(SETTINGS, "spans"))


async def test_the_topic_of_others_is_read_with_the_place_of_each_value(brokers: Brokers) -> None:
    found = [place async for place, _ in read_foreign(SETTINGS, CALLS)]
    assert found[0] == f"{CALLS}, partition 0, offset 2"
    assert found[-1] == f"{CALLS}, partition 2, offset 0"
    assert len(found) == 6


PLACE = Origin("mcp.tools.list", 1, 7)


def a_rejected(*own: tuple[str, bytes]) -> Record:
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
    records = [Record(Role.SNAPSHOTS, PLACE._replace(offset=offset), None, None) for offset in (6, 7)]
    assert [record.set_aside for record in marked(records, frozenset({PLACE}))] == [False, True]
    assert marked(records, frozenset()) == records


@pytest.fixture
def logs(brokers: Brokers) -> Iterator[KafkaLogs]:
    with asyncio.Runner() as runner, KafkaLogs(SETTINGS, [Role.CALLS], runner) as made:
        yield made


def test_a_log_can_be_read_several_times(logs: KafkaLogs) -> None:
    """Record by record; one that is empty or not there has none, one of another topic neither."""
    assert logs.names() == [LogName(CALLS, number) for number in range(3)]
    for _ in range(2):
        assert [record.origin.offset for record in logs.records(LogName(CALLS, 0))] == [2, 3, 4, 5, 6]
        assert len(list(logs.all())) == 6, "all logs, one after the other"
    assert [logs.start(name) for name in logs.names()] == [2, 0, 0]
    for name in (LogName(CALLS, 1), LogName("other", 0)):
        assert list(logs.records(name)) == []
        assert logs.start(name) == 0


def test_a_log_that_is_left_early_leaves_nothing_open(logs: KafkaLogs, brokers: Brokers) -> None:
    """Beside the consumer that knows where logs end."""
    records = logs.records(LogName(CALLS, 0))
    assert next(records).origin.offset == 2
    assert brokers.running == 2
    records.close()  # type: ignore[attr-defined]
    assert brokers.running == 1


def test_a_broker_that_fails_is_an_error_of_ours(logs: KafkaLogs, brokers: Brokers) -> None:
    """So is one that gives nothing for too long."""
    list(logs.all())
    for brokers.error, brokers.is_stuck in ((KafkaConnectionError(), False), (None, True)):
        with pytest.raises(OperatingError, match="brokers_failing"):
            list(logs.records(LogName(CALLS, 0)))


async def test_records_are_read_from_a_time_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first one of that time or later; what stands behind it is read whatever its time."""
    topic = TOPIC_NAMES[Role.EVIDENCE]
    records = [Record(Role.EVIDENCE, Origin(topic, 0, at), None, b"{}", (), ms) for at, ms in enumerate((1, 5, 3))]
    stand_in(monkeypatch, ranges, LogsInMemory(records))
    read = [record.timestamp_ms async for record in ranges.read_records(load_settings(), Role.EVIDENCE, since_ms=4)]
    assert read == [5, 3]


async def test_the_join_has_come_as_far_as_the_first_copy_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that was re-routed and has no evidence yet is not missing any; one that was joined counts as done."""
    names = topic_names(SETTINGS)
    routing = Routing(calls=2, bindings=2)
    calls = [Record(Role.CALLS, Origin(names[Role.CALLS], 1, offset), b"", b"") for offset in (3, 5, 7)]
    copies = [reroute(call, SERVER, routing) for call in calls]
    [number] = {copy.partition or 0 for copy in copies}
    placed = [
        Record(Role.REROUTED, Origin(names[Role.REROUTED], number, offset), copy.key, copy.value, copy.headers)
        for offset, copy in enumerate(copies)
    ]

    async def committed(*_: object) -> dict[tuple[str, int], int]:
        return {(names[Role.CALLS], 0): 4, (names[Role.CALLS], 1): 9, (names[Role.REROUTED], number): 1}

    monkeypatch.setattr(ranges, "committed_offsets", committed)
    logs = stand_in(monkeypatch, ranges, LogsInMemory(placed))
    assert await ranges.joined_offsets(SETTINGS) == {(names[Role.CALLS], 0): 4, (names[Role.CALLS], 1): 5}
    assert logs.opened
