"""An HTTP tap in this process, in front of a server, and what it observed."""

import asyncio
import json
import os
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from assay_stream.limits import HTTP_LIMITS, HttpLimits
from assay_stream.observe import MemorySink, Vantage
from assay_stream.observe.gate import Rule
from assay_stream.observe.http.proxy import TapListener
from assay_stream.observe.http.tap import run_http_tap
from assay_stream.observe.http.upstreams import Upstream
from tests.support.deployment import free_port

THE_VANTAGE = Vantage(server_id="the-server", observer_id="the-observer", server_scoped=True)
_START_LIMIT_S = 30.0


@dataclass
class Tap:
    url: str
    sink: MemorySink

    def data(self, kind: str) -> list[dict[str, Any]]:
        events = [json.loads(each.value) for each in self.sink.observations]
        return [event["data"] for event in events if event["type"] == f"mcp.tools.{kind}.observed"]


@cache
def _unused_trust() -> ssl.SSLContext:
    """What a tap reads at its start, though its servers are without TLS: it takes longer than most tests."""
    return ssl.create_default_context()


@asynccontextmanager
async def http_tap(
    upstream: str | Sequence[Upstream],
    listener: TapListener | None = None,
    *,
    rule: Rule | None = None,
    hide: bool = False,
    limits: HttpLimits = HTTP_LIMITS,
) -> AsyncIterator[Tap]:
    """A tap in front of a server. All observations are there after the block."""
    upstreams = [Upstream(vantage=THE_VANTAGE, url=upstream)] if isinstance(upstream, str) else upstream
    listener = listener or TapListener(port=0)
    if all(each.url.startswith("http://") for each in upstreams):
        listener = replace(listener, upstream_tls=_unused_trust())
    sink, stop = MemorySink(), asyncio.Event()
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    options: dict[str, Any] = {"rule": rule, "hide": hide, "limits": limits}
    task = asyncio.create_task(
        run_http_tap(upstreams, listener, sink=sink, stop=stop, ready=port.set_result, **options)
    )
    task.add_done_callback(lambda _: port.done() or port.cancel())  # it failed before it listened
    scheme = "http" if listener.tls is None else "https"
    try:
        yield Tap(f"{scheme}://127.0.0.1:{await port}{upstreams[0].path}", sink)
    finally:
        stop.set()
        await task


@asynccontextmanager
async def listening(
    command: Sequence[str],
    port: int,
    *,
    log: BinaryIO | None = None,
    env: Mapping[str, str] | None = None,
    limit_s: float = _START_LIMIT_S,
    folder: Path | None = None,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program that listens on a port; killed after the block. What it prints goes to a log, if there is one."""
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **(env or {})}, stdout=log, stderr=log, cwd=folder
    )
    try:
        async with asyncio.timeout(limit_s):
            while process.returncode is None:
                with socket.socket() as probe:
                    probe.setblocking(False)
                    try:
                        await asyncio.get_running_loop().sock_connect(probe, ("127.0.0.1", port))
                    except OSError:
                        await asyncio.sleep(0.05)
                    else:
                        break
        assert process.returncode is None
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def http_server(*flags: str, port: int | None = None) -> AsyncIterator[str]:
    port = port or free_port()
    async with listening([sys.executable, "-m", "tests.support.http_mcp_server", str(port), *flags], port):
        yield f"http://127.0.0.1:{port}/mcp"
