"""``alerts list --follow`` on real Kafka."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import pytest

from assay_stream.model.record import Role
from tests.support.deployment import Deployment
from tests.support.events import SERVER, TOOL, a_snapshot

pytestmark = pytest.mark.kafka


async def test_alerts_that_come_are_printed_once_each(deployment: Deployment) -> None:
    """A line each, as soon as they are committed."""
    worker = deployment.start_worker()
    await worker.wait_ready()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "assay_stream"),
        *("alerts", "list", "--follow", "--status", "all", "--format", "json"),
        env=os.environ | deployment.env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        await process.stderr.readline()  # what there is now
        await asyncio.sleep(3)
        await deployment.send(Role.SNAPSHOTS, [(SERVER.encode(), a_snapshot(TOOL, number=1, second=1))])
        alert = json.loads(await asyncio.wait_for(process.stdout.readline(), 30))
        assert (alert["server_id"], alert["kind"]) == (SERVER, "first_look")
    finally:
        process.kill()
        await process.wait()
