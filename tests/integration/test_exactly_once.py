"""Promises under faults, on real Kafka with real worker processes."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Sequence

import pytest

from assay_stream import __version__
from assay_stream.model.cloudevents import event_time_us, read_event
from assay_stream.model.evidence import Producer
from assay_stream.model.record import Record, Role
from assay_stream.replay.run import Replay
from assay_stream.verify.alert_ledger import is_name_fold
from tests.support.deployment import Deployment
from tests.support.fleet import Fleet
from tests.support.replaying import spooled

pytestmark = pytest.mark.kafka

KILLS = 5


async def undisturbed(deployment: Deployment) -> dict[Role, list[bytes]]:
    return (await undisturbed_until(deployment))[0]


async def undisturbed_until(deployment: Deployment) -> tuple[dict[Role, list[bytes]], int]:
    """The same, and how far time comes in it: a refused record at the end of its log counts with its log time."""
    inputs: list[Record] = []
    for role in (Role.CONTROL, Role.SNAPSHOTS, Role.CALLS):
        inputs.extend(await deployment.read(role))
    outputs: dict[Role, list[bytes]] = {role: [] for role in Role}
    partitions = deployment.settings.input_partitions
    with spooled(inputs) as spool:
        replay = Replay(spool, producer=Producer(version=__version__), snapshot_partitions=partitions)
        for written in replay.steps():
            for output in written:
                outputs[output.role].append(output.value or b"")
        return outputs, replay.time_us


def values(records: Sequence[Record]) -> list[bytes]:
    return [record.value or b"" for record in records]


def of_one_server(alerts: Sequence[bytes]) -> list[bytes]:
    """Alerts but those of shadowed names, and what many of these are folded into: they tell of two servers.

    What they name beside their uid follows from which of the two was read first. What stands of them in the end is
    held by tests/property/test_shadowing_laws.py.
    """
    decoded = [(value, json.loads(value)) for value in alerts]
    return [
        value
        for value, alert in decoded
        if alert["finding_info"]["types"] != ["tool_shadowed"] and not is_name_fold(alert)
    ]


async def advance_time(deployment: Deployment, findings: int) -> None:
    """Let time come as far as the last record, as a replay does, once everything was found."""
    limit_s = time.monotonic() + 60
    while len(await findings_of(deployment)) < findings:
        assert time.monotonic() < limit_s
        await asyncio.sleep(0.2)
    times = [
        event_time_us(read_event(record))
        for role in (Role.CONTROL, Role.SNAPSHOTS, Role.CALLS)
        for record in await deployment.read(role)
    ]
    await deployment.tick(max(times))


async def findings_of(deployment: Deployment) -> list[Record]:
    written = await deployment.read(Role.FINDINGS, settled=True)
    return [record for record in written if b'"kind":"tick"' not in (record.value or b"")]


async def test_kill_9_in_mid_stream_leaves_exactly_one_evidence_record_per_call(deployment: Deployment) -> None:
    """Five kills: one record per call read committed, the undisturbed bytes, every alert once."""
    choose = random.Random(5)
    calls = await deployment.publish(Fleet(servers=9, calls=12_000, changes=60, seed=5).history())
    slow = {"ASSAY_STREAM_BATCH_RECORDS_MAX": "60"}
    worker = deployment.start_worker(**slow)
    done_at_kill = [0]
    for _ in range(KILLS):
        await deployment.wait_until_written(Role.EVIDENCE, done_at_kill[-1] + calls // (2 * KILLS))
        await asyncio.sleep(choose.random() * 0.05)
        worker.kill()
        done_at_kill.append(len(await deployment.read(Role.EVIDENCE)))
        worker = deployment.start_worker(**slow)
    assert sorted(set(done_at_kill)) == done_at_kill, "a kill hit no work: the test proves too little"
    assert done_at_kill[-1] < calls, "the last kill came after the last call: the test proves too little"

    evidence = await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) >= calls, limit_s=90)
    expected = await undisturbed(deployment)
    alerts_wanted = sorted(of_one_server(expected[Role.ALERTS]))
    await advance_time(deployment, len(expected[Role.FINDINGS]))
    alerts = await deployment.wait_for(Role.ALERTS, lambda records: set(alerts_wanted) <= set(values(records)))
    evidence = await deployment.read(Role.EVIDENCE)

    per_call = Counter(json.loads(value)["data"]["tool_call_id"] for value in values(evidence))
    assert len(per_call) == calls
    assert set(per_call.values()) == {1}
    assert sorted(values(evidence)) == sorted(expected[Role.EVIDENCE])
    assert sorted(values(await findings_of(deployment))) == sorted(expected[Role.FINDINGS])
    assert sorted(of_one_server(values(alerts))) == alerts_wanted
