"""What a forwarder counts and says of itself, on pages of its own. Apart, for a forwarder needs no Prometheus."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from prometheus_client import CollectorRegistry

from assay_stream.config import Settings
from assay_stream.forward.forwarder import Forwarder
from assay_stream.worker.http import Health
from assay_stream.worker.metrics import Meter, StageMeter
from assay_stream.worker.pages import served

_STAGE = "forward"
_ATTEMPTS = "attempt:"


def pages_of(settings: Settings, forwarder: Forwarder, *, port: int) -> AbstractAsyncContextManager[None]:
    """Return a block in which a forwarder's health and metrics are served."""
    meter = Meter(CollectorRegistry())
    health = Health(stall_limit_s=settings.stall_limit_s)
    health.watch(_STAGE, lambda: forwarder.ready, still_s=lambda: forwarder.still_s)
    meter.on_scrape(ForwardMeter(forwarder, StageMeter(meter, _STAGE)).note)
    return served(settings, health, meter, port=port)


class ForwardMeter:
    """Carries a forwarder's own counts over to the metrics.

    Args:
        forwarder: who counts.
        meter: where to.
    """

    def __init__(self, forwarder: Forwarder, meter: StageMeter) -> None:
        self._forwarder = forwarder
        self._meter = meter
        self._told: dict[str, int] = {}

    def note(self) -> None:
        """Add what was counted since the last time."""
        for what, count in self._forwarder.counts.items():
            new = count - self._told.get(what, 0)
            self._told[what] = count
            if what == "read":
                self._meter.done(new, {})
            elif what == "expired":
                self._meter.lost(new)
            else:
                label = "dead_letter" if what == "dead" else _ATTEMPTS + what
                self._meter.done(0, {label: new})
        self._meter.held(int(self._forwarder.is_waiting))
        self._meter.lags(self._forwarder.lags())
