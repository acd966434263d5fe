"""The spool on real Kafka: brokers away, and processes that end meanwhile."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from assay_stream.model.record import Role
from deploy.local.kafka import QUICK_START, Broker
from tests.support.deployment import Deployment
from tests.support.ingest import until

pytestmark = [pytest.mark.kafka, pytest.mark.tier(name="outages")]

DOWN_S = float(os.environ.get("ASSAY_SPOOL_DOWN_S", "6"))


class Publishing:
    def __init__(self, deployment: Deployment, folder: Path, first: int) -> None:
        self.output = folder / f"out-{first}"
        log = folder / f"log-{first}"  # apart: aiokafka's lines would get into the middle of ours
        command = [sys.executable, "-m", "tests.support.spooling_publisher", str(folder / "spool"), str(first)]
        with self.output.open("wb") as out, log.open("wb") as err:
            self.process = subprocess.Popen(command, env=os.environ | deployment.env, stdout=out, stderr=err)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.output.read_text().splitlines() if line.startswith("{")]

    def taken(self, before_s: float = float("inf")) -> list[int]:
        return [line["taken"] for line in self.lines() if "taken" in line and line["at_s"] < before_s]

    def end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.wait(30)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
async def test_nothing_is_lost_that_was_not_counted(tmp_path: Path, how: signal.Signals) -> None:
    """Brokers away, the process ended and another one started meanwhile: all is there, in order.

    A process that is killed may lose what it took in the last moment, before it was on disk.
    """
    with Broker(options=QUICK_START) as broker:
        deployment = Deployment(broker.bootstrap, name="spool")
        await deployment.apply_topics()
        first = Publishing(deployment, tmp_path, 0)
        running = [first]
        try:
            await until(lambda: len(first.taken()) > 200)
            await asyncio.sleep(1)
            await asyncio.to_thread(broker.kill)
            await asyncio.sleep(DOWN_S / 2)
            ended_s = time.time()
            await asyncio.to_thread(first.end, how)
            second = Publishing(deployment, tmp_path, 1_000_000)
            running.append(second)
            await until(lambda: len(second.taken()) > 100)
            await asyncio.sleep(DOWN_S / 2)
            await asyncio.to_thread(broker.start)
            await until(lambda: second.lines()[-1]["spooled"] == 0, limit_s=60)
            await asyncio.to_thread(second.end, signal.SIGTERM)
        finally:
            for each in running:
                each.process.kill()
                each.process.wait(10)
        ids = [json.loads(record.value or b"")["id"] for record in await deployment.read(Role.CALLS)]
        numbers = [int(each.removeprefix("call-")) for each in ids]
        assert second.lines()[-2]["spooled"] == 0
        expected = first.taken(ended_s - 1.0 if how is signal.SIGKILL else float("inf")) + second.taken()
        assert set(expected) <= set(numbers)
        in_order = list(dict.fromkeys(numbers))
        assert in_order == sorted(in_order)
        assert second.lines()[-1]["dropped"] == {}
        assert how is signal.SIGKILL or first.lines()[-1]["dropped"] == {}
