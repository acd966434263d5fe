"""The binding topic read into a plain dictionary, once, before a peer starts: kinder to it than any table."""

from __future__ import annotations

from typing import Any

import orjson
from confluent_kafka import Consumer, TopicPartition


def load_bindings(bootstrap: str, topic: str) -> dict[str, dict[str, Any]]:
    """Return the last value of every key.

    Args:
        bootstrap: the broker, host:port.
        topic: a topic with one partition.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench-loading", "enable.auto.commit": False})
    partition = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(partition, timeout=10.0)
    consumer.assign([partition])
    found: dict[str, dict[str, Any]] = {}
    position = 0
    while position < end:
        for message in consumer.consume(10_000, timeout=1.0):
            found[message.key().decode()] = orjson.loads(message.value())
            position = message.offset() + 1
    consumer.close()
    return found
