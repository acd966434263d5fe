"""A replay of the topics themselves, on real Kafka: the live bytes, and nothing of the deployment touched."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from pathlib import Path

import pytest

from assay_stream.kafka.connection import start_admin
from assay_stream.model.record import Record, Role
from tests.integration.test_exactly_once import publish
from tests.support.deployment import Deployment
from tests.support.fleet import Fleet

pytestmark = pytest.mark.kafka


async def groups(deployment: Deployment) -> dict[str, object]:
    admin = await start_admin(deployment.settings)
    try:
        names = [name for name, _ in await admin.list_consumer_groups()]
        return {name: await admin.list_consumer_group_offsets(name) for name in sorted(names)}
    finally:
        await admin.close()


def by_partition(records: list[Record]) -> dict[int, list[bytes]]:
    found = defaultdict(list)
    for record in records:
        found[record.origin.partition].append(record.value or b"")
    return dict(found)


def by_call_partition(path: Path) -> dict[int, list[bytes]]:
    found = defaultdict(list)
    for line in path.read_bytes().splitlines():
        found[json.loads(line)["data"]["origin"]["partition"]].append(line)
    return dict(found)


async def test_a_replay_of_the_topics_gives_the_live_bytes_and_touches_no_group(
    deployment: Deployment, tmp_path: Path
) -> None:
    """From the topics, from an archive of them, and into shadow topics: no byte of evidence differs."""
    worker = deployment.start_worker()
    await worker.wait_ready()
    calls = await publish(deployment, Fleet(servers=7, calls=400, changes=10))
    live = by_partition(await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) >= calls))
    assert worker.terminate() == 0
    before = await groups(deployment)

    done = await asyncio.to_thread(deployment.run, "replay", "--from-kafka", "--output", str(tmp_path / "direct"))
    assert done.returncode == 0, done.stderr
    assert by_call_partition(tmp_path / "direct" / "evidence.ndjson") == live

    done = await asyncio.to_thread(deployment.run, "archive", "--output", str(tmp_path / "archive"))
    assert done.returncode == 0, done.stderr
    inputs = [option for path in sorted((tmp_path / "archive").iterdir()) for option in ("--input", str(path))]
    done = await asyncio.to_thread(
        deployment.run, "replay", *inputs, "--snapshot-partitions", "2", "--output", str(tmp_path / "files")
    )
    assert done.returncode == 0, done.stderr
    for path in (tmp_path / "direct").iterdir():
        assert (tmp_path / "files" / path.name).read_bytes() == path.read_bytes()

    shadow = Deployment(deployment.bootstrap, name=f"shadow.{deployment.name}")
    options = ("--to-kafka", "--topic-prefix", f"shadow.{deployment.name}.")
    done = await asyncio.to_thread(deployment.run, "replay", "--from-kafka", *options)
    assert done.returncode == 0, done.stderr
    assert by_partition(await shadow.read(Role.EVIDENCE)) == live

    assert await groups(deployment) == before
    assert by_partition(await deployment.read(Role.EVIDENCE)) == live


async def test_a_range_without_calls_says_so(deployment: Deployment, tmp_path: Path) -> None:
    await publish(deployment, Fleet(servers=1, calls=3, changes=0))
    options = ("--from-kafka", "--from-time", "2099-01-01T00:00:00Z", "--output", str(tmp_path / "out"))
    done = await asyncio.to_thread(deployment.run, "replay", *options)
    assert done.returncode == 5
    assert "the selection matches no call" in done.stderr
