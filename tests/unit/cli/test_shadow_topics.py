"""Results of a replay in topics beside the live ones, over a producer in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.errors import KafkaTimeoutError

from assay_stream.cli.replay import shadow_topics, write_shadow
from assay_stream.config import load_settings
from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.model.record import Output, Role, murmur2_partition
from assay_stream.replay.run import FILES, Tally
from tests.support.errors import raises_code

SETTINGS = load_settings(topic_prefix="live.", input_partitions=2, call_partitions=3)
TOPICS = shadow_topics(SETTINGS, FILES, "shadow.")


class Brokers:
    def __init__(self, present: dict[str, int] | None = None, *, refuses: bool = False) -> None:
        self.counts = dict(present or {})
        self.sent: list[dict[str, Any]] = []
        self.refuses = refuses
        self.running = 0

    async def list_topics(self) -> list[str]:
        return list(self.counts)

    async def create_topics(self, topics: list[Any]) -> None:
        self.counts |= {topic.name: topic.num_partitions for topic in topics}

    async def describe_topics(self, names: list[str]) -> list[dict[str, Any]]:
        return [{"topic": name, "partitions": [{}] * self.counts[name]} for name in names]

    async def close(self) -> None:
        """Nothing to do."""

    async def start(self) -> None:
        self.running += 1

    async def stop(self) -> None:
        self.running -= 1

    async def send(self, topic: str, **record: Any) -> asyncio.Future[None]:
        self.sent.append(record | {"topic": topic})
        delivery: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.refuses:
            delivery.set_exception(KafkaTimeoutError())
        else:
            delivery.set_result(None)
        return delivery


def reached(monkeypatch: pytest.MonkeyPatch, brokers: Brokers) -> Brokers:
    async def start_admin(*_: Any, **__: Any) -> Brokers:
        return brokers

    monkeypatch.setattr("assay_stream.kafka.connection.start_admin", start_admin)
    monkeypatch.setattr("assay_stream.cli.replay.writing_producer", lambda _, **__: brokers)
    return brokers


def an_output(role: Role, key: bytes = b"server-a", partition: int | None = None) -> Output:
    return Output(role=role, key=key, value=b"v", partition=partition, timestamp_ms=7, label=role.value)


def test_every_result_has_a_topic_of_its_own() -> None:
    """Named by the prefix, not by that of the deployment."""
    assert TOPICS.keys() == FILES.keys()
    assert TOPICS[Role.EVIDENCE] == "shadow.assay.tool.decision"


@pytest.mark.parametrize("prefix", ["", "live."])
def test_a_prefix_that_leads_to_live_topics_is_refused(prefix: str) -> None:
    """The deployment's own, and those without any prefix."""
    with raises_code("live_topics", kind=ConfigurationError):
        shadow_topics(SETTINGS, FILES, prefix)


async def test_results_go_to_the_partitions_that_live_ones_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evidence to that of its call, all else by its key; definitions once; what has no topic goes nowhere."""
    brokers = reached(monkeypatch, Brokers())
    tally = Tally()
    steps = [
        [an_output(Role.EVIDENCE, partition=4), an_output(Role.ALERTS)],
        [an_output(Role.DEFINITIONS), an_output(Role.DEFINITIONS), an_output(Role.FINDINGS)],
    ]
    await write_shadow(SETTINGS, TOPICS, tally.taken(steps), call_partitions=5)
    assert brokers.counts == {
        TOPICS[role]: 5 if role is Role.EVIDENCE else count for role, count in dict.fromkeys(TOPICS, 2).items()
    }
    assert [(record["topic"], record["partition"]) for record in brokers.sent] == [
        (TOPICS[Role.EVIDENCE], 4),
        (TOPICS[Role.ALERTS], murmur2_partition(b"server-a", 2)),
        (TOPICS[Role.DEFINITIONS], murmur2_partition(b"server-a", 2)),
    ]
    assert {record["timestamp_ms"] for record in brokers.sent} == {7}
    assert tally.written["definitions"] == 1
    assert brokers.running == 0


async def test_topics_that_are_there_keep_their_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evidence of a call beyond them goes to one of those that there are."""
    brokers = reached(monkeypatch, Brokers(dict.fromkeys(TOPICS.values(), 1)))
    await write_shadow(SETTINGS, TOPICS, [an_output(Role.EVIDENCE, partition=4)], call_partitions=5)
    assert brokers.counts == dict.fromkeys(TOPICS.values(), 1)
    assert [record["partition"] for record in brokers.sent] == [0]


async def test_a_result_that_the_brokers_refuse_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says how to mend it, and the producer is let go."""
    brokers = reached(monkeypatch, Brokers(refuses=True))
    with raises_code("shadow_failed", kind=OperatingError, match="new prefix"):
        await write_shadow(SETTINGS, TOPICS, [an_output(Role.ALERTS)], call_partitions=1)
    assert brokers.running == 0
