"""Every process outlives brokers that are away for long: alive, not ready, and at work again once they are back."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from datetime import timedelta
from pathlib import Path

import pytest

from assay_stream.model.record import Role
from deploy.local.kafka import QUICK_START, Broker
from tests.support.deployment import Deployment, free_port, payload
from tests.support.fleet import START, a_call_by, a_listing
from tests.support.receivers import WebhookServer
from tests.support.toml import toml_of

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(420)]

AWAY_S = 120.0


class Process:
    """One of the long-running commands, beside the worker, with its pages."""

    def __init__(self, deployment: Deployment, name: str, *command: str) -> None:
        self.name, self.port = name, free_port()
        self.log = deployment.folder() / f"{name}.log"
        with self.log.open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "assay_stream", *command, "--web-port", str(self.port)],
                env=os.environ | deployment.env,
                stdout=said,
                stderr=said,
            )

    def status(self, page: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{page}", timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    async def wait_ready(self) -> None:
        deadline = time.monotonic() + 90
        while await asyncio.to_thread(self.status, "readyz") != 200:
            said = self.log.read_text(errors="replace")[-3_000:]
            assert self.process.poll() is None, f"{self.name} ended:\n{said}"
            assert time.monotonic() < deadline, f"{self.name} is not ready:\n{said}"
            await asyncio.sleep(0.2)


def processes_of(deployment: Deployment, folder: Path, webhook: str) -> list[Process]:
    key, receivers, clients = folder / "seal.pem", folder / "receivers.toml", folder / "clients.toml"
    made = deployment.run("seal", "keygen", "--out", str(key))
    assert made.returncode == 0, made.stderr
    receivers.write_text(toml_of({"receivers": [{"name": "soc", "type": "webhook", "url": webhook}]}))
    made = deployment.run("ingest", "token", "--clients", str(clients), "--observer-id", "one", "--server", "*")
    assert made.returncode == 0, made.stderr
    return [
        Process(deployment, "registry", "worker", "--role", "registry"),
        Process(deployment, "join", "worker", "--role", "join"),
        Process(deployment, "alerts", "worker", "--role", "alerts"),
        Process(deployment, "seal", "seal", "--key", str(key)),
        Process(deployment, "forward", "alerts", "forward", "--config", str(receivers)),
        Process(deployment, "store", "store", "run", "--store", str(folder / "store")),
        Process(deployment, "ingest", "ingest", "--clients", str(clients), "--listen", f"127.0.0.1:{free_port()}"),
    ]


async def publish(deployment: Deployment, first: int, count: int) -> None:
    for number in range(first, first + count):
        _, key, value = a_call_by(0, 0, number, START + timedelta(seconds=60 + number), "snapshot-1")
        await deployment.send(Role.CALLS, [(key, value)])


async def evidence_of(deployment: Deployment, count: int) -> list[str]:
    found = await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) >= count)
    return sorted(str(payload(record)["tool_call_id"]) for record in found)


async def test_an_outage_of_two_minutes_ends_no_process(tmp_path: Path) -> None:
    with Broker(options=QUICK_START) as broker, WebhookServer(free_port()) as webhook:
        deployment = Deployment(broker.bootstrap, name="outage")
        await deployment.apply_topics()
        processes = await asyncio.to_thread(processes_of, deployment, tmp_path, webhook.url)
        try:
            for process in processes:
                await process.wait_ready()
            _, key, value = a_listing(0, 0, 0, 1, START)
            await deployment.send(Role.SNAPSHOTS, [(key, value)])
            await publish(deployment, 0, 5)
            await evidence_of(deployment, 5)
            await asyncio.to_thread(broker.kill)
            until = time.monotonic() + AWAY_S
            while time.monotonic() < until:
                await asyncio.sleep(1.0)
                assert {each.name: each.process.poll() for each in processes} == {each.name: None for each in processes}
            health = {each.name: (each.status("healthz"), each.status("readyz")) for each in processes}
            assert health == {each.name: (200, 503) for each in processes}
            await asyncio.to_thread(broker.start)
            for process in processes:
                await process.wait_ready()
            await publish(deployment, 5, 5)
            assert await evidence_of(deployment, 10) == sorted(f"call-{number}" for number in range(10))
        finally:
            for process in processes:
                process.process.kill()
                process.process.wait()
