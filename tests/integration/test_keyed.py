"""Calls keyed by server, on real Kafka: from the simple mode into it and back, each worker its share, kill -9."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiokafka.admin import NewTopic

from assay_stream.kafka.connection import start_admin
from assay_stream.model.partition import murmur2_partition
from assay_stream.model.record import Record, Role
from deploy.local.kafka import Broker
from tests.integration.test_exactly_once import publish, undisturbed, values
from tests.integration.test_worker import metric
from tests.support.deployment import Deployment, Worker
from tests.support.fleet import Fleet

pytestmark = pytest.mark.kafka

FEW, MANY = 4, 8
COUNTS = {"ASSAY_STREAM_INPUT_PARTITIONS": str(FEW), "ASSAY_STREAM_CALL_PARTITIONS": str(MANY)}
KEYED = {"ASSAY_STREAM_CALLS_KEYED_BY": "server"}


@pytest.fixture
async def simple(broker: Broker, request: pytest.FixtureRequest) -> AsyncIterator[Deployment]:
    """A deployment in the simple mode, its counts such that it could change."""
    made = Deployment(broker.bootstrap, name=request.node.name[:40].replace("[", "-").rstrip("]"), env=COUNTS)
    await made.apply_topics()
    try:
        yield made
    finally:
        made.stop_workers()


async def publish_misplaced(deployment: Deployment, fleet: Fleet) -> int:
    """Publish a fleet's history; a third of its calls under keys that say nothing of their server."""
    choose = random.Random(7)
    calls: list[tuple[bytes | None, bytes | None]] = []
    for role, key, value in fleet.history():
        if role is Role.CALLS:
            calls.append((b"%d" % choose.randrange(99) if choose.random() < 1 / 3 else key, value))
    await publish(deployment, replace(fleet, calls=0))
    await deployment.send(Role.CALLS, calls)
    return len(calls)


def by_partition(records: list[Record]) -> list[tuple[int, bytes]]:
    """Partition and bytes."""
    return sorted((record.origin.partition, record.value or b"") for record in records)


def loaded(worker: Worker) -> float:
    """How many servers a join worker holds."""
    return metric(worker, "assay_stream_state_entries", stage="join")


async def evidence_of(deployment: Deployment, count: int) -> list[Record]:
    """All evidence, once there is enough, and a little later: what comes twice shows."""
    await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) >= count, limit_s=120)
    await asyncio.sleep(1)
    return await deployment.read(Role.EVIDENCE, settled=True)


async def test_two_workers_a_kill_and_misplaced_calls_give_the_evidence_of_a_replay(simple: Deployment) -> None:
    """Nothing lost or doubled, byte for byte; `verify` finds nothing missing; both hold less than all servers."""
    fleet = Fleet(servers=40, observers=1, calls=6_000, changes=0)
    done = simple.run("topics", "migrate")
    assert done.returncode == 0, done.stderr
    registry = simple.start_worker("--role", "registry", "--role", "alerts")
    small = {"ASSAY_STREAM_BATCH_RECORDS_MAX": "60", **KEYED}
    # By rounds, the first of two takes even numbers, and so half of the bindings.
    workers = [simple.start_worker("--role", "join", **small) for _ in range(2)]
    for worker in (registry, *workers):
        await worker.wait_ready()
    calls = await publish_misplaced(simple, fleet)
    await simple.wait_until_written(Role.EVIDENCE, calls // 3)
    workers[0].kill()
    killed_at = len(await simple.read(Role.EVIDENCE))
    assert killed_at < calls, "the kill came after the last call: the test proves too little"
    workers[0] = simple.start_worker("--role", "join", **small)
    evidence = await evidence_of(simple, calls)
    assert set(Counter(json.loads(value)["data"]["tool_call_id"] for value in values(evidence)).values()) == {1}
    assert sorted(values(evidence)) == sorted((await undisturbed(simple))[Role.EVIDENCE])
    for record in evidence:
        assert record.origin.partition == json.loads(record.value or b"")["data"]["origin"]["partition"]
    copies = await simple_read(simple, Role.REROUTED)
    assert all(copy.origin.partition % FEW == server_partition(copy) for copy in copies)
    assert len(copies) > calls // 6
    verified = simple.run("verify", "--from-kafka", "--expect", "joined")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    # What a rebalance took away is dropped half a minute later.
    async with asyncio.timeout(120):
        while not all(0 < loaded(worker) < fleet.servers for worker in workers):
            await asyncio.sleep(0.5)


def server_partition(record: Record) -> int:
    """The partition of the bindings of the server that a call names."""
    return murmur2_partition(json.loads(record.value or b"")["data"]["server_id"].encode(), FEW)


async def simple_read(deployment: Deployment, role: Role) -> list[Record]:
    """What a topic of the keyed mode holds, whatever mode the deployment's own settings name."""
    keyed = Deployment(deployment.bootstrap, name=deployment.name, env={**COUNTS, **KEYED})
    return await keyed.read(role)


async def test_a_fleet_changes_over_and_back_while_it_works(simple: Deployment) -> None:
    """Workers are restarted one after the other, in both directions; calls are published all the time."""
    fleet = Fleet(servers=9, calls=900, changes=0)
    simple.start_worker("--role", "registry", "--role", "alerts")
    first = simple.start_worker("--role", "join")
    second = simple.start_worker("--role", "join")
    for worker in (first, second):
        await worker.wait_ready()
    calls = await publish_misplaced(simple, fleet)
    assert simple.run("topics", "migrate", "--disk-free-bytes", str(10**9)).returncode == 0
    for env in (KEYED, {}):
        for old in (first, second):
            assert await asyncio.to_thread(old.terminate) == 0
            new = simple.start_worker("--role", "join", **env)
            await new.wait_ready()
            if old is first:
                first = new
            else:
                second = new
        calls += await publish_more(simple, calls, 300)
    evidence = await evidence_of(simple, calls)
    assert len(evidence) == calls
    expected = await undisturbed(simple)
    assert sorted(values(evidence)) == sorted(expected[Role.EVIDENCE])
    assert await simple_read(simple, Role.REROUTED)


async def publish_more(deployment: Deployment, first: int, count: int) -> int:
    """Publish more calls, in any partition."""
    history = Fleet(servers=9, calls=count, changes=0, seed=first).history()
    calls = [(b"%d" % number, value) for number, (role, _, value) in enumerate(history) if role is Role.CALLS]
    await deployment.send(Role.CALLS, calls)
    return len(calls)


async def test_a_plan_names_each_step_and_a_migration_may_stop_anywhere(simple: Deployment) -> None:
    """What is there is kept, what is missing is created; at the end nothing is left to do."""
    await publish_misplaced(simple, Fleet(servers=5, calls=200, changes=0))
    before = by_partition(await simple.read(Role.CALLS))
    plan = json.loads(simple.run("topics", "plan", "--json").stdout)
    assert [step["by"] for step in plan["steps"]] == ["topics migrate", "topics migrate", "you", "you"]
    assert all(step["undo"] for step in plan["steps"])
    assert 0 < plan["calls_misplaced"] < plan["calls_looked_at"] == 200
    assert 0 < plan["disk_bytes_needed"] < plan.pop("disk_bytes_free")
    refused = simple.run("topics", "migrate", "--disk-free-bytes", "1")
    assert "disk_too_small" in refused.stderr
    still = json.loads(simple.run("topics", "plan", "--json").stdout)
    assert {name: still[name] for name in plan} == plan, "a refused migration changed something"
    # As an interruption between the two leaves it.
    keyed = Deployment(simple.bootstrap, name=simple.name, env={**COUNTS, **KEYED})
    admin = await start_admin(simple.settings)
    try:
        await admin.create_topics([NewTopic(keyed.topics[Role.JOIN_PROGRESS], MANY, 1)])
    finally:
        await admin.close()
    created = simple.run("topics", "migrate")
    assert created.stdout.count("created ") == 1, created.stderr
    assert f"created {keyed.topics[Role.REROUTED]}" in created.stdout
    again = simple.run("topics", "migrate")
    assert "nothing to create" in again.stdout
    assert by_partition(await simple.read(Role.CALLS)) == before
    assert "topics migrate" not in keyed.run("topics", "plan").stdout


async def test_a_fleet_whose_producers_are_right_has_nothing_left_to_do(simple: Deployment) -> None:
    """Exit code 5, and no question about disk."""
    await publish(simple, Fleet(servers=5, calls=50, changes=0))
    assert simple.run("topics", "migrate").returncode == 0
    done = simple.run("topics", "plan", **KEYED)
    assert done.returncode == 5
    assert "nothing to do" in done.stdout
    assert "0 of the latest 50" in done.stdout


async def test_counts_that_do_not_fit_are_refused_and_the_plan_says_what_to_do(broker: Broker) -> None:
    """By the worker, by `topics apply` and by `topics migrate`; the plan names a deployment beside it."""
    made = Deployment(broker.bootstrap, name="keyed-unfit")
    await made.apply_topics()
    try:
        plan = made.run("topics", "plan")
        assert plan.returncode == 1
        assert "ASSAY_STREAM_CALL_PARTITIONS=4" in plan.stdout
        assert "ASSAY_STREAM_TOPIC_PREFIX" in plan.stdout
        for command in (["topics", "migrate"], ["topics", "apply"]):
            refused = made.run(*command, **KEYED)
            assert refused.returncode
            assert "partitions_do_not_fit" in refused.stderr
        assert made.run("topics", "show").stdout.count("assay.call") == 0
    finally:
        made.stop_workers()


async def test_a_worker_names_what_is_missing(simple: Deployment) -> None:
    """The mode without its topics."""
    worker = simple.start_worker("--role", "join", **KEYED)
    assert await asyncio.to_thread(worker.process.wait, 60) != 0
    assert "topic_missing" in worker.tail()
    assert "assay.call.rerouted" in worker.tail()
