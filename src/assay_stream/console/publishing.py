"""Decisions of the console on their way to Kafka: the same events as those of the commands."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial

from assay_stream.config import Settings
from assay_stream.console.forms import Decision
from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.kafka.connection import start_producer
from assay_stream.kafka.publishing import AcknowledgedPublisher, KafkaProducer
from assay_stream.kafka.refusals import explained
from assay_stream.kafka.topics import topic_names
from assay_stream.limits.console import CONSOLE_LIMITS, ConsoleLimits
from assay_stream.observe.decisions import decision_event
from assay_stream.observe.observation import Observation


class KafkaPublish:
    """Publish decisions over a connection that is kept open until it fails.

    Args:
        connect: returns a started producer.
        clock: current time.
        new_id: generates event ids.
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
        self._publisher = AcknowledgedPublisher(
            partial(connect or start_producer, settings), topic_names(settings), limit_s=limits.decision_limit_s
        )
        self._clock = clock
        self._new_id = new_id
        self._limits = limits
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def __call__(self, decisions: Sequence[Decision], author: str) -> None:
        """Publish decisions, and return once all in-sync replicas have all of them.

        Raises:
            InputError: for an invalid decision; none is published.
            ConfigurationError: if the brokers do not allow it; none is published.
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
        await self._publisher.aclose()

    async def _send(self, events: Sequence[Observation]) -> None:
        failed = await self._publisher.publish(events)
        if not failed:
            return
        refusals = [known for each in failed if isinstance(known := explained(each), ConfigurationError)]
        if len(refusals) == len(events):
            raise refusals[0]
        raise OperatingError(
            "not_delivered",
            f"{len(failed)} of {len(events)} decisions were not acknowledged by Kafka ({type(failed[0]).__name__}). "
            "Look what is recorded in a minute, then send it again: a decision that is there twice changes nothing",
        )
