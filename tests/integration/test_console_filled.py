"""``assay-stream console --fill`` on real Kafka: one command, and a console that is alive."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from assay_stream.model.record import Role
from tests.support.deployment import Deployment, free_port
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


async def until(condition: Callable[[], object], log: Path) -> None:
    for _ in range(600):
        if await asyncio.to_thread(condition):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(log.read_text()[-3_000:])


async def test_a_console_fills_its_own_store(deployment: Deployment, tmp_path: Path) -> None:
    """From nothing, and with what comes later."""
    worker = deployment.start_worker()
    await worker.wait_ready()
    history = list(Fleet(servers=2, calls=40, changes=2).history())
    for role in (Role.SNAPSHOTS, Role.CALLS):
        await deployment.send(role, [(key, value) for its, key, value in history if its is role])
    folder, log, web_port, port = tmp_path / "store", tmp_path / "log", free_port(), free_port()
    command = ["console", "--fill", "--store", str(folder), "--listen", f"127.0.0.1:{port}"]
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "assay_stream", *command, "--web-port", str(web_port)],
            env=os.environ | deployment.env | {"ASSAY_STREAM_STORE_DAYS": "36500"},
            stderr=stderr,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        await until(lambda: "server-1" in get(f"{address}/servers"), log)
        ready = json.loads(get(f"http://127.0.0.1:{web_port}/readyz"))
        assert (ready["ready"], ready["filled"]) == (True, True)
        # It is brought up to date every five seconds, though nothing is new.
        await asyncio.sleep(8)
        assert json.loads(get(f"http://127.0.0.1:{web_port}/readyz"))["store_age_s"] < 7

        more = list(Fleet(servers=3, calls=60, changes=2).history())
        for role in (Role.SNAPSHOTS, Role.CALLS):
            await deployment.send(role, [(key, value) for its, key, value in more if its is role])
        await until(lambda: "server-2" in get(f"{address}/servers"), log)
        assert "Filling the store failed" not in get(f"{address}/health")
        metrics = get(f"http://127.0.0.1:{web_port}/metrics")
        assert re.search(r'^assay_stream_console_requests_total\{page="/servers",status="200"\} \d', metrics, re.M)
        assert 'assay_stream_stage_ready{stage="filling"} 1.0' in metrics
    finally:
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 40) == 0
    started = [json.loads(line) for line in log.read_text().splitlines() if "console_started" in line]
    assert [line["address"] for line in started] == [f"{address}/"]
    assert [line for line in log.read_text().splitlines() if '"level": "error"' in line] == []
