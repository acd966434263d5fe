"""The ceiling of the machine: calls passed on to another topic with confluent-kafka, exactly once."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer

from bench.peers.environment import Environment

_BATCH_RECORDS = 10_000


def main() -> None:
    """Run until killed: a batch is read, written and committed in one transaction."""
    environment = Environment.read()
    consumer = Consumer(
        {
            "bootstrap.servers": environment.bootstrap,
            "group.id": environment.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": environment.bootstrap,
            "transactional.id": environment.group,
            "batch.size": 512 * 1_024,
            "queue.buffering.max.messages": 4 * _BATCH_RECORDS,
        }
    )
    producer.init_transactions()
    consumer.subscribe([environment.calls_topic])
    while True:
        messages = consumer.consume(_BATCH_RECORDS, timeout=0.1)
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            value = message.value().ljust(environment.record_bytes)
            producer.produce(environment.evidence_topic, value, message.key(), partition=message.partition())
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
        )
        producer.commit_transaction()


if __name__ == "__main__":
    main()
