"""What partitions of a worker have ready goes into one transaction, and what one of them spoils is not the others'."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError

from assay_stream.kafka.group_protocol import GroupMember
from assay_stream.kafka.shared_writer import SharedWriter

MEMBER = GroupMember("group", 1, "member")


class World:
    """Producers that note what is asked of them, and refuse what they are told to.

    Attributes:
        log: requests, each with the partition whose transactional id the producer has.
        refused: partitions whose offsets are refused.
        free: cleared to keep transactions under way.
        working: how many partitions have records in hand.
    """

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.refused: set[int] = set()
        self.free = asyncio.Event()
        self.free.set()
        self.working = 0
        self.writer = SharedWriter(
            lambda partition: Producer(self, partition),  # type: ignore[arg-type, return-value]
            working=lambda: self.working,
            topics={},
            partition_counts={},
        )

    async def write(self, partition: int, member: GroupMember = MEMBER) -> None:
        """Have something written for a partition."""
        offsets = {TopicPartition("calls", partition): (1, "")}
        await self.writer.write(partition, self.writer.gather(), offsets, member)

    async def write_all(self, *partitions: int) -> list[str]:
        """Have something written for partitions at once; returns what came of each."""
        ended = await asyncio.gather(*(self.write(each) for each in partitions), return_exceptions=True)
        return ["failed" if isinstance(each, Exception) else "written" for each in ended]

    def written(self) -> list[list[int]]:
        """The partitions of each transaction that was tried."""
        return [entry[2] for entry in self.log if entry[0] == "write"]


class Producer:
    """One of a world's producers."""

    def __init__(self, world: World, partition: int) -> None:
        self._world = world
        self._partition = partition

    def create_batch(self) -> None: ...

    async def start(self) -> None:
        self._world.log.append(("start", self._partition))

    async def stop(self) -> None:
        self._world.log.append(("stop", self._partition))

    async def abort(self) -> None:
        self._world.log.append(("abort", self._partition))

    async def write(self, _: object, offsets: dict[TopicPartition, object], __: GroupMember) -> None:
        partitions = sorted(tp.partition for tp in offsets)
        self._world.log.append(("write", self._partition, partitions))
        await self._world.free.wait()
        if self._world.refused.intersection(partitions):
            raise KafkaError("refused")


@pytest.fixture
async def world() -> World:
    """Three partitions are open."""
    world = World()
    for partition in range(3):
        await world.writer.open(partition)
    world.log.clear()
    return world


async def test_opening_takes_the_transactional_id_of_each_partition() -> None:
    """The first one's producer writes for all; the others have fenced whoever had the id, and end."""
    world = World()
    for partition in (2, 0):
        await world.writer.open(partition)
    await world.write(0)
    assert world.log == [("start", 2), ("start", 0), ("stop", 0), ("write", 2, [0])]


async def test_a_transaction_takes_all_that_became_ready_during_the_one_before(world: World) -> None:
    """However long that takes."""
    world.free.clear()
    first = asyncio.create_task(world.write(0))
    await asyncio.sleep(0.01)
    others = [asyncio.create_task(world.write(each)) for each in (1, 2)]
    await asyncio.sleep(0.01)
    world.free.set()
    await asyncio.gather(first, *others)
    assert world.written() == [[0], [1, 2]]


async def test_partitions_that_are_at_work_are_waited_for(world: World) -> None:
    """So they take their turns together: one transaction, and one fetch, for all of them."""
    world.working = 2
    first = asyncio.create_task(world.write(0))
    await asyncio.sleep(0.005)
    await asyncio.gather(first, world.write(1))
    assert world.written() == [[0, 1]]


async def test_what_is_worth_a_transaction_waits_for_nobody(world: World) -> None:
    """Under a backlog, partitions are written while others are worked on."""
    world.working = 3
    large = world.writer.gather()
    large.labels["evidence"] = 1_000
    writing = asyncio.create_task(world.writer.write(0, large, {TopicPartition("calls", 0): (1, "")}, MEMBER))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert world.written() == [[0]]
    await writing


async def test_a_partition_that_takes_long_holds_up_no_other(world: World) -> None:
    """The others go without it after a moment."""
    world.working = 2
    await asyncio.wait_for(world.write(0), 1.0)
    assert world.written() == [[0]]


async def test_a_partition_whose_transaction_is_refused_stops_no_other(world: World) -> None:
    """What was refused together is tried alone; those that can be written are together again afterwards."""
    world.refused = {1}
    assert await world.write_all(0, 1, 2) == ["failed"] * 3
    assert await world.write_all(0, 1, 2) == ["written", "failed", "written"]
    assert await world.write_all(0, 1, 2) == ["written", "failed", "written"]
    world.refused = set()
    assert await world.write_all(0, 1, 2) == ["written"] * 3
    assert await world.write_all(0, 1, 2) == ["written"] * 3
    assert world.written() == [[0, 1, 2], [0], [1], [2], [0, 2], [1], [0, 2], [1], [0, 1, 2]]


async def test_a_transaction_that_failed_is_ended_before_the_next(world: World) -> None:
    """By its producer, and by the next one of its transactional id."""
    world.refused = {2}
    await world.write_all(2)
    world.refused = set()
    await world.write_all(1)
    assert world.log == [("write", 0, [2]), ("abort", 0), ("stop", 0), ("start", 0), ("write", 0, [1])]


async def test_a_partition_is_opened_after_what_a_dropped_task_left_in_hand(world: World) -> None:
    """Its offsets may still be committed, and whoever opens the partition reads them next."""
    world.free.clear()
    dropped = asyncio.create_task(world.write(1))
    await asyncio.sleep(0.03)
    assert world.written() == [[1]]
    dropped.cancel()
    opening = asyncio.create_task(world.writer.open(1))
    await asyncio.wait_for(world.writer.open(2), 1.0)
    await asyncio.sleep(0.01)
    assert not opening.done()
    world.free.set()
    await asyncio.wait_for(opening, 1.0)


async def test_generations_are_not_written_together(world: World) -> None:
    """Brokers judge a transaction's offsets by one generation."""
    world.free.clear()
    past = asyncio.create_task(world.write(0))
    await asyncio.sleep(0.01)
    present = [asyncio.create_task(world.write(each, MEMBER._replace(generation=2))) for each in (1, 2)]
    late = asyncio.create_task(world.write(0))
    await asyncio.sleep(0.01)
    world.free.set()
    await asyncio.gather(past, *present, late)
    assert world.written() == [[0], [1, 2], [0]]


async def test_the_id_of_a_partition_that_was_let_go_is_used_no_more(world: World) -> None:
    """It may be another worker's, who would be fenced."""
    await world.writer.close(0)
    await world.write(2)
    assert world.log == [("stop", 0), ("start", 1), ("write", 1, [2])]


async def test_what_was_dropped_while_it_waited_is_not_written(world: World) -> None:
    """The partition has another owner."""
    world.free.clear()
    first = asyncio.create_task(world.write(0))
    await asyncio.sleep(0.01)
    dropped = asyncio.create_task(world.write(1))
    await asyncio.sleep(0.01)
    dropped.cancel()
    world.free.set()
    await asyncio.wait([first, dropped])
    await world.write(2)
    assert world.written() == [[0], [2]]


async def test_without_a_partition_there_is_no_producer(world: World) -> None:
    """Its connection ends with the last partition."""
    for partition in range(3):
        await world.writer.close(partition)
    assert world.log == [("stop", 0)]
    await world.writer.open(1)
    for partition in (1, 1):
        await world.write(partition)
    assert world.log[1:] == [("start", 1), ("write", 1, [1]), ("write", 1, [1])]


async def test_an_error_while_nothing_is_open_is_raised_where_it_is_waited_for(world: World) -> None:
    """A part of a partition that was closed meanwhile."""
    gathered = world.writer.gather()
    for partition in range(3):
        await world.writer.close(partition)
    with pytest.raises(IllegalStateError):
        await world.writer.write(0, gathered, {}, MEMBER)


async def test_a_partition_that_opens_ends_what_could_not_be_aborted(world: World) -> None:
    """Its offsets may be part of it: the id of the open transaction is taken again, whoever else is at work."""
    world.refused = {2}
    await world.write_all(2)
    await world.writer.close(2)
    world.log.clear()
    await world.writer.open(2)
    assert world.log == [("start", 2), ("stop", 0), ("start", 0), ("stop", 2)]
