"""The pages of a process without Faust: the sealer and the forwarder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError
from assay_stream.kafka.broker_watch import BrokerWatch
from assay_stream.worker.http import METRICS_TYPE, Health
from assay_stream.worker.metrics import Meter


@asynccontextmanager
async def served(settings: Settings, health: Health, meter: Meter, *, port: int) -> AsyncIterator[None]:
    """Serve health, readiness and metrics while the block runs, and watch the brokers for them.

    Args:
        settings: the operator's settings.
        health: what the process says of itself.
        meter: what it counts.
        port: where to listen, on the host of ``web_host``.

    Raises:
        ConfigurationError: ``web_port_taken``.
    """
    brokers = BrokerWatch(settings)
    health.watch("brokers", lambda: brokers.ready)
    meter.on_scrape(lambda: meter.brokers_silent_seconds.set(brokers.silent_s))

    def note_ready() -> None:
        for name, is_ready in health.readiness()[1]["stages"].items():
            meter.stage_ready.labels(name).set(is_ready)

    meter.on_scrape(note_ready)

    async def healthz(_request: web.Request) -> web.Response:
        status, body = health.liveness()
        return web.json_response(body, status=status)

    async def readyz(_request: web.Request) -> web.Response:
        status, body = health.readiness()
        return web.json_response(body, status=status)

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(body=meter.text(), content_type=METRICS_TYPE)

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    watching = asyncio.create_task(brokers.run())
    try:
        try:
            await web.TCPSite(runner, settings.web_host, port).start()
        except OSError:
            raise ConfigurationError(
                "web_port_taken", f"cannot listen on {settings.web_host}:{port}: choose another --web-port"
            ) from None
        yield
    finally:
        brokers.stop()
        watching.cancel()
        await asyncio.wait([watching])
        await runner.cleanup()
