"""What a sealer says of itself, on its pages."""

from __future__ import annotations

from typing import Any

import httpx

from assay_stream.config import Settings
from assay_stream.worker.sealing_meter import pages_of
from tests.support.deployment import free_port


class Sealer:
    """What is asked of a sealer."""

    ready = True
    still_s = 0.0
    meter: Any = None

    def note_gauges(self) -> None:
        self.meter.state(4)


async def test_a_sealer_counts_on_its_pages() -> None:
    """One that hangs is not alive; what it counts is under its own name."""
    sealer, port = Sealer(), free_port()
    settings = Settings(bootstrap_servers=f"127.0.0.1:{free_port()}", stall_limit_s=60)
    async with pages_of(settings, sealer, port=port), httpx.AsyncClient() as client:  # type: ignore[arg-type]
        sealer.meter.done(3, {"checkpoint": 1})
        text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
        assert 'assay_stream_records_read_total{stage="seal"} 3.0' in text
        assert 'assay_stream_outputs_total{stage="seal",what="checkpoint"} 1.0' in text
        assert 'assay_stream_state_entries{stage="seal"} 4.0' in text
        assert (await client.get(f"http://127.0.0.1:{port}/healthz")).status_code == 200
        sealer.still_s = 61.0
        answer = await client.get(f"http://127.0.0.1:{port}/healthz")
        assert (answer.status_code, answer.json()["stuck"]) == (503, ["seal"])
