"""A flood of records of no use in one partition, measured beside the same partition with sound records."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from datetime import timedelta

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition

from assay_stream.kafka.connection import reading_consumer
from assay_stream.model.record import Role, home_of
from tests.support.deployment import Deployment, Worker
from tests.support.fleet import START, a_call_by, a_listing, server_name

pytestmark = pytest.mark.kafka

RECORDS = 1_500
"""Of each partition in each round."""

ROUNDS = 3
FLOODED, SOUND = 0, (1, 3)
SERVER_OF = {home: next(n for n in range(9) if home_of(server_name(n), 2) == home) for home in (0, 1)}
"""A server whose calls belong in even partitions, and one of odd ones."""
SHARE_MIN = 0.5
LIMIT_S = 200.0

POISON = [
    b'{"data": ' + b"x" * 1_000,
    b'{"data": {"a": 1, "a": 2}, "fill": "' + b"x" * 1_000 + b'"}',
    b"\xff" * 1_000,
    b"[" * 1_000,
    b'{"specversion": "1.0", "type": "of nobody", "fill": "' + b"x" * 1_000 + b'"}',
]
"""About as long as a call, each refused at another stage of reading."""


async def sound_rate(deployment: Deployment, worker: Worker, flood: list[bytes], first: int) -> float:
    """Records a second of the partitions with sound calls, while the other one has these records."""
    topic = deployment.topics[Role.EVIDENCE]
    consumer = reading_consumer(deployment.settings)
    await consumer.start()
    try:
        partitions = [TopicPartition(topic, number) for number in SOUND]
        before = await consumer.end_offsets(partitions)
        os.kill(worker.process.pid, signal.SIGSTOP)
        try:
            await fill(deployment, flood, first)
        finally:
            os.kill(worker.process.pid, signal.SIGCONT)
        started_s = time.monotonic()
        async with asyncio.timeout(LIMIT_S):
            while True:
                ends = await consumer.end_offsets(partitions)
                if all(ends[tp] - before[tp] >= RECORDS for tp in partitions):
                    return RECORDS * len(SOUND) / (time.monotonic() - started_s)
                await asyncio.sleep(0.01)
    finally:
        await consumer.stop()


async def fill(deployment: Deployment, flood: list[bytes], first: int) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=deployment.bootstrap, linger_ms=5)
    await producer.start()
    topic = deployment.topics[Role.CALLS]
    try:
        for number in range(RECORDS):
            calls = [call(1, first + number * 2 + index) for index in range(len(SOUND))]
            for partition, value in [(FLOODED, flood[number % len(flood)]), *zip(SOUND, calls, strict=True)]:
                await producer.send(topic, value, key=b"server-0", partition=partition)
    finally:
        await producer.stop()


def call(home: int, number: int) -> bytes:
    return a_call_by(SERVER_OF[home], 0, number, START + timedelta(minutes=1), f"snapshot-{home}")[2]


async def caught_up(deployment: Deployment, role: Role, count: int) -> None:
    """Wait until the flooded partition is done with too: the next round begins with nothing left."""
    consumer = reading_consumer(deployment.settings)
    await consumer.start()
    try:
        async with asyncio.timeout(LIMIT_S):
            topic = deployment.topics[role]
            numbers = [FLOODED] if role is Role.EVIDENCE else range(deployment.settings.input_partitions)
            partitions = [TopicPartition(topic, number) for number in numbers]
            while sum((await consumer.end_offsets(partitions)).values()) < count:
                await asyncio.sleep(0.05)
    finally:
        await consumer.stop()


async def test_a_flood_of_poison_leaves_sound_partitions_at_least_half_their_speed(deployment: Deployment) -> None:
    """Side by side in one run, the better of several rounds: what else the machine does only takes away."""
    deployment.env["ASSAY_STREAM_SESSION_TIMEOUT_MS"] = "60000"
    worker = deployment.start_worker()
    await worker.wait_ready()
    for home, server in SERVER_OF.items():
        role, key, value = a_listing(server, 0, 0, home, START)
        await deployment.send(role, [(key, value)])
    sound = [call(0, 10_000_000 + number) for number in range(100)]
    await sound_rate(deployment, worker, sound, 0)
    await caught_up(deployment, Role.EVIDENCE, RECORDS)
    ratios = []
    for number in range(1, ROUNDS + 1):
        beside_sound = await sound_rate(deployment, worker, sound, number * 1_000_000)
        await caught_up(deployment, Role.EVIDENCE, RECORDS * (number + 1))
        beside_poison = await sound_rate(deployment, worker, POISON, number * 1_000_000 + 500_000)
        await caught_up(deployment, Role.REJECTED, RECORDS * number)
        ratios.append(beside_poison / beside_sound)
    print(f"share of the speed beside sound calls: {[round(ratio, 2) for ratio in ratios]}")
    assert max(ratios) >= SHARE_MIN, ratios
