"""One worker restarts beside another: what the other owned goes on, with the producers it had."""

import asyncio
import json
import time
from datetime import timedelta

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from assay_stream.model.record import Role
from tests.support.deployment import Deployment, Worker, payload
from tests.support.fleet import START, a_call_by, a_listing

pytestmark = pytest.mark.kafka

STOP_LIMIT_S = 3.0
"""For how long evidence of partitions that stay may pause: a heartbeat and some requests, on a machine that is busy."""


async def epochs(deployment: Deployment) -> dict[str, int]:
    """The epoch of each transactional id of the deployment, as the coordinator has logged it."""
    async with AIOKafkaConsumer(bootstrap_servers=deployment.bootstrap) as consumer:
        found: dict[str, int] = {}
        topic = "__transaction_state"
        await consumer._client.add_topic(topic)
        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        for partition, end in (await consumer.end_offsets(partitions)).items():
            while await consumer.position(partition) < end:
                for records in (await consumer.getmany(partition, timeout_ms=100)).values():
                    for record in records:
                        if record.value is not None:
                            # Key: version, length and name; value: version, producer id and epoch.
                            found[record.key[4:].decode()] = int.from_bytes(record.value[10:12], "big")
    return {name: epoch for name, epoch in found.items() if name.startswith(f"{deployment.settings.group_prefix}-")}


def owned(worker: Worker, stage: str) -> set[int]:
    lines = [json.loads(line) for line in worker.log.read_text().splitlines() if '"partitions_assigned"' in line]
    return set(next(line["partitions"] for line in reversed(lines) if line["stage"] == stage))


async def put_calls(deployment: Deployment, stopping: asyncio.Event) -> int:
    count = 0
    while not stopping.is_set():
        calls = [a_call_by(0, 0, count + number, START + timedelta(seconds=1), None) for number in range(6)]
        await deployment.send(Role.CALLS, [(b"%d" % (count + i), call[2]) for i, call in enumerate(calls)])
        count += len(calls)
        await asyncio.sleep(0.05)
    return count


async def longest_pause(deployment: Deployment, partitions: set[int], stopping: asyncio.Event) -> float:
    """For how long no evidence came into any of some partitions, at most, seconds."""
    topic = deployment.topics[Role.EVIDENCE]
    watched = [TopicPartition(topic, number) for number in sorted(partitions)]
    async with AIOKafkaConsumer(bootstrap_servers=deployment.bootstrap) as consumer:
        longest, ends = 0.0, await consumer.end_offsets(watched)
        moved = dict.fromkeys(watched, time.monotonic())
        while not stopping.is_set():
            await asyncio.sleep(0.02)
            now, latest = time.monotonic(), await consumer.end_offsets(watched)
            longest = max(longest, *(now - at for at in moved.values()))
            moved |= {partition: now for partition in watched if latest[partition] > ends[partition]}
            ends = latest
    return longest


async def test_a_restart_stops_only_what_the_worker_owned(deployment: Deployment) -> None:
    """The other's partitions pause for a moment, keep their producers, and nothing is lost or doubled."""
    await deployment.put(a_listing(0, 0, 0, 1, START))
    staying = await deployment.ready_worker()
    leaving = await deployment.ready_worker()
    await staying.wait_ready()
    kept = {stage: owned(staying, stage) for stage in ("registry", "join", "alerts")}
    assert {len(kept["registry"]), len(kept["alerts"])} == {1}
    assert len(kept["join"]) in (1, 2)
    stopping = asyncio.Event()
    publishing = asyncio.create_task(put_calls(deployment, stopping))
    await deployment.wait_until_written(Role.EVIDENCE, 60)
    before = await epochs(deployment)
    pausing = asyncio.create_task(longest_pause(deployment, kept["join"], stopping))
    for _ in range(2):
        assert await asyncio.to_thread(leaving.terminate) == 0
        leaving = await deployment.ready_worker()
        await staying.wait_ready()
    stopping.set()
    paused = await pausing
    assert paused < STOP_LIMIT_S
    assert {stage: owned(staying, stage) for stage in kept} == kept
    after = await epochs(deployment)
    moved = {name for name, epoch in after.items() if epoch != before[name]}
    stayed = {f"{deployment.settings.group_prefix}-{stage}-{number}" for stage in kept for number in kept[stage]}
    assert stayed <= before.keys()
    assert moved
    assert not moved & stayed
    calls = await publishing
    evidence = await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) >= calls)
    assert sorted(int(str(payload(one)["tool_call_id"])[5:]) for one in evidence) == list(range(calls))


def assignments(worker: Worker) -> int:
    return sum('"partitions_assigned"' in line for line in worker.log.read_text().splitlines())


async def test_a_named_worker_that_is_soon_back_disturbs_nobody(deployment: Deployment) -> None:
    """It gets the partitions it had, and the other one is assigned nothing anew (KIP-345)."""
    slow = {"ASSAY_STREAM_SESSION_TIMEOUT_MS": "30000"}
    names = ("first", "second")
    workers = [deployment.start_worker("--role", "join", ASSAY_STREAM_GROUP_INSTANCE_ID=name, **slow) for name in names]
    for worker in workers:
        await worker.wait_ready()
    async with asyncio.timeout(60):
        while sorted([*owned(workers[0], "join"), *owned(workers[1], "join")]) != [0, 1, 2, 3]:
            await asyncio.sleep(0.1)
    before, had = assignments(workers[1]), owned(workers[0], "join")
    assert await asyncio.to_thread(workers[0].terminate) == 0
    again = await deployment.ready_worker("--role", "join", ASSAY_STREAM_GROUP_INSTANCE_ID="first", **slow)
    calls = [a_call_by(0, 0, number, START + timedelta(seconds=1), None) for number in range(24)]
    await deployment.send(Role.CALLS, [(b"%d" % number, call[2]) for number, call in enumerate(calls)])
    await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) >= len(calls))
    assert owned(again, "join") == had
    assert assignments(workers[1]) == before
