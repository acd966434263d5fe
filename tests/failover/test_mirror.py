"""Fail-over to a cluster that MirrorMaker 2 keeps, where records have other offsets, as ``docs/failover.md`` has it."""

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from assay_stream.model.record import Origin, Record, Role
from assay_stream.verify.evidence import of_record, origin_in
from deploy.local.kafka import QUICK_START, Broker
from deploy.local.mirror import MirrorMaker
from tests.integration.test_seal import Seals, sums
from tests.support.deployment import Deployment
from tests.support.fleet import Fleet, Published

pytestmark = pytest.mark.kafka

MIRRORED = (Role.SNAPSHOTS, Role.CONTROL, Role.CALLS, Role.EVIDENCE, Role.CHECKPOINTS)
HISTORY = list(Fleet(servers=4, calls=2_000, changes=20, named_share=0.3, seed=5).history())
KEYS = ("--key", "seal.pub.pem")


@pytest.fixture
def backup() -> Iterator[Broker]:
    with Broker(options=QUICK_START) as running:
        yield running


async def publish(deployment: Deployment, history: list[Published], *, first: int = 0) -> None:
    """Publish what calls rest on, and then the calls, every tenth in any partition."""
    await deployment.publish(
        (role, b"%d" % (first + at) if role is Role.CALLS and at % 10 == 0 else key, value)
        for at, (role, key, value) in enumerate(history)
    )


def calls_named(evidence: list[Record]) -> Counter[Origin]:
    return Counter(call for record in evidence if (call := of_record(record).call) is not None)


def content(record: Record) -> tuple[object, ...]:
    return record.key, record.value, record.headers, record.timestamp_ms


async def until_mirrored(primary: Deployment, mirror: Deployment, roles: Sequence[Role]) -> None:
    """Wait until everything that is on the primary is on the mirror, where MirrorMaker creates the topics."""
    deadline = time.monotonic() + 90
    for role in roles:
        wanted = len(await primary.read(role))
        while True:
            assert time.monotonic() < deadline, f"{role} was not mirrored"
            try:
                async with asyncio.timeout(5):
                    if len(await mirror.read(role)) >= wanted:
                        break
            except TimeoutError:
                await asyncio.sleep(0.5)


async def restored(standby: Deployment) -> dict[str, Any]:
    """Restore the mirror, once it was found that nothing is written unless it is asked for."""
    told: list[dict[str, Any]] = []
    for options in ((), ("--drop-checkpoints", "--apply")):
        done = await asyncio.to_thread(standby.run, "topics", "restore-mirror", "primary", *options)
        told.append(json.loads(done.stdout.splitlines()[0]))
        refused = told[0]["checkpoints_dropped"] and not options
        assert done.returncode == (4 if refused else 0), done.stderr
        assert ("mirror_behind_seals" in done.stderr) == bool(refused)
    assert told[0] == told[1]
    return told[0]


async def lose(primary: Deployment, mirror: Deployment, seals: Seals, *, lagging: Sequence[Role]) -> None:
    """Mirror a primary, from some moment under load not all topics, and lose it with what it does meanwhile."""
    quarter = len(HISTORY) // 4
    worker = primary.start_worker(ASSAY_STREAM_BATCH_RECORDS_MAX="50")
    others = [role for role in MIRRORED if role not in lagging]
    slow, fast = (
        MirrorMaker(primary.bootstrap, mirror.bootstrap, topics=[primary.topics[role] for role in roles], name=name)
        for name, roles in (("slow", lagging), ("fast", others))
    )
    with slow, fast:
        await worker.wait_ready()
        await publish(primary, HISTORY[:quarter])
        await primary.wait_for(Role.EVIDENCE, lambda found: len(found) >= quarter // 2)
        await seals.run("--key", "seal.pem", "--once", "--every-records", "50")
        await until_mirrored(primary, mirror, MIRRORED)
        done = len(await primary.read(Role.EVIDENCE))
        await publish(primary, HISTORY[quarter : 2 * quarter], first=quarter)
        await primary.wait_until_written(Role.EVIDENCE, done + random.randrange(quarter))
        slow.kill()
        await publish(primary, HISTORY[2 * quarter : 3 * quarter], first=2 * quarter)
        await primary.wait_for(Role.EVIDENCE, lambda found: len(found) >= 2 * quarter)
        await seals.run("--key", "seal.pem", "--once", "--every-records", "50")
        await until_mirrored(primary, mirror, others)
    worker.kill()


@pytest.mark.timeout(300)
async def test_a_deployment_goes_on_where_its_mirror_ends(
    deployment: Deployment, backup: Broker, tmp_path: Path
) -> None:
    """Evidence before and after verifies and is not altered, the trees go on, and no call is joined twice."""
    path = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path if entry)
    seals = Seals(deployment, tmp_path)
    deployment.env["PYTHONPATH"] = path
    await seals.run("keygen", "--out", "seal.pem")
    mirror = Deployment(backup.bootstrap, name=f"primary.{deployment.name}")
    lagging = random.sample(MIRRORED, 2)
    await lose(deployment, mirror, seals, lagging=lagging)

    # Read as they are, mirrored records are not where evidence names them.
    before = {record.origin[1:]: content(record) for record in await deployment.read(Role.CALLS)}
    there = {record.origin[1:]: content(record) for record in await mirror.read(Role.CALLS)}
    mirrored = await mirror.read(Role.EVIDENCE)
    assert any(there.get(call[1:]) != before[call[1:]] for call in calls_named(mirrored))

    standby = Deployment(backup.bootstrap, name=deployment.name, env={"PYTHONPATH": path})
    await standby.apply_topics()
    told = await restored(standby)
    print(lagging, told)
    assert sorted(map(content, await standby.read(Role.EVIDENCE))) == sorted(map(content, mirrored))
    assert all(before[record.origin[1:]] == content(record) for record in await standby.read(Role.CALLS))
    seals.deployment = standby
    assert sums(await seals.verify(*KEYS), "faults_count") == [0]

    await standby.ready_worker()
    await publish(standby, HISTORY[3 * len(HISTORY) // 4 :], first=len(HISTORY))
    calls = {record.origin for record in await standby.read(Role.CALLS)}
    evidence = await standby.wait_for(Role.EVIDENCE, lambda found: calls_named(found).keys() >= calls)
    assert set(calls_named(evidence).values()) == {1}
    await seals.run("--key", "seal.pem", "--once")
    assert sums(await seals.verify(*KEYS), "unsealed", "faults_count") == [0, 0]
    await check_evidence(standby, evidence, lost=told["not_replicated"])
    standby.stop_workers()


async def check_evidence(standby: Deployment, evidence: list[Record], *, lost: dict[str, int]) -> None:
    """Each record holds, or rests on what was not replicated; if all was, a replay gives the same."""
    done = await asyncio.to_thread(standby.run, "verify", "--from-kafka", "--format", "json")
    summary = json.loads(done.stderr.splitlines()[-1])["summary"]
    print(summary)
    assert [summary["records"], summary["missing"], summary["pending"]] == [len(evidence), 0, 0]
    there = {record.origin for role in (Role.CALLS, Role.SNAPSHOTS) for record in await standby.read(role)}
    rests_on = {each.call: {each.call, origin_in(each.binding, "origin")} - {None} for each in map(of_record, evidence)}
    doubted = {Origin(**row["call"]) for row in map(json.loads, done.stdout.splitlines())}
    assert doubted == {call for call, named in rests_on.items() if not named <= there}
    assert bool(doubted) == bool(lost)
    if not lost:
        done = await asyncio.to_thread(standby.run, "compare", "--from-kafka", "--format", "json")
        assert [row for row in map(json.loads, done.stdout.splitlines()) if row.get("what") == "evidence"] == []
