"""The pages of a process without Faust, over HTTP."""

from __future__ import annotations

import httpx
import pytest
from prometheus_client import CollectorRegistry

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError
from assay_stream.worker.http import Health
from assay_stream.worker.metrics import Meter, StageMeter
from assay_stream.worker.pages import served
from tests.support.deployment import free_port


async def test_all_three_pages_are_served_until_the_block_ends() -> None:
    """Brokers that do not answer make it unready, and nothing else."""
    port, health, meter = free_port(), Health(), Meter(CollectorRegistry())
    health.watch("seal", lambda: True)
    meter.on_scrape(lambda: StageMeter(meter, "seal").state(7))
    url = f"http://127.0.0.1:{port}"
    settings = Settings(bootstrap_servers=f"127.0.0.1:{free_port()}")
    async with served(settings, health, meter, port=port), httpx.AsyncClient() as client:
        assert (await client.get(f"{url}/healthz")).json() == {"ok": True, "stuck": []}
        ready = await client.get(f"{url}/readyz")
        assert (ready.status_code, ready.json()["stages"]) == (503, {"seal": True, "brokers": False})
        metrics = await client.get(f"{url}/metrics")
        assert 'assay_stream_state_entries{stage="seal"} 7.0' in metrics.text
        assert 'assay_stream_stage_ready{stage="brokers"} 0.0' in metrics.text
        assert metrics.headers["content-type"].startswith("text/plain")
        with pytest.raises(ConfigurationError, match="--web-port") as caught:
            async with served(settings, Health(), Meter(CollectorRegistry()), port=port):
                raise AssertionError("the port is taken")
        assert caught.value.code == "web_port_taken"
    async with httpx.AsyncClient() as client:
        with pytest.raises(httpx.ConnectError):
            await client.get(f"{url}/healthz")
