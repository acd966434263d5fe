"""Events on their way into Kafka: acknowledged, noted, and then accepted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError, KafkaTimeoutError, TopicAuthorizationFailedError

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError
from assay_stream.ingest.writer import AcceptedWindow, EventWriter, NotDelivered
from assay_stream.model.record import TOPIC_NAMES, Role
from assay_stream.model.rejected import mark_of, read_accepted
from assay_stream.observe.observation import Observation
from tests.support.ingest import a_call, until
from tests.support.memory_cluster import running
from tests.support.producers import FakeProducer, Sent


def marked(observation: Observation) -> tuple[bytes, Observation]:
    return mark_of("gw-1", "s", observation.value.decode()), observation


@asynccontextmanager
async def writing(sent: Sent, producer: type[FakeProducer] = FakeProducer) -> AsyncIterator[EventWriter]:
    writer = EventWriter(Settings(), AcceptedWindow(), producer=lambda: producer(sent))
    async with running(writer):
        await until(lambda: writer.ready)
        yield writer


async def test_an_event_is_accepted_once_it_is_noted() -> None:
    """Not when its own topic has it: a crash between the two would double it."""
    sent = Sent()
    released: list[bool] = []
    async with writing(sent) as writer:
        events = [marked(a_call(number)) for number in range(3)]
        waits = writer.write(events, lambda: released.append(True))
        await asyncio.sleep(0)
        assert [writer.waiting(mark) for mark, _ in events] == waits
        assert not any(writer.is_accepted(mark) for mark, _ in events)
        sent.answers.set()
        await asyncio.gather(*waits)
        assert sent.of(Role.CALLS) == [observation.value for _, observation in events]
        assert [mark for value in sent.of(Role.INGESTED) for mark in read_accepted(value)] == [m for m, _ in events]
        assert all(writer.is_accepted(mark) for mark, _ in events)
        await until(lambda: released == [True])
        assert writer.pending == 0


async def test_what_kafka_refuses_is_not_accepted() -> None:
    """One that is too large does not hold up the others."""

    class MessageSizeTooLargeError(Exception):
        pass

    sent = Sent(fails=lambda _, value: MessageSizeTooLargeError() if b"call-1" in value else None)
    sent.answers.set()
    async with writing(sent) as writer:
        waits = writer.write([marked(a_call(number)) for number in range(3)], lambda: None)
        outcomes = await asyncio.gather(*waits, return_exceptions=True)
        assert [isinstance(each, NotDelivered) and each.is_too_large for each in outcomes] == [False, True, False]
        assert len(sent.of(Role.CALLS)) == 2
        assert sent.started == 1


async def test_an_event_that_could_not_be_noted_is_not_accepted_and_not_doubled() -> None:
    """Its client tries again, and is told that it is there."""
    sent = Sent(fails=lambda topic, _: RuntimeError("planted") if topic == TOPIC_NAMES[Role.INGESTED] else None)
    sent.answers.set()
    async with writing(sent) as writer:
        event = marked(a_call(1))
        [wait] = writer.write([event], lambda: None)
        with pytest.raises(NotDelivered):
            await wait
        assert writer.is_accepted(event[0])


async def test_a_client_that_fails_beyond_repair_is_replaced() -> None:
    """What it held counts as not delivered, what it held of notes is noted by the next."""
    failing = [True]
    sent = Sent(fails=lambda topic, _: RuntimeError("planted") if failing[0] and "call" in topic else None)
    async with writing(sent) as writer:
        released: list[bool] = []
        [wait] = writer.write([marked(a_call(1))], lambda: released.append(True))
        sent.answers.set()
        with pytest.raises(NotDelivered):
            await wait
        failing[0] = False
        await until(lambda: sent.started == 2 and writer.ready)
        [wait] = writer.write([marked(a_call(1))], lambda: None)
        await wait
        assert released == [True]
        assert len(sent.of(Role.CALLS)) == 1


async def test_what_hangs_is_let_go_when_the_client_is_replaced() -> None:
    """Otherwise its room would be lost, and the process never be ready again."""
    sent = Sent()
    async with writing(sent) as writer:
        released: list[bool] = []
        [wait] = writer.write([marked(a_call(1))], lambda: released.append(True))
        await asyncio.sleep(0.01)
        writer._broken.set()
        with pytest.raises(NotDelivered):
            await wait
        await until(lambda: released == [True])
        assert writer.waiting_s == 0


async def test_a_record_that_kafka_refuses_leaves_the_client_as_it_is() -> None:
    """One sender could otherwise have everybody's events fail again and again."""

    class InvalidTimestampError(Exception):
        pass

    sent = Sent(fails=lambda _, value: InvalidTimestampError() if b"call-1" in value else None)
    sent.answers.set()
    async with writing(sent) as writer:
        for number in (1, 2):
            waits = writer.write([marked(a_call(number))], lambda: None)
            await asyncio.gather(*waits, return_exceptions=True)
        assert len(sent.of(Role.CALLS)) == 1
        assert sent.started == 1


async def test_an_event_for_which_there_is_no_room_leaves_those_that_wait_to_the_client_that_has_them() -> None:
    """They may be in Kafka already: another client would write them again."""

    class FullProducer(FakeProducer):
        async def send(self, topic: str, *, value: bytes, **rest: Any) -> Awaitable[Any]:
            if b"call-2" in value:
                raise KafkaTimeoutError
            return await super().send(topic, value=value, **rest)

    sent = Sent()
    async with writing(sent, FullProducer) as writer:
        [waits] = writer.write([marked(a_call(1))], lambda: None)
        [finds_no_room] = writer.write([marked(a_call(2))], lambda: None)
        with pytest.raises(NotDelivered):
            await finds_no_room
        sent.answers.set()
        await waits
        assert len(sent.of(Role.CALLS)) == sent.started == 1


async def test_brokers_that_refuse_it_end_it_and_others_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the fix, which no further attempt would."""
    monkeypatch.setattr("assay_stream.kafka.part._PAUSE_S", 0.0)
    failures = [*[KafkaConnectionError()] * 3, TopicAuthorizationFailedError("calls")]

    class Failing(FakeProducer):
        async def start(self) -> None:
            raise failures.pop(0)

    writer = EventWriter(Settings(), AcceptedWindow(), producer=lambda: Failing(Sent()))
    with pytest.raises(ConfigurationError, match="not_authorized"):
        await writer.run()
    assert not failures
