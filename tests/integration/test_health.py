"""What healthy processes count, and that they log no trouble; tests/chaos/test_outage.py has brokers that are away."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from assay_stream.model.record import Role
from deploy.local.kafka import QUICK_START, Broker
from tests.support.deployment import Deployment, Worker
from tests.support.fleet import START, a_call_by, a_listing

pytestmark = pytest.mark.kafka


def a_sealer(deployment: Deployment, folder: Path) -> Worker:
    key = str(folder / "seal.pem")
    assert deployment.run("seal", "keygen", "--out", key).returncode == 0
    return deployment.start("seal", "--key", key, "--every-s", "0.2")


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


async def test_a_healthy_deployment_counts_and_logs_neither_errors_nor_warnings(tmp_path: Path) -> None:
    """Worker and sealer, from the first start on a new cluster, over work, to their end."""
    with Broker(options=QUICK_START) as broker:
        with Deployment(broker.bootstrap, name="quiet") as deployment:
            await deployment.apply_topics()
            worker, sealer = await deployment.ready_worker(), a_sealer(deployment, tmp_path)
            await publish(deployment)
            await deployment.wait_until_written(Role.CHECKPOINTS, 1)
            assert_counted(worker, sealer, deployment)
            assert [each.terminate() for each in (worker, sealer)] == [0, 0]
        lines = [json.loads(line) for each in (worker, sealer) for line in each.log.read_text().splitlines()]
        assert [line for line in lines if line["level"] not in ("info", "debug")] == []
