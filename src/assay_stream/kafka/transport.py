"""Transactional writer: commits batched outputs of the core together with input offsets."""

import asyncio
import gzip
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.producer.message_accumulator import BatchBuilder

from assay_stream.canonical.digest import sha256_of
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.partition import murmur2_partition
from assay_stream.model.record import Output, Role, size_bytes

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

    def __init__(
        self, create_batch: Callable[[], BatchBuilder], topics: Mapping[Role, str], partition_counts: Mapping[Role, int]
    ) -> None:
        self._create_batch = create_batch
        self._topics = topics
        self._partition_counts = partition_counts
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
                partition = murmur2_partition(output.key or b"", self._partition_counts[role])
            if (role, partition) != last:
                last = (role, partition)
                builders = self.batches.setdefault((self._topics[role], partition), [])
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
        producer: transactional, unstarted.
    """

    def __init__(
        self, producer: AIOKafkaProducer, *, topics: Mapping[Role, str], partition_counts: Mapping[Role, int]
    ) -> None:
        self._producer = producer
        self._topics = topics
        self._partition_counts = partition_counts

    async def open(self) -> None:
        await self._producer.start()

    def gather(self) -> Gathered:
        return Gathered(self._producer.create_batch, self._topics, self._partition_counts)

    async def write(
        self, gathered: Gathered, offsets: Mapping[TopicPartition, int], group_id: str, *, metadata: str = ""
    ) -> None:
        """Write outputs and commit input offsets in one transaction.

        Args:
            offsets: next offset to read of each input partition.
            group_id: owner of the offsets; no generation is needed, since the transactional id fences other owners.

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
        await producer.send_offsets_to_transaction(positions, group_id)
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
