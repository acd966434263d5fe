"""Whether a peer writes what we write: byte by byte, on a sample."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition

Place = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How many records of the sample are alike.

    Args:
        same: equal in every byte of key and value.
        older: differ since the call was bound to a list before the last; peers know the last only.
        different: differ in anything else.
    """

    same: int = 0
    older: int = 0
    different: int = 0


Sample = dict[Place, tuple[bytes | None, bytes]]


async def read_sample(bootstrap: str, topic: str, partitions: int, *, per_partition: int) -> Sample:
    """Return the first evidence of each partition of a topic, by where its call stood.

    Args:
        bootstrap: the broker, host:port.
        topic: the evidence topic.
        partitions: how many it has.
        per_partition: records of each at most.
    """
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
    await consumer.start()
    found: Sample = {}
    try:
        for number in range(partitions):
            partition = TopicPartition(topic, number)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            end = (await consumer.end_offsets([partition]))[partition]
            count = 0
            while count < per_partition and await consumer.position(partition) < end:
                for message in (await consumer.getmany(timeout_ms=200)).get(partition, []):
                    origin = orjson.loads(message.value)["data"]["origin"]
                    found[origin["partition"], origin["offset"]] = (message.key, message.value)
                    count += 1
                await asyncio.sleep(0)
    finally:
        await consumer.stop()
    return found


def compare(ours: Sample, theirs: Sample) -> Comparison:
    """Compare what both samples hold.

    Args:
        ours: evidence of assay-stream.
        theirs: evidence of a peer.
    """
    same = older = different = 0
    for place in ours.keys() & theirs.keys():
        if ours[place] == theirs[place]:
            same += 1
        elif _snapshot(ours[place][1]) != _snapshot(theirs[place][1]):
            older += 1
        else:
            different += 1
    return Comparison(same=same, older=older, different=different)


def _snapshot(value: bytes) -> object:
    return orjson.loads(value)["data"]["binding"].get("snapshot_id")
