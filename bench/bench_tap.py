"""What the HTTP tap adds to a call: direct, through a plain reverse proxy (aiohttp), and through the tap, in one run.

python -m bench.bench_tap [--calls N] [--rounds N] [--streams N]

Each program has a process of its own. Latency is that of one call at a time, and of calls that are due at a fixed rate,
counted from when each is due; the rate is that of many at once. Processor time is the proxy's own, which a loaded
machine distorts least.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import aiohttp
import psutil
from aiohttp import web

from tests.support.deployment import free_port

COMPACT = (",", ":")
"""How the SDKs write JSON."""
CALL = json.dumps(
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "x" * 200}}},
    separators=COMPACT,
).encode()
HEADERS = {
    "Content-Type": "application/json",
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "tools/call",
    "Mcp-Name": "echo",
}
ANSWER = json.dumps(
    {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "x" * 800}]}}, separators=COMPACT
).encode()
AT_ONCE = 32
DUE_PER_S = 500
WARM_UP = 50
_START_LIMIT_S = 30.0


async def _answer(request: web.Request) -> web.StreamResponse:
    """Answer a call; a GET gets a stream of one event that stays open."""
    if request.method == "GET":
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b": open\n\n")
        await asyncio.sleep(3_600)
    await request.read()
    return web.Response(body=ANSWER, content_type="application/json")


def _plain(upstream: str) -> Callable[[web.Request], object]:
    session: list[aiohttp.ClientSession] = []

    async def proxy(request: web.Request) -> web.StreamResponse:
        if not session:
            session.append(aiohttp.ClientSession(auto_decompress=False))
        headers = {name: value for name, value in request.headers.items() if name != "Host"}
        async with session[0].request(request.method, upstream, headers=headers, data=await request.read()) as answer:
            response = web.StreamResponse(status=answer.status, headers=answer.headers)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response

    return proxy


def serve(what: str, port: int, upstream: str) -> None:
    """Be one of the programs of the measurement."""
    app = web.Application()
    app.router.add_route("*", "/mcp", _answer if what == "server" else _plain(upstream))  # type: ignore[arg-type]
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None, handler_cancellation=True)


def _start(arguments: list[str], port: int) -> psutil.Popen:
    process = psutil.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < deadline:
        if any(each.laddr.port == port for each in process.net_connections() if each.status == psutil.CONN_LISTEN):
            return process
        time.sleep(0.05)
    raise SystemExit(f"{arguments} does not listen")


async def _latencies_ms(session: aiohttp.ClientSession, url: str, calls: int) -> list[float]:
    times = []
    for _ in range(calls):
        started_ns = time.perf_counter_ns()
        async with session.post(url, data=CALL, headers=HEADERS) as response:
            assert await response.read() == ANSWER
        times.append((time.perf_counter_ns() - started_ns) / 1e6)
    return times


async def _due(session: aiohttp.ClientSession, url: str, calls: int) -> list[float]:
    """Return how many ms after it was due each call was answered."""

    async def call(due_s: float) -> float:
        await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
        await _latencies_ms(session, url, 1)
        return (time.perf_counter() - due_s) * 1e3

    start_s = time.perf_counter() + 0.1
    return await asyncio.gather(*(call(start_s + number / DUE_PER_S) for number in range(calls)))


async def _measured(url: str, calls: int, process: psutil.Popen) -> tuple[float, ...]:
    """Return p50 and p99 in ms, p99 at a fixed rate, calls/s at once, and processor time per call in us."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await _latencies_ms(session, url, WARM_UP)
        before_s = _processor_s(process)
        times = sorted(await _latencies_ms(session, url, calls))
        due = sorted(await _due(session, url, calls))
        started_s = time.perf_counter()
        await asyncio.gather(*(_latencies_ms(session, url, calls // AT_ONCE) for _ in range(AT_ONCE)))
        rate = calls // AT_ONCE * AT_ONCE / (time.perf_counter() - started_s)
        made = 2 * calls + calls // AT_ONCE * AT_ONCE
        used_us = (_processor_s(process) - before_s) * 1e6 / made
    return statistics.median(times), times[int(calls * 0.99)], due[int(calls * 0.99)], rate, used_us


def _processor_s(process: psutil.Popen) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def _streams(url: str, count: int, process: psutil.Popen) -> list[float]:
    """Open and close streams, 50 at a time; memory of the program in MB, ten times on the way."""
    sizes = []

    async def one(session: aiohttp.ClientSession) -> None:
        async with session.get(url, headers={"Accept": "text/event-stream"}) as response:
            await response.content.readany()
            response.close()

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        for number in range(0, count, 50):
            await asyncio.gather(*(one(session) for _ in range(50)))
            if number % (count // 10) < 50:
                sizes.append(process.memory_info().rss / 1e6)
    return sizes


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--serve", nargs=3, metavar=("WHAT", "PORT", "UPSTREAM"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve[0], int(options.serve[1]), options.serve[2])
        return
    ports = {name: free_port() for name in ("direct", "plain proxy", "tap")}
    urls = {name: f"http://127.0.0.1:{port}/mcp" for name, port in ports.items()}
    this = ["-m", "bench.bench_tap", "--serve"]
    tap = ["-m", "assay_stream", "tap", "--listen", f"127.0.0.1:{ports['tap']}", "--server-id", "bench"]
    commands = {
        "direct": [*this, "server", str(ports["direct"]), "-"],
        "plain proxy": [*this, "plain", str(ports["plain proxy"]), urls["direct"]],
        "tap": [*tap, "--upstream", urls["direct"], "--output", os.devnull],
    }
    running = {name: _start(command, ports[name]) for name, command in commands.items()}
    try:
        rows: dict[str, list[tuple[float, ...]]] = {name: [] for name in commands}
        for _ in range(options.rounds):
            for name, process in running.items():
                rows[name].append(asyncio.run(_measured(urls[name], options.calls, process)))
        columns = ("way", "p50, ms", "p99, ms", f"p99 at {DUE_PER_S}/s, ms", "calls/s at once")
        print(f"| {' | '.join(columns)} | processor time per call, µs |")
        print("|---|---|---|---|---|---|")
        for name, measured in rows.items():
            p50, p99, due, rate, cpu = (statistics.median(column) for column in zip(*measured, strict=True))
            print(f"| {name} | {p50:.2f} | {p99:.2f} | {due:.2f} | {rate:,.0f} | {cpu:,.0f} |")
        if options.streams:
            sizes = asyncio.run(_streams(urls["tap"], options.streams, running["tap"]))
            print(
                f"memory of the tap over {options.streams:,} streams, MB: {' '.join(f'{size:.0f}' for size in sizes)}"
            )
    finally:
        for process in running.values():
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
