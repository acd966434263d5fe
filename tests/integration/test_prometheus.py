"""The rules and the dashboard on a Prometheus that scrapes worker, store and console: each query returns data."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from assay_stream.model.record import Role
from tests.support.deployment import Deployment, free_port
from tests.support.fleet import START, a_call_by, a_listing

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(
        shutil.which("prometheus") is None or shutil.which("promtool") is None,
        reason="no prometheus and promtool on the PATH: make debian (as root)",
    ),
]

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy/prometheus/rules.yml"
DASHBOARD = ROOT / "deploy/grafana/assay-stream.json"
ELSEWHERE = ('stage=~"forward', 'stage="ingest"')
"""What only a forwarder or an ingest process counts."""
LIMIT_S = 60.0


def rule_names() -> list[str]:
    [group] = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule["alert"] for rule in group["rules"]]


def queries() -> dict[str, str]:
    """What a person or a rule asks for, without the thresholds: a rule of a healthy deployment returns nothing."""
    [group] = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    asked = {rule["alert"]: rule["expr"] for rule in group["rules"]}
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", []):
            asked[f"{panel['title']}/{target['refId']}"] = target["expr"].replace("$__rate_interval", "1m")
    return {
        name: re.sub(r"[<>=]=?\s+[\d.]+(\s*\*)?", lambda found: "and" if found[1] else "", query)
        for name, query in asked.items()
        if not any(other in query for other in ELSEWHERE)
    }


class Prometheus:
    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def get(self, path: str, **parameters: str) -> Any:
        return httpx2.get(f"{self._url}{path}", params=parameters, timeout=5).raise_for_status().json()["data"]

    def returns_data(self, query: str) -> bool:
        found = self.get("/api/v1/query", query=query)["result"]
        return any(sample["value"][1] != "NaN" for sample in found)


@asynccontextmanager
async def scraping(ports: tuple[int, ...], folder: Path) -> AsyncIterator[Prometheus]:
    """The example configuration, with the ports of these processes, and impatient."""
    config = yaml.safe_load((RULES.parent / "prometheus.yml").read_text(encoding="utf-8"))
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(RULES)]
    [job] = config["scrape_configs"]
    job["static_configs"] = [{"targets": [f"127.0.0.1:{port}" for port in ports]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    own = free_port()
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{own}",
            ],
            stdout=log,
            stderr=log,
        )
    prometheus = Prometheus(own)
    try:
        await until(lambda: prometheus.returns_data("assay_stream_build_info"), process)
        yield prometheus
    finally:
        process.terminate()
        process.wait(20)


async def until(is_so: Any, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        assert process.poll() is None, "the process ended"
        try:
            if await asyncio.to_thread(is_so):
                return
        except httpx2.HTTPError:
            pass  # not listening yet
        await asyncio.sleep(0.2)
    raise AssertionError(f"not so after {LIMIT_S} s")


@asynccontextmanager
async def ending(process: subprocess.Popen[bytes]) -> AsyncIterator[None]:
    try:
        yield
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 30)


def test_promtool_accepts_the_rules() -> None:
    """And the configuration that names them."""
    for what, name in (("rules", "rules.yml"), ("config", "prometheus.yml")):
        done = subprocess.run(
            ["promtool", "check", what, name], cwd=RULES.parent, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


async def test_every_rule_and_panel_returns_data_on_a_live_worker(deployment: Deployment, tmp_path: Path) -> None:
    """With something of each sort to count: calls with and without a definition, an alert, a refused record."""
    worker = await deployment.ready_worker()
    store_port, page_port, console_port = free_port(), free_port(), free_port()
    store = [sys.executable, "-m", "assay_stream", "store", "run", "--store", str(tmp_path / "store")]
    looking = subprocess.Popen(
        [*store[:3], "console", *store[5:], "--listen", f"127.0.0.1:{page_port}", "--web-port", str(console_port)]
    )
    # Asked while it has no store: a page that failed.
    await until(lambda: httpx2.get(f"http://127.0.0.1:{page_port}/").status_code == 503, looking)
    filling = subprocess.Popen([*store, "--web-port", str(store_port)], env=os.environ | deployment.env)
    ports = worker.web_port, store_port, console_port
    async with ending(filling), ending(looking), scraping(ports, tmp_path) as prometheus:
        missing: list[str] = []

        def all_there() -> bool:
            missing[:] = [name for name, query in queries().items() if not prometheus.returns_data(query)]
            return not missing

        deadline, number = time.monotonic() + LIMIT_S, 0
        while not await asyncio.to_thread(all_there) and time.monotonic() < deadline:
            await publish(deployment, number)
            number += 1
            await asyncio.sleep(1)
        assert not missing
        [group] = prometheus.get("/api/v1/rules")["groups"]
        assert [(rule["name"], rule["health"]) for rule in group["rules"]] == [(name, "ok") for name in rule_names()]


async def publish(deployment: Deployment, number: int) -> None:
    """A changed list, a call of its tool, a call of a server that nobody listed, and what is no event."""
    at = START + timedelta(minutes=number)
    calls = [
        a_call_by(0, 0, 2 * number, at + timedelta(seconds=1), f"snapshot-{number + 1}"),
        a_call_by(7, 0, 2 * number + 1, at + timedelta(seconds=1), None),
    ]
    await deployment.send(Role.SNAPSHOTS, [a_listing(0, 0, number, number + 1, at)[1:]])
    await deployment.send(Role.CALLS, [*(call[1:] for call in calls), (b"server-0", b"no event")])
