"""What a flood of one hostile server costs its neighbours, in its own partition and in others."""

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from assay_stream.model.record import Role
from tests.adversary.conftest import PATIENT
from tests.adversary.spent import UNITS_PER_S, charges, writing_in_proportion
from tests.support.deployment import Deployment
from tests.support.neighbours import HOME, in_partition, p99, watched

pytestmark = pytest.mark.kafka

LISTS = int(os.environ.get("ASSAY_TEST_FLOOD_LISTS", "600"))
WAITING_MAX = 60
"""Lists that wait for the registry at a time: the flood comes as fast as it is processed, on any machine."""
LISTS_ASIDE_MAX = 25
"""Lists of the flood that are finished while a call in another partition waits, p99: about ten. A call that had to wait
for the flood would see at least all the lists that wait."""
LISTS_BEFORE_MAX = 5 * WAITING_MAX
"""The same in the flood's partition: a call waits for those published until it was read, some three times as many as
wait at a time. Were it not bounded, it would wait for the end of the flood."""
REPORTED_MAX = 6
"""Tools that a list reports one by one once it is rationed."""
FULL_UNITS_MIN = 100_000
"""What the analysis of a list that is not rationed takes at least, without what its findings are charged."""
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


@pytest.mark.timeout(900)
async def test_a_flood_of_new_tools_leaves_neighbours_their_evidence(deployment: Deployment) -> None:
    """Fifty new tools in every list, of which some always wait: calls on others go before most of them.

    One neighbour has its records in the hostile server's partition, one in the other.
    """
    worker = await deployment.ready_worker(**PATIENT)
    async with (
        writing_in_proportion(deployment),
        watched(deployment, worker, above_normal_mb=ABOVE_NORMAL_MB) as neighbours,
        a_tap_before(deployment) as tap,
    ):
        for count in range(1, LISTS + 1):
            await ask(tap, count, "tools/list", {})
            await neighbours.until_waiting(WAITING_MAX)
        await neighbours.until_waiting(0)
    before, aside = neighbours.watch.lists_meanwhile.values()
    assert p99(before) <= LISTS_BEFORE_MAX
    assert p99(aside) <= LISTS_ASIDE_MAX
    await is_rationed(deployment)


async def is_rationed(deployment: Deployment) -> None:
    """Lists are analysed in full while their server has units left for it; of others a few tools stand out.

    By the log's time, so that it holds on a slow machine too, whose flood is slower.
    """
    offsets = [each.origin.offset for each in await deployment.read(Role.SNAPSHOTS) if each.key == HOSTILE.encode()]
    findings = [json.loads(each.value or b"{}") for each in await deployment.read(Role.FINDINGS)]
    reported = Counter(
        each["origin"]["offset"]
        for each in findings
        if each.get("server_id") == HOSTILE and each["kind"] in ("tool_added", "tool_removed", "tool_changed")
    )
    charged = dict(zip(offsets, await charges(deployment, HOSTILE), strict=True))
    in_full = [charged[offset] for offset, count in reported.items() if count > REPORTED_MAX]
    print(f"{len(in_full)} of {len(offsets)} lists analysed in full")
    assert all(-UNITS_PER_S <= each.after < each.before for each in charged.values())
    assert in_full
    assert min(each.before for each in in_full) >= FULL_UNITS_MIN
