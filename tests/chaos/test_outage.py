"""Every process outlives brokers that are away for long: alive, not ready, and at work again once they are back."""

import asyncio
import time
from datetime import timedelta
from pathlib import Path

import pytest

from assay_stream.model.record import Role
from deploy.local.kafka import QUICK_START, Broker
from tests.support.deployment import Deployment, Worker, free_port, payload
from tests.support.fleet import START, a_call_by, a_listing
from tests.support.receivers import WebhookServer
from tests.support.toml import toml_of

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(420)]

AWAY_S = 120.0


def processes_of(deployment: Deployment, folder: Path, webhook: str) -> list[Worker]:
    key, receivers, clients = folder / "seal.pem", folder / "receivers.toml", folder / "clients.toml"
    made = deployment.run("seal", "keygen", "--out", str(key))
    assert made.returncode == 0, made.stderr
    receivers.write_text(toml_of({"receivers": [{"name": "soc", "type": "webhook", "url": webhook}]}))
    made = deployment.run("ingest", "token", "--clients", str(clients), "--observer-id", "one", "--server", "*")
    assert made.returncode == 0, made.stderr
    return [
        deployment.start("worker", "--role", "registry"),
        deployment.start("worker", "--role", "join"),
        deployment.start("worker", "--role", "alerts"),
        deployment.start("seal", "--key", str(key)),
        deployment.start("alerts", "forward", "--config", str(receivers)),
        deployment.start("store", "run", "--store", str(folder / "store")),
        deployment.start("ingest", "--clients", str(clients), "--listen", f"127.0.0.1:{free_port()}"),
    ]


async def publish(deployment: Deployment, first: int, count: int) -> None:
    for number in range(first, first + count):
        await deployment.put(a_call_by(0, 0, number, START + timedelta(seconds=60 + number), "snapshot-1"))


async def evidence_of(deployment: Deployment, count: int) -> list[str]:
    found = await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) >= count)
    return sorted(str(payload(record)["tool_call_id"]) for record in found)


async def test_an_outage_of_two_minutes_ends_no_process(tmp_path: Path) -> None:
    with (
        Broker(options=QUICK_START) as broker,
        WebhookServer(free_port()) as webhook,
        Deployment(broker.bootstrap, name="outage") as deployment,
    ):
        await deployment.apply_topics()
        processes = await asyncio.to_thread(processes_of, deployment, tmp_path, webhook.url)
        for process in processes:
            await process.wait_ready()
        await deployment.put(a_listing(0, 0, 0, 1, START))
        await publish(deployment, 0, 5)
        await evidence_of(deployment, 5)
        await asyncio.to_thread(broker.kill)
        until = time.monotonic() + AWAY_S
        while time.monotonic() < until:
            await asyncio.sleep(1.0)
            assert [each.log.name for each in processes if each.process.poll() is not None] == []
        health = {each.log.name: [each.get(page)[0] for page in ("/healthz", "/readyz")] for each in processes}
        assert health == {each.log.name: [200, 503] for each in processes}
        await asyncio.to_thread(broker.start)
        for process in processes:
            await process.wait_ready()
        await publish(deployment, 5, 5)
        assert await evidence_of(deployment, 10) == sorted(f"call-{number}" for number in range(10))
