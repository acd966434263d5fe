"""What a sealer counts and says of itself, on pages of its own. Apart, for a sealer needs no Prometheus."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from prometheus_client import CollectorRegistry

from assay_stream.config import Settings
from assay_stream.worker.http import Health
from assay_stream.worker.metrics import Meter, StageMeter
from assay_stream.worker.pages import served
from assay_stream.worker.sealing import Sealer

_STAGE = "seal"


def pages_of(settings: Settings, sealer: Sealer, *, port: int) -> AbstractAsyncContextManager[None]:
    """Return a block in which a sealer's health and metrics are served.

    Args:
        settings: the operator's settings.
        sealer: what is watched; from now on it counts.
        port: where to listen.
    """
    meter = Meter(CollectorRegistry())
    sealer.meter = StageMeter(meter, _STAGE)
    health = Health(stall_limit_s=settings.stall_limit_s)
    health.watch(_STAGE, lambda: sealer.ready, still_s=lambda: sealer.still_s)
    meter.on_scrape(sealer.note_gauges)
    return served(settings, health, meter, port=port)
