"""The pages: what this process is (``/``), whether it is alive and ready (``/healthz``, ``/readyz``), ``/metrics``."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from html import escape
from typing import Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from assay_stream import __version__

HttpPage = tuple[int, dict[str, Any]]
"""An HTTP status, and the body."""


class Health:
    """What the stages of a process report.

    Args:
        stall_limit_s: how long a stage may not move before it counts as hung, seconds.
    """

    def __init__(self, *, stall_limit_s: float = math.inf) -> None:
        self.failed = False
        self.waiting_for: str | None = None  # what an operator has to do first
        self._stall_limit_s = stall_limit_s
        self._checks: dict[str, Callable[[], bool]] = {}
        self._alternatives: set[str] = set()
        self._still_s: dict[str, Callable[[], float]] = {}

    def watch(
        self,
        name: str,
        check: Callable[[], bool],
        *,
        still_s: Callable[[], float] | None = None,
        is_alternative: bool = False,
    ) -> None:
        """Watch a stage.

        Args:
            still_s: for how many seconds it has not moved, though it should.
            is_alternative: whether the process is ready as long as any such stage is.
        """
        self._checks[name] = check
        if is_alternative:
            self._alternatives.add(name)
        if still_s is not None:
            self._still_s[name] = still_s

    def liveness(self) -> HttpPage:
        stuck = self._stuck()
        is_ok = not self.failed and not stuck
        return (200 if is_ok else 503), {"ok": is_ok, "stuck": stuck}

    def readiness(self) -> HttpPage:
        stages = self.stages()
        needed = all(is_ready for name, is_ready in stages.items() if name not in self._alternatives)
        any_of = not self._alternatives or any(stages[name] for name in self._alternatives)
        is_ready = needed and any_of and not self.failed
        why = {} if self.waiting_for is None else {"waiting_for": self.waiting_for}
        return (200 if is_ready else 503), {"ready": is_ready, "stages": stages, **why}

    def stages(self) -> dict[str, bool]:
        """Return which stages do their work now."""
        stuck = self._stuck()
        return {name: bool(check()) and name not in stuck for name, check in self._checks.items()}

    def _stuck(self) -> list[str]:
        return [name for name, still_s in self._still_s.items() if still_s() > self._stall_limit_s]


_PAGES = {
    "/readyz": "ready: 200 while every stage does its work, 503 otherwise",
    "/healthz": "alive: 503 once something failed or hangs, and the process should be restarted",
    "/metrics": "metrics, for Prometheus",
}


def index_page(health: Health, version: str) -> str:
    """Return the page that says what this process is: plain HTML, of nothing that a stranger chose."""
    stages = "".join(
        f"<tr><td>{escape(name)}<td>{'ready' if is_ready else 'not ready'}"
        for name, is_ready in health.stages().items()
    )
    links = "".join(f'<li><a href="{path}">{path}</a> {escape(text)}' for path, text in _PAGES.items())
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>assay-stream</title>'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">'
        "<style>body{font:1rem/1.5 system-ui;margin:2rem;max-width:40rem}td{padding-right:2rem}</style>"
        f"<h1>assay-stream {escape(version)}</h1>"
        "<p>A process of assay-stream, which records which tool definition each MCP tool call used. It runs:</p>"
        f"<table><thead><tr><th align=left>part<th align=left>now<tbody>{stages}</table>"
        f"<p>Its pages:</p><ul>{links}</ul>"
        "<p>In a terminal: <code>assay-stream alerts list</code>, <code>assay-stream --help</code>.</p></html>"
    )


async def _nothing() -> dict[str, Any]:
    return {}


def health_pages(
    health: Health, metrics: Callable[[], bytes], *, look: Callable[[], Awaitable[dict[str, Any]]] = _nothing
) -> web.Application:
    """Return the pages, for aiohttp to serve.

    Args:
        metrics: the text of ``/metrics``.
        look: asked before every page but ``/healthz``; what it returns stands in ``/readyz`` too.
    """

    async def index(_: web.Request) -> web.Response:
        await look()
        return web.Response(text=index_page(health, __version__), content_type="text/html")

    async def healthz(_: web.Request) -> web.Response:
        status, body = health.liveness()
        return web.json_response(body, status=status)

    async def readyz(_: web.Request) -> web.Response:
        more = await look()
        status, body = health.readiness()
        return web.json_response({**body, **more}, status=status)

    async def text(_: web.Request) -> web.Response:
        await look()
        return web.Response(body=metrics(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    for path, page in {"/": index, "/healthz": healthz, "/readyz": readyz, "/metrics": text}.items():
        app.router.add_get(path, page)
    return app
