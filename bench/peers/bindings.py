"""What our registry found, in the shape that the peers look up: one record per tool, its last definition only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic

from assay_stream import __version__
from assay_stream.bindings.as_of import bind
from assay_stream.bindings.server import ServerBindings
from assay_stream.config import Settings
from assay_stream.kafka.connection import start_admin
from assay_stream.kafka.ranges import LogRanges
from assay_stream.model.evidence import Producer
from assay_stream.model.record import Role
from assay_stream.schemes import assay_tool as assay
from bench.peers.evidence import binding_key
from tests.support.engine import EngineState

_NOW_US = 2**62


async def publish_bindings(settings: Settings, topic: str) -> int:
    """Write the bench's own binding topic, compacted, one partition; returns the number of records.

    Args:
        settings: names the broker and the binding topic of ours.
        topic: the topic to create.
    """
    admin = await start_admin(settings)
    await admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"cleanup.policy": "compact"})])
    await admin.close()
    state = EngineState(producer=Producer(version=__version__))
    async with LogRanges(settings, [Role.BINDINGS]) as logs:
        async for record in logs.records(Role.BINDINGS):
            state.view.take(record)
    producer = AIOKafkaProducer(bootstrap_servers=settings.bootstrap_servers, linger_ms=20)
    await producer.start()
    count = 0
    try:
        for server_id, server in state.view.servers.items():
            for tool_name, found in tools_of(server_id, server):
                key = binding_key(server_id, tool_name).encode()
                await producer.send(topic, key=key, value=orjson.dumps(found), partition=0)
                count += 1
    finally:
        await producer.stop()
    return count


def tools_of(server_id: str, server: ServerBindings) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every tool of a server's newest list, and what a peer must know of it.

    Args:
        server_id: the server.
        server: what the registry found of it.
    """
    latest = {
        observer_id: seen
        for observer_id, timeline in server.observers.items()
        if (seen := timeline.as_of(_NOW_US)) is not None
    }
    newest = max(latest.values(), key=lambda seen: seen.position)
    catalogue = server.catalogue_of(newest)
    for tool_name in catalogue.tools:
        answer = bind(
            server, tool_name=tool_name, observer_id=newest.observer_id, snapshot_id=newest.snapshot_id, time_us=_NOW_US
        )
        fingerprint = answer.fingerprint
        digest = None if fingerprint is None else fingerprint.definition_digest()
        if fingerprint is None or digest is None:
            raise AssertionError("every definition of the fleet has a digest")
        yield (
            tool_name,
            {
                "binding": {
                    "catalogue_digest": newest.catalogue,
                    "full_digest": fingerprint.full,
                    "server_scoped": catalogue.server_scoped,
                },
                "cluster": {**assay.CLUSTER_CONSTANTS, "tool_definition_digest": digest},
                "tool_identity": {
                    "server_id": server_id,
                    "tool_name": tool_name,
                    "schema_hash": fingerprint.schemes["assay.schema_hash"],
                    "meta_hash": fingerprint.schemes["assay.meta_hash"],
                },
                "seen": {
                    observer_id: {"snapshot_id": seen.snapshot_id, "origin": seen.origin.as_json()}
                    for observer_id, seen in latest.items()
                },
            },
        )
