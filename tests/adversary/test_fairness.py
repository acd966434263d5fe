"""What a flood of one hostile server costs its neighbours, in its own partition and in others."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.adversary.processor import slowness
from tests.support.deployment import Deployment
from tests.support.neighbours import HOME, in_partition, watched

pytestmark = pytest.mark.kafka

LISTS = int(os.environ.get("ASSAY_TEST_FLOOD_LISTS", "600"))
LISTS_PER_S = 20
LIMIT_S = 5.0
"""Processor seconds of the worker."""
ABOVE_NORMAL_MB = 512
"""It knows thirty thousand tools in the end, which take about half of that."""
HOSTILE = in_partition(HOME, "hostile")


@asynccontextmanager
async def a_tap_before(deployment: Deployment) -> AsyncIterator[asyncio.subprocess.Process]:
    server = [sys.executable, "-m", "tests.support.flooding_server"]
    tap = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "assay_stream", "tap", "--server-id", HOSTILE, "--", *server],
        env=os.environ | deployment.env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=2**24,
    )
    try:
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        await ask(tap, 0, "initialize", hello)
        yield tap
    finally:
        assert tap.stdin is not None
        tap.stdin.close()
        await asyncio.wait_for(tap.wait(), 30)


async def ask(tap: asyncio.subprocess.Process, number: int, method: str, params: object) -> None:
    assert tap.stdin is not None
    assert tap.stdout is not None
    request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    tap.stdin.write(json.dumps(request).encode() + b"\n")
    await tap.stdin.drain()
    assert await asyncio.wait_for(tap.stdout.readline(), 30)


async def test_a_flood_of_new_tools_leaves_neighbours_their_evidence(deployment: Deployment) -> None:
    """Fifty new tools in each of twenty lists a second: calls on others wait for 5 s of its work at most (p99).

    One neighbour has its records in the hostile server's partition, one in the other.
    """
    worker = await deployment.ready_worker()
    bounds = {"evidence_limit_s": LIMIT_S * slowness(), "above_normal_mb": ABOVE_NORMAL_MB}
    async with watched(deployment, worker, **bounds), a_tap_before(deployment) as tap:
        # As many as the worker has time for: on a slower processor, a flood at the same rate would drown it.
        started_s, lists_per_s = time.monotonic(), LISTS_PER_S / slowness()
        for count in range(1, LISTS + 1):
            await ask(tap, count, "tools/list", {})
            await asyncio.sleep(max(0.0, started_s + count / lists_per_s - time.monotonic()))
