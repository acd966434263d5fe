"""``assay-stream console --fill`` on real Kafka: one command, and a console that is alive."""

import asyncio
import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.deployment import Deployment, Worker, free_port
from tests.support.fleet import Fleet

pytestmark = pytest.mark.kafka


def get(address: str) -> str:
    try:
        with urllib.request.urlopen(address, timeout=20) as answer:  # noqa: S310 -- ours
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()
    except OSError:
        return ""


async def until(condition: Callable[[], object], console: Worker) -> None:
    for _ in range(600):
        if await asyncio.to_thread(condition):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(console.tail())


async def test_a_console_fills_its_own_store(deployment: Deployment, tmp_path: Path) -> None:
    """From nothing, and with what comes later."""
    await deployment.ready_worker()
    await deployment.publish(Fleet(servers=2, calls=40, changes=2).history())
    port, folder = free_port(), tmp_path / "store"
    command = ["console", "--fill", "--store", str(folder), "--listen", f"127.0.0.1:{port}"]
    console, address = deployment.start(*command, ASSAY_STREAM_STORE_DAYS="36500"), f"http://127.0.0.1:{port}"
    await until(lambda: "server-1" in get(f"{address}/servers"), console)
    ready = json.loads(console.get("/readyz")[1])
    assert (ready["ready"], ready["filled"]) == (True, True)
    # It is brought up to date every five seconds, though nothing is new.
    await asyncio.sleep(8)
    assert json.loads(console.get("/readyz")[1])["store_age_s"] < 7

    await deployment.publish(Fleet(servers=3, calls=60, changes=2).history())
    await until(lambda: "server-2" in get(f"{address}/servers"), console)
    assert "Filling the store failed" not in get(f"{address}/health")
    metrics = console.get("/metrics")[1]
    assert re.search(r'^assay_stream_console_requests_total\{page="/servers",status="200"\} \d', metrics, re.M)
    assert 'assay_stream_stage_ready{stage="filling"} 1.0' in metrics
    assert await asyncio.to_thread(console.terminate) == 0
    started = [json.loads(line) for line in console.log.read_text().splitlines() if "console_started" in line]
    assert [line["address"] for line in started] == [f"{address}/"]
    assert [line for line in console.log.read_text().splitlines() if '"level": "error"' in line] == []
