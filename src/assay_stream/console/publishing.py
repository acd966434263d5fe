"""Decisions of the console on their way to Kafka: the same events as those of the commands."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

from assay_stream.config import Settings
from assay_stream.console.forms import Decision
from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.kafka.connection import connection_options, start_admin
from assay_stream.kafka.refusals import explained
from assay_stream.kafka.topics import topic_names
from assay_stream.limits.console import CONSOLE_LIMITS, ConsoleLimits
from assay_stream.observe.decisions import decision_event
from assay_stream.observe.delivery import KafkaProducer, PublisherLimits, aiokafka_producer, disconnect, send_all
from assay_stream.observe.observation import Observation


class KafkaPublish:
    """Publishes decisions over a connection that is kept open while it works.

    Args:
        connect: returns a started producer.
        clock: the time now.
        new_id: makes ids of events.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        connect: Callable[[Settings], Awaitable[KafkaProducer]] | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        limits: ConsoleLimits = CONSOLE_LIMITS,
    ) -> None:
        self._settings = settings
        self._connect = connect or _connected
        self._clock = clock
        self._new_id = new_id
        self._limits = limits
        self._topics = topic_names(settings)
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._producer: KafkaProducer | None = None

    async def __call__(self, decisions: Sequence[Decision], author: str) -> None:
        """Publish decisions of an author, and return once all replicas have all of them.

        Raises:
            InputError: where a decision is wrong; none is published then.
            ConfigurationError: where the brokers do not allow it: none is published.
            OperatingError: ``console_busy``, ``broker_unreachable``: none is published; ``not_delivered``: some may be.
        """
        now = self._clock()
        events = [
            decision_event(kind, {**data, "author": author}, author=author, event_id=self._new_id(), decided_at=now)
            for kind, data in decisions
        ]
        if self._waiting >= self._limits.decisions_waiting_max:
            raise OperatingError("console_busy", "too many decisions wait for Kafka: try again in a minute")
        self._waiting += 1
        try:
            async with self._turn:
                await self._send(events)
        finally:
            self._waiting -= 1

    async def aclose(self) -> None:
        """Disconnect."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await disconnect(producer)

    async def _send(self, events: Sequence[Observation]) -> None:
        if self._producer is None:
            self._producer = await self._connect(self._settings)
        try:
            async with asyncio.timeout(self._limits.decision_limit_s):
                outcomes = await send_all(self._producer, self._topics, events)
        except TimeoutError as error:
            outcomes = [error] * len(events)
        except BaseException:
            await self.aclose()
            raise
        failed = [outcome for outcome in outcomes if outcome is not None]
        if not failed:
            return
        # Closed: what is still under way must not arrive when nobody expects it any more.
        await self.aclose()
        refusals = [known for each in failed if isinstance(known := explained(each), ConfigurationError)]
        if len(refusals) == len(events):
            raise refusals[0]
        raise OperatingError(
            "not_delivered",
            f"{len(failed)} of {len(events)} decisions were not acknowledged by Kafka ({type(failed[0]).__name__}). "
            "Look what is recorded in a minute, then send it again: a decision that is there twice changes nothing",
        )


async def _connected(settings: Settings) -> KafkaProducer:
    """Return a started producer.

    Raises:
        AssayStreamError: why there is none, as ``start_admin``.
    """
    await (await start_admin(settings)).close()
    producer = aiokafka_producer(connection_options(settings), PublisherLimits())
    try:
        await producer.start()
    except Exception as error:
        await disconnect(producer)
        known = explained(error)
        if known is not None:
            raise known from None
        raise
    return producer
