"""A deployment whose topics are emptied and restored, and a small story to restore.

python -m tests.integration.restored FOLDER     dumps all topics of the story, told to this release
"""

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from assay_stream.cli.archiving import archived_roles
from assay_stream.kafka.connection import open_admin
from assay_stream.kafka.ranges import LogRanges
from assay_stream.kafka.topics import topic_table
from assay_stream.model.record import Record, Role
from deploy.local.kafka import QUICK_START, Broker
from tests.integration.test_replay_compare import at_rest, caught_up, decisions, time_of
from tests.integration.test_seal import Seals
from tests.support.deployment import Deployment
from tests.support.fleet import START, Fleet, Published

RELEASES = Path(__file__).resolve().parents[1] / "data" / "releases"
"""By version, all topics of the story as that release wrote them."""
RELEASE_NAME = "release"
RESTAMPED = (Role.REROUTED, Role.INGESTED)
"""Topics whose brokers set the time."""


class Contents(NamedTuple):
    """What topics hold, and where their partitions begin and end."""

    records: dict[Role, list[Record]]
    bounds: dict[tuple[str, int], tuple[int, int]]


async def contents(deployment: Deployment) -> Contents:
    records = {role: await deployment.read(role) for role in archived_roles()}
    for role in RESTAMPED:
        records[role] = [record._replace(timestamp_ms=0) for record in records[role]]
    async with LogRanges(deployment.settings, archived_roles(), isolation_level="read_uncommitted") as logs:
        return Contents(records, logs.bounds)


async def emptied(deployment: Deployment) -> None:
    """Delete all topics, with the offsets of groups in them, and create them again, for records of any age."""
    names = [spec.name for spec in topic_table(deployment.settings)]
    async with open_admin(deployment.settings) as admin:
        await admin.delete_topics(names)
        while set(names) & set(await admin.list_topics()):
            await asyncio.sleep(0.1)
    await deployment.apply_topics()
    await keep_old_records(deployment)


async def keep_old_records(deployment: Deployment) -> None:
    async with open_admin(deployment.settings) as admin:
        for spec in topic_table(deployment.settings):
            if spec.config["cleanup.policy"] == "delete":
                config = dict(spec.config) | {"retention.ms": "-1"}
                await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, spec.name, config)])


async def archive(deployment: Deployment, folder: Path, *options: str) -> dict[str, Any]:
    done = await deployment.output_of("archive", "--output", str(folder), *options)
    said: dict[str, Any] = json.loads(done)
    return said


async def restore(deployment: Deployment, folder: Path, *options: str) -> list[dict[str, Any]]:
    done = await deployment.output_of("topics", "restore", str(folder), *options)
    return [json.loads(line) for line in done.splitlines()]


def story(calls: int = 240, portions: int = 2) -> list[list[Published]]:
    """A fleet's history in portions, each with an operator's decisions before it."""
    history = list(Fleet(servers=portions, calls=calls, changes=12, named_share=0.3, seed=7).history())
    size = len(history) // portions + 1
    cut = [history[first : first + size] for first in range(0, len(history), size)]
    told = []
    for number, portion in enumerate(cut):
        at = START if number == 0 else max(time_of(value) for _, _, value in cut[number - 1])
        told.append([*decisions(number, at + timedelta(milliseconds=1)), *portion])
    return told


async def tell(deployment: Deployment, portion: Sequence[Published], first: int) -> None:
    """Publish a portion: what calls rest on, and then the calls, some in partitions that are not their server's."""
    for wanted in (Role.CONTROL, Role.SNAPSHOTS):
        await deployment.send(wanted, [(key, value) for role, key, value in portion if role is wanted])
        await caught_up(deployment, "registry", wanted)
    calls = [(key, value) for role, key, value in portion if role is Role.CALLS]
    await deployment.send(
        Role.CALLS,
        [(key if number % 3 else b"%d" % (first + number), value) for number, (key, value) in enumerate(calls)],
    )
    await at_rest(deployment)


async def tell_and_archive(deployment: Deployment, folder: Path, seals: Seals, *options: str) -> None:
    """Tell the first portion to a worker, seal it, and archive all topics."""
    worker = await deployment.ready_worker()
    await tell(deployment, story()[0], 0)
    await seals.run("keygen", "--out", "seal.pem")
    await seals.run("--key", "seal.pem", "--once", "--every-records", "50")
    assert await asyncio.to_thread(worker.terminate) == 0
    await archive(deployment, folder, "--all-topics", *options)


async def dump(folder: Path) -> None:
    with Broker(options=QUICK_START) as broker, tempfile.TemporaryDirectory() as keys:
        with Deployment(broker.bootstrap, name=RELEASE_NAME) as deployment:
            await deployment.apply_topics()
            await tell_and_archive(
                deployment, folder, Seals(deployment, Path(keys)), "--force", "--compression", "zstd"
            )
        shutil.copy(Path(keys, "seal.pub.pem"), folder / "seal.pub")


if __name__ == "__main__":
    asyncio.run(dump(Path(sys.argv[1])))
