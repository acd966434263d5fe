"""Transactional writer: commits batched outputs of the core together with input offsets, or the results of a replay."""

from __future__ import annotations

import asyncio
import gzip
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.producer.message_accumulator import BatchBuilder

from assay_stream.canonical.digest import sha256_of
from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.kafka.connection import open_admin, writing_producer
from assay_stream.kafka.publishing import send_all
from assay_stream.kafka.stage import Topology
from assay_stream.kafka.topics import create_topics, topic_names, topic_table
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.record import TOPIC_NAMES, Output, Role, murmur2_partition, size_bytes

_CLOSE_LIMIT_S = 10.0
_ERROR_HEADERS = 5
_REJECTED = Role.REJECTED
REJECTED_BYTES_MAX = DEFAULT_LIMITS.record_bytes_max + 512 * 1_024
"""Between the largest input and the limit of the rejected topic, which is a mebibyte above it."""


class Gathered:
    """The outputs of one transaction, copied into the batches to send, so that none has to be kept.

    Args:
        create_batch: creates a batch of the sending producer.

    Attributes:
        batches: by topic and partition.
        labels: number of outputs by label.
    """

    def __init__(self, create_batch: Callable[[], BatchBuilder], topology: Topology) -> None:
        self._create_batch = create_batch
        self._topology = topology
        self.batches: dict[tuple[str, int], list[BatchBuilder]] = {}
        self.labels: Counter[str] = Counter()

    def add(self, outputs: Sequence[Output]) -> None:
        self.labels.update([output.label for output in outputs])
        # Outputs of one place follow each other, by the thousand.
        last: tuple[Role | None, int | None] = (None, None)
        builders: list[BatchBuilder] = []
        for output in outputs:
            role, partition = output.role, output.partition
            if partition is None:
                partition = murmur2_partition(output.key or b"", self._topology.counts[role])
            if (role, partition) != last:
                last = (role, partition)
                builders = self.batches.setdefault((self._topology.names[role], partition), [])
            if role is _REJECTED:
                output = fitting(output)
            if not builders or not _append(builders[-1], output):
                builders.append(self._create_batch())
                if not _append(builders[-1], output):
                    raise AssertionError("an empty batch takes any record")


class TransactionalWriter:
    """Write outputs and input offsets of one input partition atomically.

    Opening it ends the transaction of the previous owner of its transactional id, and fences that owner for good.

    Args:
        group_id: owner of the offsets; no generation is needed, since the transactional id fences other owners.
        partition: makes its transactional id, with the group.
    """

    def __init__(self, topology: Topology, group_id: str, partition: int) -> None:
        self._topology = topology
        self._group_id = group_id
        self._producer = topology.clients.producer(f"{group_id}-{partition}")

    async def open(self) -> None:
        await self._producer.start()

    def gather(self) -> Gathered:
        return Gathered(self._producer.create_batch, self._topology)

    async def write(self, gathered: Gathered, offsets: Mapping[TopicPartition, int], *, metadata: str = "") -> None:
        """Write outputs and commit input offsets in one transaction.

        Args:
            offsets: next offset to read of each input partition.

        Raises:
            KafkaError: nothing was written; the writer must be closed.
        """
        batches = gathered.batches
        producer = self._producer
        await producer.begin_transaction()
        deliveries = [
            await producer.send_batch(batch, topic, partition=partition)
            for (topic, partition), builders in batches.items()
            for batch in builders
        ]
        positions = {tp: (offset, metadata) for tp, offset in offsets.items()}
        await producer.send_offsets_to_transaction(positions, self._group_id)
        await asyncio.gather(*deliveries)
        await producer.commit_transaction()

    async def close(self) -> None:
        """Close the connection; an open transaction is left for the next owner or the broker to end."""
        # A fenced or unreachable producer cannot flush. What matters has been committed or never will be.
        with suppress(KafkaError, TimeoutError, asyncio.TimeoutError):
            await asyncio.wait_for(self._producer.stop(), _CLOSE_LIMIT_S)


def fitting(output: Output, *, bytes_max: int = REJECTED_BYTES_MAX) -> Output:
    """Return a rejected copy that fits its topic.

    A record that was small on the wire, being compressed, can be larger than any topic takes as it is. Its copy
    holds the value compressed (``error.value.encoding: gzip``). If even that does not fit, it holds the value's
    digest (``error.value.omitted``): the original stands where the ``error.topic``, ``.partition`` and ``.offset``
    headers say.

    Args:
        bytes_max: bytes of key, value and headers that fit.
    """
    if size_bytes(output.key, output.value, output.headers) <= bytes_max:
        return output
    value = output.value or b""
    # No name and no time: the same value gives the same bytes.
    packed = output._replace(
        value=gzip.compress(value, mtime=0), headers=(*output.headers, ("error.value.encoding", b"gzip"))
    )
    if size_bytes(packed.key, packed.value, packed.headers) <= bytes_max:
        return packed
    why = tuple(header for header in output.headers if header[0].startswith("error."))
    omitted = ("error.value.omitted", str(sha256_of(value)).encode())
    return output._replace(key=None, value=None, headers=(*why[-_ERROR_HEADERS:], omitted))


def _append(builder: BatchBuilder, output: Output) -> bool:
    appended = builder.append(
        timestamp=output.timestamp_ms, key=output.key, value=output.value, headers=list(output.headers)
    )
    return appended is not None


_IN_FLIGHT_MAX = 5_000


def shadow_topics(settings: Settings, roles: Collection[Role], prefix: str) -> dict[Role, str]:
    """Return the prefixed result topics by role.

    Raises:
        ConfigurationError: ``live_topics`` if one of them is a topic of the deployment.
    """
    names = {role: prefix + TOPIC_NAMES[role] for role in roles}
    live = {*topic_names(settings).values(), *TOPIC_NAMES.values()}
    if live & set(names.values()):
        raise ConfigurationError(
            "live_topics", "with this prefix a replay would write to the live topics: choose another --topic-prefix"
        )
    return names


async def write_shadow(
    settings: Settings, topics: dict[Role, str], outputs: Iterable[Output], *, call_partitions: int
) -> None:
    """Write results to their topics, creating missing ones.

    Args:
        topics: from ``shadow_topics``.
        call_partitions: partition count of the replayed calls.

    Raises:
        OperatingError: ``broker_unreachable``, ``shadow_failed``.
    """
    counts = await _make_topics(settings, topics, call_partitions)
    producer = writing_producer(settings, linger_ms=20, max_batch_size=512 * 1_024)
    try:
        await producer.start()
        for some in _batched((_placed(output, counts) for output in outputs), _IN_FLIGHT_MAX):
            for failure in await send_all(producer, topics, some):
                if failure is not None:
                    raise failure
    except KafkaError as error:
        raise OperatingError(
            "shadow_failed", f"the brokers refused a result ({type(error).__name__}): replay again, with a new prefix"
        ) from None
    finally:
        await producer.stop()


def _batched(outputs: Iterable[Output], size: int) -> Iterator[list[Output]]:
    left = iter(outputs)
    while some := list(islice(left, size)):
        yield some


def _placed(output: Output, counts: Mapping[Role, int]) -> Output:
    fitted, count = fitting(output) if output.role is Role.REJECTED else output, counts[output.role]
    partition = murmur2_partition(fitted.key or b"", count) if fitted.partition is None else fitted.partition % count
    return fitted._replace(partition=partition)


async def _make_topics(settings: Settings, topics: dict[Role, str], call_partitions: int) -> dict[Role, int]:
    async with open_admin(settings) as admin:
        specs = {spec.role: spec for spec in topic_table(settings)}
        wanted = {role: specs[role].partitions for role in topics}
        wanted[Role.EVIDENCE] = max(wanted[Role.EVIDENCE], call_partitions)
        present = set(await admin.list_topics())
        missing = [
            replace(specs[role], name=name, partitions=wanted[role])
            for role, name in topics.items()
            if name not in present
        ]
        await create_topics(admin, settings, missing)
        described = await admin.describe_topics(list(topics.values()))
        counts = {topic["topic"]: len(topic["partitions"]) for topic in described}
        return {role: counts[name] or wanted[role] for role, name in topics.items()}
