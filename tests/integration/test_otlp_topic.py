"""Spans in a topic of OpenTelemetry's collector, published as calls: on real Kafka."""

import asyncio
from collections import Counter

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from assay_stream.model.record import Role
from tests.support.deployment import Deployment, payload
from tests.support.logs import PROTOBUF, SPANS

pytestmark = pytest.mark.kafka


async def written(deployment: Deployment, name: str, *values: bytes | None) -> str:
    """A topic of two partitions, as the collector's exporter fills it: without keys."""
    topic = f"{deployment.topics[Role.CALLS]}.{name}"
    admin = AIOKafkaAdminClient(bootstrap_servers=deployment.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])
    await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=deployment.bootstrap) as producer:
        for number, value in enumerate(values):
            await producer.send_and_wait(topic, value, key=None if value else b"k", partition=number % 2)
    return topic


@pytest.mark.parametrize(("source", "content"), [("otlp-json", SPANS), ("otlp-proto", PROTOBUF)])
async def test_the_spans_of_a_topic_become_calls_whatever_else_is_in_it(
    deployment: Deployment, source: str, content: object
) -> None:
    """A bad value is named by its place, and reading again gives the same events."""
    if source == "otlp-proto":
        pytest.importorskip("opentelemetry.proto", reason="the extra otlp is not installed")
    assert hasattr(content, "read_bytes")
    topic = await written(deployment, "spans", None, b"{", content.read_bytes())
    command = ("publish", "--from", source, "--server-id", "time", "--observer-id", "o", "--topic", topic)
    done = await asyncio.to_thread(deployment.run, *command)
    assert (done.returncode, "published 3, refused 1" in done.stderr) == (2, True), done.stderr
    assert f"{topic}, partition 1, offset 0: " in done.stderr
    await asyncio.to_thread(deployment.run, *command)
    calls = await deployment.wait_for(Role.CALLS, lambda records: len(records) == 6)
    assert Counter(payload(each)["tool_name"] for each in calls) == {"add": 2, "fail": 2, "missing": 2}
    assert len({each.value for each in calls}) == 3


async def test_a_topic_that_is_not_there_is_named(deployment: Deployment) -> None:
    """And is not created by asking for it."""
    command = ("publish", "--from", "otlp-json", "--server-id", "s", "--topic", "no-such")
    for _ in range(2):
        done = await asyncio.to_thread(deployment.run, *command)
        assert (done.returncode, "topic_missing" in done.stderr) == (2, True), done.stderr
