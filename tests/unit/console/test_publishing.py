"""Decisions of the console on their way to Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from aiokafka.errors import KafkaTimeoutError, TopicAuthorizationFailedError

from assay_stream.config import Settings
from assay_stream.console.deciding import KafkaPublish
from assay_stream.errors import AssayStreamError, OperatingError
from assay_stream.limits import CONSOLE_LIMITS
from assay_stream.model.control import ALERT_TYPE
from assay_stream.observe.recorded import decision_event

NOW = datetime(2026, 3, 1, 10, tzinfo=UTC)
UID = "a" * 64
ACKNOWLEDGE = (ALERT_TYPE + "acknowledge", {"server_id": "server-0", "alert": UID, "reason": "seen"})


class Broker:
    """A producer, and what became of what it sent: acknowledged, refused by an error, or never heard of again."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self.outcomes = list(outcomes)
        self.sent: list[dict[str, Any]] = []
        self.connections = self.stopped = 0

    async def connect(self, _: Settings) -> Broker:
        self.connections += 1
        return self

    async def start(self) -> None:
        """Be started."""

    async def stop(self) -> None:
        self.stopped += 1

    async def partitions_for(self, _: str, /) -> set[int]:
        return {0}

    async def send(self, topic: str, **record: Any) -> Awaitable[Any]:
        self.sent.append({"topic": topic, **record})
        outcome = self.outcomes.pop(0) if self.outcomes else None
        result: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if isinstance(outcome, TimeoutError):
            return result
        if outcome is None:
            result.set_result(None)
        else:
            result.set_exception(outcome)
        return result


def publishing(broker: Broker, **limits: Any) -> KafkaPublish:
    return KafkaPublish(
        Settings(),
        connect=broker.connect,
        clock=lambda: NOW,
        new_id=lambda: "id-1",
        limits=replace(CONSOLE_LIMITS, **limits),
    )


async def test_a_decision_is_the_event_that_the_commands_make() -> None:
    """Byte for byte, with the signed-in name for its author; an action cannot put another there."""
    broker = Broker()
    publish = publishing(broker)
    kind, data = ACKNOWLEDGE
    await publish([(kind, {**data, "author": "somebody else"})], "oidc:alice@example.com")
    author = "oidc:alice@example.com"
    event = decision_event(kind, {**data, "author": author}, author=author, event_id="id-1", decided_at=NOW)
    (sent,) = broker.sent
    assert (sent["topic"], sent["key"], sent["value"]) == ("assay.control", event.key, event.value)
    assert sent["headers"] == list(event.headers)


async def test_the_connection_is_kept() -> None:
    """Until the console ends; closing it twice does no harm."""
    broker = Broker()
    publish = publishing(broker)
    await publish([ACKNOWLEDGE], "local:alice")
    await publish([ACKNOWLEDGE, ACKNOWLEDGE], "local:alice")
    assert (broker.connections, len(broker.sent), broker.stopped) == (1, 3, 0)
    await publish.aclose()
    await publish.aclose()
    assert broker.stopped == 1


async def test_of_decisions_one_of_which_is_wrong_none_is_published() -> None:
    broker = Broker()
    wrong = (ACKNOWLEDGE[0], {**ACKNOWLEDGE[1], "reason": "\ud800"})
    with pytest.raises(AssayStreamError, match="lone_surrogate"):
        await publishing(broker)([ACKNOWLEDGE, wrong], "local:alice")
    assert (broker.sent, broker.connections) == ([], 0)


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([TopicAuthorizationFailedError(), TopicAuthorizationFailedError()], "not_authorized"),
        ([None, TopicAuthorizationFailedError()], "not_delivered"),
        ([None, KafkaTimeoutError()], "not_delivered"),
        ([KafkaTimeoutError(), KafkaTimeoutError()], "not_delivered"),
        ([TimeoutError()], "not_delivered"),
    ],
)
async def test_what_was_not_acknowledged_is_told(outcomes: list[Exception | None], code: str) -> None:
    """Whether nothing was recorded or something may be; the next decision goes over a new connection."""
    broker = Broker(*outcomes)
    publish = publishing(broker, decision_limit_s=0.05)
    with pytest.raises(AssayStreamError, match=code):
        await publish([ACKNOWLEDGE, ACKNOWLEDGE], "local:alice")
    assert broker.stopped == 1
    broker.outcomes.clear()
    await publish([ACKNOWLEDGE], "local:alice")
    assert broker.connections == 2


async def test_brokers_that_are_away_are_told_and_asked_again() -> None:
    """Nothing is kept for later: nobody expects a decision that arrives then."""
    broker = Broker()
    away = [True]

    async def connect(settings: Settings) -> Broker:
        if away[0]:
            raise OperatingError("broker_unreachable", "no broker answers")
        return await broker.connect(settings)

    publish = KafkaPublish(Settings(), connect=connect)
    with pytest.raises(OperatingError, match="broker_unreachable"):
        await publish([ACKNOWLEDGE], "local:alice")
    away[0] = False
    await publish([ACKNOWLEDGE], "local:alice")
    assert len(broker.sent) == 1


async def test_decisions_that_wait_are_bounded() -> None:
    """One form after the other; further ones are refused at once."""
    broker = Broker(TimeoutError())
    publish = publishing(broker, decision_limit_s=0.2, decisions_waiting_max=2)
    results = await asyncio.gather(*(publish([ACKNOWLEDGE], "local:alice") for _ in range(3)), return_exceptions=True)
    codes = [each.code if isinstance(each, AssayStreamError) else each for each in results]
    assert codes == ["not_delivered", None, "console_busy"]
    await publish([ACKNOWLEDGE], "local:alice")


async def test_a_broker_that_is_not_there_is_named() -> None:
    """By the client that the commands use, within its limit."""
    settings = Settings(bootstrap_servers="127.0.0.1:1", connect_limit_s=1)
    with pytest.raises(OperatingError, match="broker_unreachable"):
        await KafkaPublish(settings)([ACKNOWLEDGE], "local:alice")
