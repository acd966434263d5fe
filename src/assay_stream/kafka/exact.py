"""Write logs so that every record gets the offset it had elsewhere, and consumer groups their positions.

1. Records that follow each other are written as they were, outside transactions: each takes the next offset.
2. A gap (transaction markers, and what was aborted, compacted or expired) is filled with aborted transactions. One of
   ``k`` filler records takes ``k + 1`` offsets: its marker takes one in each of its partitions, even if ``k`` is 0.
   Readers of committed records see nothing of it.
3. Whatever is killed leaves a beginning of what is wanted. An open transaction has fewer fillers than its gap has
   offsets, and the marker that ends it, whoever does, takes the next one.
4. A log begins where it began: what fills the gap before that is deleted, unless its topic is compacted.
5. The records present are compared before anything is written, and all of them again after writing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import Any, NamedTuple

from aiokafka.admin import RecordsToDelete
from aiokafka.errors import CommitFailedError
from aiokafka.structs import OffsetAndMetadata

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, InputError, IntegrityError
from assay_stream.files.archive import GroupOffset
from assay_stream.files.spool import Log, LogSpool
from assay_stream.kafka.aiokafka_private import add_to_transaction
from assay_stream.kafka.connection import (
    AIOKafkaAdminClient,
    AIOKafkaProducer,
    Consumer,
    KafkaClients,
    TopicPartition,
    open_admin,
    read,
    reading_consumer,
    record_of,
    writing_producer,
)
from assay_stream.kafka.publishing import disconnect
from assay_stream.kafka.ranges import open_reader, places_of
from assay_stream.kafka.topics import Operation, describe_config, require_operations
from assay_stream.model.record import Origin, Record, size_bytes


async def group_offsets(settings: Settings, topics: Collection[str]) -> list[GroupOffset]:
    """Return the committed offsets of all consumer groups in some topics.

    Raises:
        OperatingError: ``broker_unreachable``.
    """
    found = []
    async with open_admin(settings) as admin:
        for group in sorted({group for group, *_ in await admin.list_consumer_groups()}):
            for place, committed in sorted((await admin.list_consumer_group_offsets(group)).items()):
                if place.topic in topics and committed.offset >= 0:
                    found.append(
                        GroupOffset(group, place.topic, place.partition, committed.offset, committed.metadata or "")
                    )
    return found


async def commit_group_offsets(settings: Settings, offsets: Sequence[GroupOffset]) -> None:
    """Set the positions of groups that have no members.

    Raises:
        ConfigurationError: ``group_in_use``.
    """
    for group in sorted({each.group for each in offsets}):
        noted = {
            TopicPartition(each.topic, each.partition): OffsetAndMetadata(each.offset, each.metadata)
            for each in offsets
            if each.group == group
        }
        consumer = reading_consumer(settings, group_id=group)
        consumer.assign(list(noted))
        try:
            await consumer.start()
            await consumer.commit(noted)
        except CommitFailedError:
            raise ConfigurationError("group_in_use", f"processes are in the group {group}: stop them first") from None
        finally:
            await consumer.stop()


TRANSACTION_OFFSETS_MAX = 100_000
"""Offsets that one aborted transaction fills: a second or less, far from the transaction timeout."""
RUN_BYTES_MAX = 2 * 1_024 * 1_024
FILLERS_MAX = 100_000_000
"""Some minutes of writing, and a gigabyte until it is deleted or compacted."""
_BATCH_BYTES = 512 * 1_024
_RECORD_OVERHEAD_BYTES = 128
_AT_ONCE = 8
_LOOK_S = 0.002
_MARKER_LIMIT_S = 60.0


class Gap(NamedTuple):
    """Offsets that no record has.

    Args:
        timestamp_ms: of the record behind it, or else before it: a lookup by time finds what it would have found.
    """

    first: int
    offsets: int
    timestamp_ms: int


def steps(records: Iterable[Record], *, first: int, end: int) -> Iterator[list[Record] | Gap]:
    """Yield what to write so that a log that ends at ``first`` gets these records and ends at ``end``.

    Records at consecutive offsets come together, up to ``RUN_BYTES_MAX``.

    Raises:
        InputError: ``offsets_disagree`` if the records are not in order, or not within the two.
    """
    run: list[Record] = []
    run_bytes, at, timestamp_ms = 0, first, 0
    for record in records:
        offset, timestamp_ms = record.origin.offset, record.timestamp_ms
        if not at <= offset < end:
            topic, partition, _ = record.origin
            text = f"a record of partition {partition} of {topic} has offset {offset}, not one from {at} to {end - 1}"
            raise InputError("offsets_disagree", f"{text}: make the archive again")
        if run and (offset > at or run_bytes >= RUN_BYTES_MAX):
            yield run
            run, run_bytes = [], 0
        if offset > at:
            yield Gap(at, offset - at, timestamp_ms)
        run.append(record)
        run_bytes += size_bytes(record.key, record.value, record.headers)
        at = offset + 1
    if run:
        yield run
    if at < end:
        yield Gap(at, end - at, timestamp_ms)


def fillers(count: int) -> Iterator[int]:
    """Yield the number of filler records of each aborted transaction that fills a gap of ``count`` offsets."""
    while count > 0:
        taken = min(count, TRANSACTION_OFFSETS_MAX)
        yield taken - 1
        count -= taken


@dataclass(slots=True, kw_only=True)
class Cost:
    """What writing takes."""

    records: int = 0
    record_bytes: int = 0
    filler_records: int = 0
    transactions: int = 0

    def add(self, step: list[Record] | Gap) -> None:
        if isinstance(step, list):
            self.records += len(step)
            self.record_bytes += sum(size_bytes(each.key, each.value, each.headers) for each in step)
        else:
            # As many as ``fillers`` yields, not counted one by one: a gap can have any length.
            transactions = -(-step.offsets // TRANSACTION_OFFSETS_MAX)
            self.filler_records += step.offsets - transactions
            self.transactions += transactions


class Span(NamedTuple):
    """Where a log begins and ends.

    Args:
        begin: its first offset there is, with a record or not.
        end: the offset of its next record.
    """

    begin: int
    end: int


async def first_difference(
    found: AsyncIterable[Record], wanted: Iterator[Record], *, end: int, is_compacted: bool, keeps_time: bool
) -> int | None:
    """Return the first offset at which a log that ends at ``end`` is not the beginning of what is wanted, if any.

    Args:
        wanted: from the first offset that is compared.
        is_compacted: records may be missing whose key comes again, and tombstones.
        keeps_time: False where brokers replace timestamps.
    """
    superseded: dict[bytes | None, int] = {}

    def content(record: Record) -> tuple[Any, ...]:
        time_ms = record.timestamp_ms if keeps_time else 0
        return record.origin.offset, record.key, record.value, tuple(record.headers), time_ms

    following = next(wanted, None)

    def skip_to(offset: int) -> int | None:
        nonlocal following
        while following is not None and following.origin.offset < offset:
            if not is_compacted:
                return following.origin.offset
            superseded.pop(following.key, None)
            if following.value is not None:
                superseded[following.key] = following.origin.offset
            following = next(wanted, None)
        return None

    async for record in found:
        if (skipped := skip_to(record.origin.offset)) is not None:
            return skipped
        if following is None or content(following) != content(record):
            return record.origin.offset
        superseded.pop(record.key, None)
        following = next(wanted, None)
    skipped = skip_to(end)
    return min(superseded.values(), default=None) if skipped is None else skipped


class ExactWriter:
    """Writes the records of a spool into topics, each at the offset of its origin.

    Args:
        spool: finished; the origins of its records name the target topics.
        spans: all partitions of those topics.
        restamped: topics whose records may get the time of writing.
    """

    def __init__(
        self, settings: Settings, spool: LogSpool, spans: Mapping[Log, Span], *, restamped: Collection[str] = ()
    ) -> None:
        self._settings = settings
        self._spool = spool
        self._spans = dict(sorted(spans.items()))
        self._restamped = restamped
        self._configs: dict[str, Mapping[str, str]] = {}
        self._positions: dict[Log, int] = {}
        self._transactional = KafkaClients(settings)

    async def examine(self, admin: AIOKafkaAdminClient) -> Cost:
        """Return what is left to write, having found that it can be; writes nothing.

        Raises:
            ConfigurationError: ``topic_missing``, ``target_differs``, ``target_not_empty`` or ``too_many_fillers``.
        """
        await self._check_topics(admin)
        self._positions = await self._ends_compared()
        cost, faults = Cost(), list[str]()
        for log, span in self._spans.items():
            largest = 0
            first = self._positions[log]
            for step in steps(self._spool.read(log, after=first - 1), first=first, end=span.end):
                cost.add(step)
                for record in step if isinstance(step, list) else ():
                    largest = max(largest, size_bytes(record.key, record.value, record.headers))
            allowed = int(self._configs[log.topic]["max.message.bytes"])
            if largest + _RECORD_OVERHEAD_BYTES > allowed:
                faults.append(
                    f"{log.topic} takes {allowed} bytes and a record has {largest}: increase max.message.bytes"
                )
        if faults:
            raise ConfigurationError("target_differs", "; ".join(faults))
        if cost.filler_records > FILLERS_MAX:
            raise ConfigurationError(
                "too_many_fillers",
                f"the gaps take {cost.filler_records} filler records, over the limit of {FILLERS_MAX}: most are before "
                "the first record of a log, or were compacted away",
            )
        return cost

    async def _check_topics(self, admin: AIOKafkaAdminClient) -> None:
        topics = sorted({log.topic for log in self._spans})
        found = {places[0].topic: len(places) for places in await places_of(self._settings, topics)}
        cut = {log.topic for log, span in self._spans.items() if span.begin}
        needed = (Operation.READ, Operation.WRITE, Operation.DESCRIBE_CONFIGS)
        await require_operations(admin, {topic: (*needed, *[Operation.DELETE] * (topic in cut)) for topic in topics})
        faults = []
        for topic in topics:
            logs = [log for log in self._spans if log.topic == topic]
            config = self._configs[topic] = await describe_config(admin, topic) or {}
            if not config:
                faults.append(f"{topic}: this user may not describe its settings")
                continue
            if found[topic] != len(logs):
                faults.append(f"{topic} has {found[topic]} partitions and had {len(logs)}: create it again")
            if topic in self._restamped:
                continue
            if config["message.timestamp.type"] != "CreateTime":
                faults.append(f"{topic} replaces timestamps: set message.timestamp.type=CreateTime meanwhile")
            firsts_ms = [record.timestamp_ms for log in logs for record in islice(self._spool.read(log), 1)]
            kept_ms = int(config["retention.ms"]) if "delete" in config["cleanup.policy"] else -1
            if kept_ms >= 0 and min(firsts_ms, default=inf) < time.time() * 1_000 - kept_ms:
                faults.append(f"{topic} deletes records as old as its first: set retention.ms=-1 meanwhile")
        if faults:
            raise ConfigurationError("target_differs", "; ".join(faults))

    async def _ends_compared(self) -> dict[Log, int]:
        """Return where each log ends, having found it to be a beginning of what is wanted."""
        places = {log: _place(log) for log in self._spans}
        async with open_reader(self._settings) as reader:
            begins = await reader.beginning_offsets(list(places.values()))
            ends = await reader.end_offsets(list(places.values()))
            for log, place in places.items():
                await self._compare(reader, log, begins[place], ends[place])
        return {log: ends[place] for log, place in places.items()}

    async def _compare(self, reader: Consumer, log: Log, begin: int, end: int) -> None:
        place, span = _place(log), self._spans[log]
        if begin > span.begin or end > span.end:
            raise _not_empty(log, f"it has offsets {begin} to {end}, and is to have {span.begin} to {span.end}")
        differs = await first_difference(
            (record_of(log.role, message) async for batch in read(reader, place, begin, end) for message in batch),
            self._spool.read(log, after=begin - 1),
            end=end,
            is_compacted="compact" in self._configs[log.topic]["cleanup.policy"],
            keeps_time=log.topic not in self._restamped,
        )
        if differs is not None:
            raise _not_empty(log, f"offset {differs} is not what it is to be")

    # Writing

    async def write(self, admin: AIOKafkaAdminClient) -> None:
        """Write what ``examine`` found missing, and compare everything with what is wanted.

        After an interruption, examine and write again: it continues.

        Raises:
            ConfigurationError: ``target_not_empty`` if somebody else wrote to a topic.
            IntegrityError: ``wrong_offset``, likewise.
            KafkaError: it was interrupted.
        """
        left = [log for log, span in self._spans.items() if self._positions[log] < span.end]
        plain = writing_producer(self._settings, linger_ms=0, max_batch_size=_BATCH_BYTES)
        at_once = asyncio.Semaphore(_AT_ONCE)
        try:
            await plain.start()
            async with (
                open_reader(self._settings, isolation_level="read_uncommitted") as reader,
                asyncio.TaskGroup() as group,
            ):
                for log in left:
                    group.create_task(self._write_log(plain, reader, log, at_once))
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None
        finally:
            await disconnect(plain)
        # The fillers before the beginning of each log.
        begins = {
            _place(log): RecordsToDelete(span.begin)
            for log, span in self._spans.items()
            if span.begin and "delete" in self._configs[log.topic]["cleanup.policy"]
        }
        if begins:
            await admin.delete_records(begins)
        for log, end in (await self._ends_compared()).items():
            if end != self._spans[log].end:
                raise _wrong_offset(log, self._spans[log].end, end)

    async def _write_log(self, plain: Any, reader: Consumer, log: Log, at_once: asyncio.Semaphore) -> None:
        producer = self._transactional.producer(f"{self._settings.group_prefix}-restore-{log.topic}-{log.partition}")
        async with at_once:
            try:
                # Ends the transaction of an earlier attempt.
                await producer.start()
                first = await _end(reader, log)
                for step in steps(self._spool.read(log, after=first - 1), first=first, end=self._spans[log].end):
                    if isinstance(step, list):
                        await self._append(plain, log, step[0].origin.offset, step)
                    else:
                        await self._fill(producer, reader, log, step)
            finally:
                await disconnect(producer)

    async def _append(self, producer: Any, log: Log, at: int, records: Sequence[Record]) -> None:
        """Write records, of which the first is to get offset ``at``."""
        batches: list[Any] = []
        for record in records:
            fields = {"timestamp": record.timestamp_ms, "key": record.key, "value": record.value}
            if not batches or batches[-1].append(**fields, headers=list(record.headers)) is None:
                batches.append(producer.create_batch())
                # An empty batch takes any record.
                batches[-1].append(**fields, headers=list(record.headers))
        counts = [batch.record_count() for batch in batches]
        deliveries = [await producer.send_batch(batch, log.topic, partition=log.partition) for batch in batches]
        for count, written in zip(counts, await asyncio.gather(*deliveries), strict=True):
            if written.offset != at:
                raise _wrong_offset(log, at, written.offset)
            at += count

    async def _fill(self, producer: AIOKafkaProducer, reader: Consumer, log: Log, gap: Gap) -> None:
        place, at = _place(log), gap.first
        # Compacted topics refuse records without a key.
        filler = Record(log.role, Origin(log.topic, log.partition, at), b"", None, timestamp_ms=gap.timestamp_ms)
        for count in fillers(gap.offsets):
            await producer.begin_transaction()
            add_to_transaction(producer, place)
            if count:
                await self._append(producer, log, at, [filler] * count)
            await producer.abort_transaction()
            at += count + 1
            # Brokers answer before they write the marker.
            async with asyncio.timeout(_MARKER_LIMIT_S):
                while (end := await _end(reader, log)) < at:
                    await asyncio.sleep(_LOOK_S)
            if end > at:
                raise _wrong_offset(log, at, end)


def _place(log: Log) -> TopicPartition:
    return TopicPartition(log.topic, log.partition)


async def _end(reader: Consumer, log: Log) -> int:
    [end] = (await reader.end_offsets([_place(log)])).values()
    return int(end)


def _not_empty(log: Log, what: str) -> ConfigurationError:
    return ConfigurationError(
        "target_not_empty",
        f"partition {log.partition} of {log.topic} does not hold the beginning of what is to be written: "
        f"{what}. Delete the topic and create it again",
    )


def _wrong_offset(log: Log, wanted: int, found: int) -> IntegrityError:
    return IntegrityError(
        "wrong_offset",
        f"somebody else writes to partition {log.partition} of {log.topic}: offset {wanted} was due, and {found} was "
        "written. Stop every producer, delete the topic and create it again",
    )
