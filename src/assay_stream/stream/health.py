"""Health, readiness and metrics, on the worker's web server.

``/healthz`` says that nothing has failed; ``/readyz`` that every stage does its work now.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import faust
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from assay_stream.stream.meter import Meter


class Health:
    """What the stages say of themselves."""

    def __init__(self) -> None:
        self.failed = False
        self._checks: dict[str, Callable[[], bool]] = {}

    def watch(self, name: str, check: Callable[[], bool]) -> None:
        """Add a stage.

        Args:
            name: the stage.
            check: whether it does its work now.
        """
        self._checks[name] = check

    def stages(self) -> dict[str, bool]:
        """Return which stages do their work now."""
        return {name: bool(check()) for name, check in self._checks.items()}


def add_pages(app: faust.App, health: Health, meter: Meter) -> None:
    """Serve health, readiness and metrics.

    Args:
        app: the application whose web server serves them.
        health: what the stages say.
        meter: what they count.
    """

    @app.page("/healthz")  # type: ignore[untyped-decorator]
    async def healthz(web: Any, request: Any) -> Any:
        return web.json({"ok": not health.failed}, status=503 if health.failed else 200)

    @app.page("/readyz")  # type: ignore[untyped-decorator]
    async def readyz(web: Any, request: Any) -> Any:
        stages = health.stages()
        ready = all(stages.values()) and not health.failed
        return web.json({"ready": ready, "stages": stages}, status=200 if ready else 503)

    @app.page("/metrics")  # type: ignore[untyped-decorator]
    async def metrics(web: Any, request: Any) -> Any:
        return web.bytes(generate_latest(meter.registry), content_type=CONTENT_TYPE_LATEST.partition(";")[0])
