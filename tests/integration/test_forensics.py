"""Looking back at a live run in Kafka: verify, compare, asof, timeline and trace, as an operator calls them."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import RecordsToDelete
from aiokafka.structs import TopicPartition

from assay_stream.kafka.connection import open_admin
from assay_stream.model.record import Role
from tests.support.controls import control_at
from tests.support.deployment import Deployment
from tests.support.fleet import START, a_call_by, a_listing

pytestmark = pytest.mark.kafka


def run(deployment: Deployment, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    """Exit code, the JSON lines on standard output, and standard error of a command."""
    done = deployment.run(*arguments)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


async def test_a_live_run_is_looked_back_at(deployment: Deployment) -> None:
    """All of a run holds and a replay agrees; what came late is named; what was deleted is said to be gone."""
    minute = timedelta(minutes=1)
    given = {"server_id": "server-0", "tool_name": "tool_0", "scheme": "assay.v1", "value": "0" * 64}
    pin = (Role.CONTROL, b"server-0", control_at(START + 0.5 * minute, "pin.set", 1, **given))
    await deployment.ready_worker()
    await deployment.put(a_listing(0, 0, 0, 1, START), pin, a_listing(0, 0, 1, 2, START + 2 * minute))
    calls = [a_call_by(0, 0, number * 3, START + number * minute, None) for number in range(4)]
    await deployment.put(*calls)
    await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) == 4)
    await deployment.wait_for(Role.ALERTS, lambda records: len(records) >= 2)

    code, found, summary = run(deployment, "verify", "--from-kafka", "--all", "--format", "json")
    assert (code, [judgement["status"] for judgement in found]) == (0, ["holds"] * 4), summary
    code, found, summary = run(deployment, "compare", "--from-kafka", "--format", "json")
    assert (code, found) == (0, []), summary
    assert json.loads(summary.splitlines()[-1])["summary"]["identical"]["evidence"] == 4

    await deployment.put(a_listing(0, 0, 2, 3, START + 1.5 * minute))
    await deployment.wait_for(Role.FINDINGS, lambda records: any(b"snapshot-3" in (r.value or b"") for r in records))
    code, found, summary = run(deployment, "verify", "--from-kafka", "--format", "json")
    assert (code, found) == (0, []), summary
    await deployment.put(a_listing(0, 0, 2, 4, START + 2.5 * minute))
    await deployment.wait_for(Role.FINDINGS, lambda records: any(b"snapshot-4" in (r.value or b"") for r in records))
    code, found, summary = run(deployment, "compare", "--from-kafka", "--format", "json")
    assert code == 1, summary
    [difference] = [row for row in found if row["what"] == "evidence"]
    assert difference["causes"] == ["late_snapshot"]
    code, found, summary = run(deployment, "verify", "--from-kafka", "--format", "json")
    assert (code, [judgement["status"] for judgement in found]) == (0, ["late"]), summary
    assert found[0]["left_out"] == difference["left_out"]

    await delete_snapshots(deployment)
    code, found, summary = run(deployment, "verify", "--from-kafka", "--format", "json")
    assert (code, {judgement["status"] for judgement in found}) == (3, {"gone"}), summary
    assert found[0]["missing"][0]["topic"] == deployment.topics[Role.SNAPSHOTS]


async def delete_snapshots(deployment: Deployment) -> None:
    async with open_admin(deployment.settings) as admin:
        records = await deployment.read(Role.SNAPSHOTS)
        ends = {record.origin[:2]: record.origin.offset + 1 for record in records}
        await admin.delete_records(
            {TopicPartition(*place): RecordsToDelete(before_offset=end) for place, end in ends.items()}
        )
    await asyncio.sleep(0.5)


async def test_calls_that_were_committed_without_evidence_are_missing_it(deployment: Deployment) -> None:
    """A call behind the join's offset is pending; once it is committed, its evidence is missing."""
    worker = await deployment.ready_worker()
    await deployment.put(a_listing(0, 0, 0, 1, START))
    await deployment.put(*(a_call_by(0, 0, number, START, None) for number in range(20)))
    await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) == 20)
    code, found, summary = run(deployment, "verify", "--from-kafka", "--format", "json")
    assert (code, found) == (0, []), summary
    assert worker.terminate() == 0
    await deployment.put(*(a_call_by(0, 0, number, START, None) for number in range(20, 23)))
    code, found, summary = run(deployment, "verify", "--from-kafka", "--format", "json")
    told = json.loads(summary.splitlines()[-1])["summary"]
    assert (code, found, told["missing"], told["pending"]) == (0, [], 0, 3), summary

    consumer = AIOKafkaConsumer(
        bootstrap_servers=deployment.settings.bootstrap_servers,
        group_id=f"{deployment.settings.group_prefix}-join",
        enable_auto_commit=False,
    )
    calls = await deployment.read(Role.CALLS)
    place = TopicPartition(calls[-1].origin.topic, calls[-1].origin.partition)
    consumer.assign([place])
    await consumer.start()
    await consumer.commit({place: calls[-1].origin.offset})
    await consumer.stop()
    code, found, summary = run(deployment, "verify", "--from-kafka", "--format", "json")
    told = json.loads(summary.splitlines()[-1])["summary"]
    assert (code, told["missing"], told["pending"]) == (1, 2, 1), summary
    assert {tuple(row["codes"]) for row in found} == {("evidence_missing",)}
    code, found, summary = run(deployment, "verify", "--from-kafka", "--expect", "all", "--format", "json")
    assert (code, len(found)) == (1, 3), summary
