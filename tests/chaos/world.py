"""A cluster, a deployment on it with its workers, and a load: what faults are injected into."""

import asyncio
import itertools
import os
import random
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from assay_stream.kafka.connection import open_admin
from assay_stream.model.record import Role
from deploy.local.cluster import NODES, Cluster
from deploy.local.kafka import free_ports
from tests.chaos.crew import Crew
from tests.chaos.load import SERVERS, Load
from tests.chaos.placing import BINDINGS, CALLS, Placing
from tests.support.deployment import Deployment
from tests.support.relay import Relay

SESSION_TIMEOUT_S = 3.0
SETTINGS: Mapping[str, str] = {
    "ASSAY_STREAM_INPUT_PARTITIONS": str(BINDINGS),
    "ASSAY_STREAM_CALL_PARTITIONS": str(CALLS),
    "ASSAY_STREAM_REPLICATION_FACTOR": "3",
    "ASSAY_STREAM_SESSION_TIMEOUT_MS": str(int(SESSION_TIMEOUT_S * 1_000)),
    # Small batches: many transactions for a fault to hit.
    "ASSAY_STREAM_BATCH_RECORDS_MAX": "60",
    "ASSAY_STREAM_CONNECT_LIMIT_S": "120",
    "ASSAY_STREAM_STOP_LIMIT_S": "15",
}
_COMPACTED: Mapping[str, str] = {
    # Compacted all the time, so that every restore and every follower meets it.
    "cleanup.policy": "compact",
    "segment.ms": "4000",
    "min.cleanable.dirty.ratio": "0.1",
    "max.message.bytes": "9437184",
}
_numbers = itertools.count(1)


class NotPossibleHereError(Exception):
    """This machine lacks what a fault needs: the message says what."""


@dataclass
class Ground:
    cluster: Cluster
    relays: list[Relay]

    @property
    def relayed(self) -> str:
        return ",".join(f"127.0.0.1:{relay.port}" for relay in self.relays)


@contextmanager
def standing_ground() -> Iterator[Ground]:
    with ExitStack() as stack:
        relays = [Relay(port) for port in free_ports(NODES)]
        cluster = Cluster(relays=[relay.port for relay in relays])
        for relay, broker in zip(relays, cluster.brokers.values(), strict=True):
            assert broker.place.relayed is not None
            relay.target_port = broker.place.relayed[0]
            stack.enter_context(relay)
        yield Ground(stack.enter_context(cluster), relays)


@dataclass
class World:
    """What a fault may break.

    Args:
        ground: the cluster.
        deployment: the topics and settings.
        crew: the workers.
        choose: makes every choice.
        placing: where calls go.
        alerts_repeated: whether a fault made the alert stage write all it had written again.
    """

    ground: Ground
    deployment: Deployment
    crew: Crew
    choose: random.Random
    placing: Placing
    alerts_repeated: bool = False

    @property
    def cluster(self) -> Cluster:
        return self.ground.cluster

    async def pause(self, least_s: float, most_s: float) -> None:
        await asyncio.sleep(self.choose.uniform(least_s, most_s))


@asynccontextmanager
async def living_world(ground: Ground, choose: random.Random) -> AsyncIterator[tuple[World, Load]]:
    """A new deployment with one worker of each role and one of all roles, under load."""
    name = f"chaos-{os.getpid()}-{next(_numbers)}"
    deployment = Deployment(ground.cluster.bootstrap, name=name, env=dict(SETTINGS))
    await deployment.apply_topics()
    await compact_often(deployment)
    folder = Path(".run/tests").resolve() / name / "workers"
    crew = Crew(deployment, folder)
    for role in ("registry", "join", "alerts", None):
        crew.hire(f"{role or 'all'}-1", role)
    seed = choose.randrange(10**6)
    placing = Placing(servers=SERVERS, seed=seed)
    try:
        async with crew, Load(deployment, seed=seed, placing=placing) as load:
            yield World(ground, deployment, crew, choose, placing), load
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def compact_often(deployment: Deployment) -> None:
    async with open_admin(deployment.settings) as admin:
        topics = [deployment.topics[role] for role in (Role.BINDINGS, Role.ALERT_STATES)]
        await admin.alter_configs(
            [ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(_COMPACTED)) for topic in topics]
        )
