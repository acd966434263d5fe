"""Publishes calls at a steady rate, or reads their evidence: the two ends between which latency is measured.

A call carries the time of its publication in its ``tool_call_id``, which evidence repeats: nobody need match
records. Both ends run on the machine's one clock, in processes of their own, on confluent-kafka, so that they cost
little.

    python -m bench.latency_client publish BOOTSTRAP TOPIC SECONDS CALLS_PER_S SERVERS
    python -m bench.latency_client read BOOTSTRAP TOPIC SECONDS > latencies.json
"""

from __future__ import annotations

import re
import sys
import time

import orjson
from confluent_kafka import Consumer, Producer, TopicPartition

_TICK_S = 0.002
_SENT_NS = re.compile(rb'"tool_call_id":"call-(\d+)"')


def call_at(number: int, sent_ns: int, servers: int) -> bytes:
    """Return a call of about the size of a fleet's, on servers that ``tests.support.fleet`` names.

    Args:
        number: number of the call.
        sent_ns: when it is published, nanoseconds.
        servers: how many servers there are.
    """
    time_text = "2026-03-02T00:00:00.000000Z"
    return orjson.dumps(
        {
            "specversion": "1.0",
            "type": "mcp.tools.call.observed",
            "source": "urn:assay-stream:observer:latency",
            "id": f"call-{sent_ns}-{number}",
            "time": time_text,
            "datacontenttype": "application/json",
            "data": {
                "server_id": f"server-{number % servers}",
                "observer_id": f"observer-{number % 2}",
                "tool_name": f"tool_{number % 3}",
                "tool_call_id": f"call-{sent_ns}",
                "trace_id": f"{number:032x}",
                "decision": "allow",
                "reason_code": "P_POLICY_ALLOW",
                "args_hash": f"sha256:{number:064x}",
                "result_hash": f"sha256:{number + 1:064x}",
                "policy_digest": f"sha256:{7:064x}",
                "ok": True,
                "timing": {"started_at": time_text, "ended_at": time_text, "duration_ms": number % 50},
                "actor": {"kind": "agent", "agent_id": f"agent-{number % 9}"},
                "side_effect": "READ",
                "delegation_depth": 1,
            },
        }
    )


def publish(bootstrap: str, topic: str, seconds: float, calls_per_s: float, servers: int) -> None:
    """Publish at a steady rate; prints how many calls that were."""
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 2, "acks": "all", "partitioner": "murmur2_random"}
    producer = Producer(settings)
    started_s = time.monotonic()
    sent = 0
    while (since_s := time.monotonic() - started_s) < seconds:
        for _ in range(int(since_s * calls_per_s) - sent):
            now_ns = time.time_ns()
            producer.produce(topic, call_at(sent, now_ns, servers), f"server-{sent % servers}")
            sent += 1
        producer.poll(0)
        time.sleep(_TICK_S)
    producer.flush()
    print(sent)


def read(bootstrap: str, topic: str, seconds: float) -> None:
    """Read what is written from now on, committed only; prints pairs of sending time and latency, microseconds."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench-latency-reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    partitions = consumer.list_topics(topic).topics[topic].partitions
    assigned = []
    for number in partitions:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, number))
        assigned.append(TopicPartition(topic, number, end))
    consumer.assign(assigned)
    found: list[tuple[int, int]] = []
    ending_s = time.monotonic() + seconds
    print("ready", file=sys.stderr, flush=True)
    while time.monotonic() < ending_s:
        messages = consumer.consume(2_000, timeout=0.005)
        now_ns = time.time_ns()
        for message in messages:
            match = _SENT_NS.search(message.value())
            if match is not None:
                sent_ns = int(match[1])
                found.append((sent_ns // 1_000, (now_ns - sent_ns) // 1_000))
    consumer.close()
    sys.stdout.buffer.write(orjson.dumps(found))


def main() -> None:
    """Be one of the two."""
    what, bootstrap, topic, seconds, *rest = sys.argv[1:]
    if what == "publish":
        publish(bootstrap, topic, float(seconds), float(rest[0]), int(rest[1]))
    else:
        read(bootstrap, topic, float(seconds))


if __name__ == "__main__":
    main()
