"""``topics restore`` on real Kafka: every record at its offset, and a deployment that goes on as if it was there."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from assay_stream.errors import ConfigurationError
from assay_stream.files.archive import GroupOffset
from assay_stream.files.spool import Log, LogSpool
from assay_stream.kafka.connection import open_admin
from assay_stream.kafka.exact import ExactWriter, Span, commit_group_offsets, group_offsets
from assay_stream.kafka.ranges import LogRanges
from assay_stream.model.record import Origin, Record, Role
from deploy.local.kafka import Broker
from tests.integration.restored import (
    RELEASE_NAME,
    RELEASES,
    archive,
    contents,
    emptied,
    keep_old_records,
    restore,
    story,
    tell,
    tell_and_archive,
)
from tests.integration.test_replay_compare import compared
from tests.integration.test_seal import Seals, sums
from tests.support.deployment import Deployment

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


async def write_with_gaps(deployment: Deployment) -> None:
    """Runs of records, single markers, aborted transactions of many, and beginnings that retention cut away."""
    choose = random.Random(5)
    async with AIOKafkaProducer(
        bootstrap_servers=deployment.bootstrap, acks="all", transactional_id=deployment.name
    ) as producer:
        for number in range(150):
            await producer.begin_transaction()
            for role in (Role.CALLS, Role.BINDINGS, Role.EVIDENCE):
                for count in range(choose.choice((0, 1, 1, 40))):
                    await producer.send(
                        deployment.topics[role],
                        key=b"%d" % choose.randrange(9),
                        value=None if count == 39 else b"%d" % number,
                        partition=choose.randrange(2),
                        timestamp_ms=1_700_000_000_000 + number,
                        headers=[("a", b"1"), ("none", None)],
                    )
            await producer.flush()
            await (producer.abort_transaction() if choose.random() < 0.3 else producer.commit_transaction())
    await deployment.send(Role.CALLS, [(b"%d" % number, b"plain") for number in range(30)])
    async with open_admin(deployment.settings) as admin:
        cut = {
            TopicPartition(deployment.topics[Role.CALLS], 0): RecordsToDelete(37),
            TopicPartition(deployment.topics[Role.EVIDENCE], 1): RecordsToDelete(1),
        }
        await admin.delete_records(cut)


async def written(deployment: Deployment) -> int:
    async with LogRanges(deployment.settings, [Role.CALLS, Role.EVIDENCE], isolation_level="read_uncommitted") as logs:
        return sum(end for _, end in logs.bounds.values())


async def test_every_record_gets_its_offset_through_kills(deployment: Deployment, tmp_path: Path) -> None:
    """Behind every kind of gap, after each kill where it stopped; not into topics that hold anything else."""
    # Brokers look half a minute after their start for records to delete, and these are years old.
    await keep_old_records(deployment)
    await write_with_gaps(deployment)
    before = await contents(deployment)
    await archive(deployment, tmp_path / "all", "--all-topics")
    await emptied(deployment)
    [plan] = await restore(deployment, tmp_path / "all")
    assert await written(deployment) == 0, "a plan writes nothing"
    offsets = sum(end for _, end in before.bounds.values())
    cost = plan["left_to_write"]
    assert cost["records"] + cost["filler_records"] + cost["transactions"] == offsets

    kills = 0
    for share in (0.2, 0.5, 0.8):
        command = [sys.executable, "-m", "assay_stream", "topics", "restore", str(tmp_path / "all"), "--apply"]
        process = subprocess.Popen(command, env=os.environ | deployment.env, stdout=subprocess.DEVNULL)
        total = sum(end for (topic, _), (_, end) in before.bounds.items() if topic.endswith((".call", ".decision")))
        while process.poll() is None and await written(deployment) < share * total:
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        kills += process.wait(10) == -signal.SIGKILL
    assert kills >= 2, "the kills hit no work: the test proves too little"
    plan, done = await restore(deployment, tmp_path / "all", "--apply")
    assert plan["left_to_write"]["records"] < cost["records"], "it continues"
    assert done == {"restored": cost["records"]}
    assert await contents(deployment) == before
    again, _ = await restore(deployment, tmp_path / "all", "--apply")
    assert again["left_to_write"] == {"records": 0, "record_bytes": 0, "filler_records": 0, "transactions": 0}

    await deployment.send(Role.CALLS, [(b"1", b"another")])
    refused = await asyncio.to_thread(deployment.run, "topics", "restore", str(tmp_path / "all"), "--apply")
    assert refused.returncode == 2
    assert "target_not_empty" in refused.stderr


async def check_going_on(deployment: Deployment, seals: Seals) -> None:
    """A replay and the seals fit what was restored; a worker that goes on joins and alerts of nothing twice."""
    code, rows, _ = await compared(deployment, seals.folder / "restored")
    assert code == 0, rows
    await deployment.output_of("verify", "--from-kafka")
    assert sums(await seals.verify("--key", "seal.pub.pem"), "unsealed", "faults_count") == [0, 0]
    worker = await deployment.ready_worker()
    await tell(deployment, story()[1], 1_000)
    assert await asyncio.to_thread(worker.terminate) == 0
    evidence = await deployment.read(Role.EVIDENCE)
    calls = Counter(json.loads(record.value or b"")["id"] for record in evidence)
    assert len(calls) == len(evidence) == len(await deployment.read(Role.CALLS))
    created = Counter(
        alert["finding_info"]["uid"]
        for alert in (json.loads(record.value or b"") for record in await deployment.read(Role.ALERTS))
        if alert["activity_name"] == "Create"
    )
    assert set(created.values()) == {1}
    await deployment.output_of("verify", "--from-kafka")
    code, rows, _ = await compared(deployment, seals.folder / "gone-on")
    assert code == 0, rows


async def test_a_restored_deployment_goes_on(deployment: Deployment, tmp_path: Path) -> None:
    """From all topics: nothing is joined or alerted of twice, seals go on, and a replay has no differences."""
    seals = Seals(deployment, tmp_path)
    await tell_and_archive(deployment, tmp_path / "all", seals)
    before = await contents(deployment)
    assert before.records[Role.REROUTED]
    await emptied(deployment)
    await restore(deployment, tmp_path / "all", "--apply")
    assert await contents(deployment) == before
    await check_going_on(deployment, seals)
    await seals.run("--key", "seal.pem", "--once")
    assert sums(await seals.verify("--key", "seal.pub.pem"), "unsealed", "faults_count") == [0, 0]


async def test_what_was_erased_from_an_archive_is_not_restored(deployment: Deployment, tmp_path: Path) -> None:
    """Stubs stand at the offsets of what was there: seals hold, checks say by which record, and a worker goes on."""
    seals = Seals(deployment, tmp_path)
    await tell_and_archive(deployment, tmp_path / "before", seals)
    scope = ("--server-id", "server-0", "--to-time", "2026-04-01T00:00:00Z", "--reason", "request 17", "--id", "one")
    await deployment.output_of("evidence", "erase", *scope)
    await archive(deployment, tmp_path / "all", "--all-topics")
    folders = ("--input", str(tmp_path / "all"), "--output", str(tmp_path / "erased"))
    counts = json.loads(await deployment.output_of("evidence", "erase-files", *folders))["erased"]
    await emptied(deployment)
    await restore(deployment, tmp_path / "erased", "--apply")
    evidence = await deployment.read(Role.EVIDENCE)
    left = [record for record in evidence if record.value is not None]
    assert 0 < len(left) < len(evidence)
    assert not any(b'"server_id":"server-0"' in (record.value or b"") for record in left)
    report = await seals.verify("--key", "seal.pub.pem")
    assert [row["erased"] for row in report["erasures"]] == [len(evidence) - len(left)], counts
    await deployment.ready_worker()
    calls = [(key, value) for role, key, value in story()[1] if role is Role.CALLS]
    await deployment.send(Role.CALLS, calls)
    await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) == len(evidence) + len(calls))
    await deployment.output_of("verify", "--from-kafka")


@pytest.mark.parametrize("folder", sorted(RELEASES.iterdir()), ids=lambda folder: folder.name)
async def test_the_topics_of_a_release_go_on_in_this_one(broker: Broker, tmp_path: Path, folder: Path) -> None:
    """Its dump is restored; a replay gives the evidence in it, its seals hold, and a worker goes on from its state."""
    with Deployment(broker.bootstrap, name=RELEASE_NAME) as deployment:
        seals = Seals(deployment, tmp_path)
        (tmp_path / "seal.pub.pem").write_bytes((folder / "seal.pub").read_bytes())
        await emptied(deployment)
        await restore(deployment, folder, "--apply")
        await check_going_on(deployment, seals)


async def test_from_the_inputs_alone_a_worker_derives_the_same_evidence(deployment: Deployment, tmp_path: Path) -> None:
    """Byte for byte, since it names the same offsets; what else cannot be restored is named before."""
    worker = await deployment.ready_worker()
    await tell(deployment, story()[0], 0)
    assert await asyncio.to_thread(worker.terminate) == 0
    before = await contents(deployment)
    await archive(deployment, tmp_path / "inputs")
    await emptied(deployment)
    plan, _ = await restore(deployment, tmp_path / "inputs", "--apply")
    assert any(text.startswith("seals: ") for text in plan["not_restored"])
    worker = await deployment.ready_worker()
    await tell(deployment, [], 0)
    after = await contents(deployment)
    for role in (Role.CALLS, Role.SNAPSHOTS, Role.CONTROL):
        assert after.records[role] == before.records[role]
    values = [sorted(record.value or b"" for record in each.records[Role.EVIDENCE]) for each in (before, after)]
    assert values[0] == values[1]


async def alter(deployment: Deployment, role: Role, **config: str) -> None:
    named = {name.replace("_", "."): value for name, value in config.items()}
    async with open_admin(deployment.settings) as admin:
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, deployment.topics[role], named)])


async def test_nothing_is_written_where_a_topic_would_hold_something_else(deployment: Deployment) -> None:
    """Times, sizes and ages that a topic does not take, partitions that are not there, and other records."""
    topic = deployment.topics[Role.CALLS]
    record = Record(Role.CALLS, Origin(topic, 0, 2), b"key", b"value" * 300, timestamp_ms=1_700_000_000_000)
    spans = {Log(Role.CALLS, topic, number): Span(0, 3 if number == 0 else 0) for number in range(4)}
    with LogSpool() as spool:
        spool.add(record)
        spool.finish()

        async def refusal(spans: dict[Log, Span] = spans) -> str:
            async with open_admin(deployment.settings) as admin:
                with pytest.raises(ConfigurationError) as refused:
                    await ExactWriter(deployment.settings, spool, spans).examine(admin)
            return str(refused.value)

        assert "retention.ms=-1" in await refusal()
        kept = {"retention_ms": "-1"}
        await alter(deployment, Role.CALLS, **kept, message_timestamp_type="LogAppendTime")
        assert "message.timestamp.type=CreateTime" in await refusal()
        await alter(deployment, Role.CALLS, **kept, max_message_bytes="1000")
        assert "max.message.bytes" in await refusal()
        await alter(deployment, Role.CALLS, **kept)
        assert "has 4 partitions and had 3" in await refusal(dict(list(spans.items())[:3]))
        await deployment.send(Role.CALLS, [(b"key", b"other")])
        assert "target_not_empty" in await refusal()


async def test_positions_of_groups_are_set_where_nobody_is_in_them(deployment: Deployment) -> None:
    """With their metadata; a member that is there would go on from its own position."""
    topic = deployment.topics[Role.ALERTS]
    noted = [GroupOffset(f"{deployment.name}-pager", topic, number, 7 + number, "mark") for number in range(2)]
    await commit_group_offsets(deployment.settings, noted)
    assert await group_offsets(deployment.settings, {topic}) == noted
    async with AIOKafkaConsumer(topic, bootstrap_servers=deployment.bootstrap, group_id=noted[0].group):
        with pytest.raises(ConfigurationError, match="group_in_use"):
            await commit_group_offsets(deployment.settings, noted)
