"""The publishing client on real Kafka: what arrives, and what a broker's death does to it."""

import asyncio
import json
import logging
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from mcp.client.client import Client

from assay_stream.config import load_settings
from assay_stream.kafka.connection import connection_options, open_admin, reading_consumer
from assay_stream.kafka.topics import apply_topics, topic_names
from assay_stream.model.record import Role, murmur2_partition
from assay_stream.observe import ObservationPublisher, PublisherLimits
from assay_stream.observe.observation import EVENT_BYTES_MAX
from deploy.local.kafka import QUICK_START, Broker
from tests.support.deployment import Deployment, free_port
from tests.support.http_tap import http_server, listening
from tests.unit.observe.test_events import TRACE, a_call, a_snapshot

pytestmark = pytest.mark.kafka
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def quiet() -> Iterator[None]:
    logger = logging.getLogger("aiokafka")
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(logging.NOTSET)


def a_publisher(deployment: Deployment, **limits: float) -> ObservationPublisher:
    return ObservationPublisher(
        connection_options(deployment.settings),
        topics=deployment.topics,
        limits=PublisherLimits(**limits),  # type: ignore[arg-type]
    )


async def test_records_arrive_with_key_headers_time_and_partition(deployment: Deployment) -> None:
    """As every other Kafka client would write them."""
    async with a_publisher(deployment) as publisher:
        snapshot, call = a_snapshot([{"name": "echo"}]), a_call(traceparent=TRACE)
        assert publisher.publish(snapshot)
        assert publisher.publish(call)
    assert publisher.stats.delivered == 2
    for role, sent, partitions in ((Role.SNAPSHOTS, snapshot, 2), (Role.CALLS, call, 4)):
        [record] = await deployment.read(role)
        assert (record.key, record.value, record.headers) == (sent.key, sent.value, sent.headers)
        assert record.timestamp_ms == sent.timestamp_ms
        assert record.origin.partition == murmur2_partition(sent.key, partitions)


async def test_the_largest_snapshot_that_is_built_fits_the_topic(deployment: Deployment) -> None:
    """A larger one is published as unreadable instead."""
    room = EVENT_BYTES_MAX - len(a_snapshot([""]).value)
    async with a_publisher(deployment) as publisher:
        publisher.publish(a_snapshot(["x" * room]))
        publisher.publish(a_call(tool_name="y" * 2_000_000))
        publisher.publish(a_call())
    assert publisher.stats.delivered == 3, "two of them, and how many were dropped"
    assert publisher.stats.dropped == {"too_large": 1}, "the topic of calls takes a megabyte"


@pytest.mark.servers
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_the_tap_over_http_publishes_what_it_saw(deployment: Deployment, tmp_path: Path, mode: str) -> None:
    """Each call once; what waits when the tap is stopped is delivered first, and nothing is counted as lost."""
    port, log = free_port(), tmp_path / "log"
    arguments = ["tap", "--listen", f"127.0.0.1:{port}", "--server-id", "docs", "--observer-id", "proxy-1"]
    async with http_server() as url:
        command = [sys.executable, "-m", "assay_stream", *arguments, "--upstream", url]
        with log.open("wb") as stream:
            async with listening(command, port, env=deployment.env, log=stream) as process:
                async with Client(f"http://127.0.0.1:{port}/mcp", mode=mode) as client:
                    await client.list_tools()
                    for number in range(20):
                        await client.call_tool("echo", {"message": str(number)})
                process.send_signal(signal.SIGTERM)
                assert await asyncio.wait_for(process.wait(), 20) == 0, log.read_text()
    events = [json.loads(each.value or b"") for each in await deployment.read(Role.CALLS)]
    assert len({event["id"] for event in events}) == len(events) == 20
    assert {(event["data"]["server_id"], event["data"]["observer_id"]) for event in events} == {("docs", "proxy-1")}
    kinds = [json.loads(each.value or b"")["type"] for each in await deployment.read(Role.SNAPSHOTS)]
    assert set(kinds) == {"mcp.tools.list.observed"}


@pytest.mark.tier(name="outages")
async def test_what_is_published_while_the_broker_is_away_arrives_when_it_is_back(quiet: None) -> None:
    """Nothing is lost, nothing waits; what may be doubled has the same id."""
    with Broker(options=QUICK_START) as broker:
        deployment = Deployment(broker.bootstrap, name="outage")
        await deployment.apply_topics()
        publisher = a_publisher(deployment, start_timeout_s=5.0, send_timeout_s=5.0, backoff_max_s=0.5)
        async with publisher:
            publisher.publish(a_call(tool_name="tool-0"))
            while publisher.stats.delivered < 1:
                await asyncio.sleep(0.01)
            broker.kill()
            for number in range(1, 200):
                assert publisher.publish(a_call(tool_name=f"tool-{number}"))
            await asyncio.sleep(6)
            assert publisher.stats.delivered == 1
            await asyncio.to_thread(broker.start)
            async with asyncio.timeout(60):
                while publisher.stats.queued:
                    await asyncio.sleep(0.05)
        assert publisher.stats.dropped == {}
        values = [json.loads(record.value or b"") for record in await deployment.read(Role.CALLS)]
        names = list(dict.fromkeys(value["data"]["tool_name"] for value in values))
        assert names == [f"tool-{number}" for number in range(200)]


async def test_a_missing_topic_loses_nothing_and_closing_ends_in_time(broker: Broker, quiet: None) -> None:
    """An operator may still create it; when not, the loss is counted."""
    deployment = Deployment(broker.bootstrap, name="missing")
    publisher = a_publisher(deployment, send_timeout_s=1.0)
    publisher.start()
    publisher.publish(a_call())
    await asyncio.sleep(2)
    async with asyncio.timeout(15):
        await publisher.aclose(timeout_s=1.0)
    assert publisher.stats.dropped == {"delivery_failed": 1}


async def test_the_readmes_publisher_delivers_as_written(broker: Broker, tmp_path: Path) -> None:
    """Its Python as a script, with a list and a call passing: both arrive although nothing is closed."""
    readme = (ROOT / "README.md").read_text()
    [source] = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert "close" not in source
    traffic = """
passed("client->server", b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}')
passed("server->client", b'{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"t","inputSchema":{}}]}}')
passed("client->server", b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t"}}')
passed("server->client", b'{"jsonrpc":"2.0","id":2,"result":{"content":[]}}')
"""
    settings = load_settings(bootstrap_servers=broker.bootstrap)
    async with open_admin(settings) as admin:
        await apply_topics(admin, settings)
    script = tmp_path / "proxy.py"
    script.write_text(source.replace("broker-1:9092", broker.bootstrap) + traffic)
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "could not be delivered" not in done.stderr
    for role, count in ((Role.SNAPSHOTS, settings.input_partitions), (Role.CALLS, settings.call_partitions)):
        partitions = [TopicPartition(topic_names(settings)[role], number) for number in range(count)]
        async with reading_consumer(settings) as consumer:
            assert sum((await consumer.end_offsets(partitions)).values()) == 1, role
