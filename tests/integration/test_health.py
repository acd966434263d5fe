"""What health, readiness and metrics say while brokers die and return."""

import asyncio
import json
import time
from datetime import timedelta
from pathlib import Path

import pytest

from assay_stream.model.record import Role
from deploy.local.kafka import QUICK_START, Broker
from tests.support.deployment import Deployment, Worker
from tests.support.fleet import START, a_call_by, a_listing

pytestmark = pytest.mark.kafka

LIMIT_S = 120.0


async def until_ready(process: Worker, wanted: bool) -> dict[str, bool]:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        status, body = await asyncio.to_thread(process.get, "/readyz")
        if status and (status == 200) is wanted:
            stages: dict[str, bool] = json.loads(body)["stages"]
            return stages
        assert process.process.poll() is None, process.tail()
        await asyncio.sleep(0.1)
    raise AssertionError(f"not {'' if wanted else 'un'}ready after {LIMIT_S} s:\n{process.tail()}")


def a_sealer(deployment: Deployment, folder: Path) -> Worker:
    key = str(folder / "seal.pem")
    assert deployment.run("seal", "keygen", "--out", key).returncode == 0
    return deployment.start("seal", "--key", key, "--every-s", "0.2")


@pytest.mark.tier(name="outages")
async def test_the_pages_tell_the_truth_while_a_broker_dies_and_returns(tmp_path: Path) -> None:
    """Worker and sealer: ready, then unready with the brokers at fault but alive, then ready again."""
    with Broker(options=QUICK_START) as broker, Deployment(broker.bootstrap, name="health") as deployment:
        await deployment.apply_topics()
        worker, sealer = deployment.start_worker(), a_sealer(deployment, tmp_path)
        assert await until_ready(worker, True) == dict.fromkeys(["registry", "view", "join", "alerts", "brokers"], True)
        assert await until_ready(sealer, True) == {"seal": True, "brokers": True}
        await publish(deployment)
        await deployment.wait_until_written(Role.CHECKPOINTS, 1)
        assert_counted(worker, sealer, deployment)
        broker.kill()
        for process in (worker, sealer):
            assert (await until_ready(process, False))["brokers"] is False
            assert process.get("/healthz")[0] == 200
            assert (process.metric("assay_stream_brokers_silent_seconds") or 0) > 5
        await asyncio.to_thread(broker.start)
        for process in (worker, sealer):
            await until_ready(process, True)


async def publish(deployment: Deployment) -> None:
    await deployment.put(
        a_listing(0, 0, 0, 1, START),
        a_call_by(0, 0, 0, START + timedelta(minutes=1), "snapshot-1"),
        a_listing(0, 0, 1, 2, START + timedelta(minutes=2)),
    )
    await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) == 1)
    await deployment.wait_for(Role.ALERTS, lambda records: len(records) >= 1)


def assert_counted(worker: Worker, sealer: Worker, deployment: Deployment) -> None:
    topic = deployment.topics[Role.CALLS]
    lags = [
        worker.metric("assay_stream_lag_records", partition=str(number), stage="join", topic=topic)
        for number in range(3)
    ]
    assert lags == [0.0] * 3
    for stage in ("registry", "join"):
        assert (worker.metric("assay_stream_transaction_seconds_count", stage=stage) or 0) >= 1
        assert worker.metric("assay_stream_state_entries", stage=stage) == 1
        assert worker.metric("assay_stream_stage_ready", stage=stage) == 1
    assert (worker.metric("assay_stream_state_entries", stage="alerts") or 0) >= 1
    assert worker.metric("assay_stream_opening_seconds", stage="alerts") is not None
    assert worker.metric("process_resident_memory_bytes")
    assert (sealer.metric("assay_stream_outputs_total", stage="seal", what="checkpoint") or 0) >= 1
    assert sealer.metric("assay_stream_records_read_total", stage="seal") == 1


async def test_a_healthy_worker_logs_neither_errors_nor_warnings() -> None:
    """From the first start on a new cluster, over work, to its end."""
    with Broker(options=QUICK_START) as broker:
        with Deployment(broker.bootstrap, name="quiet") as deployment:
            await deployment.apply_topics()
            worker = await deployment.ready_worker()
            await publish(deployment)
            assert worker.terminate() == 0
        lines = [json.loads(line) for line in worker.log.read_text().splitlines()]
        assert [line for line in lines if line["level"] not in ("info", "debug")] == []
