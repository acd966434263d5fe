"""Stand-ins for Kafka: what they are sent, and what they do with it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from assay_stream.model.record import TOPIC_NAMES, Role


@dataclass
class Sent:
    """What arrived, by topic; shared by the producers that one writer makes."""

    values: dict[str, list[bytes]] = field(default_factory=dict)
    fails: Callable[[str, bytes], Exception | None] = lambda topic, value: None  # noqa: ARG005
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    started: int = 0

    def of(self, role: Role) -> list[bytes]:
        return self.values.get(TOPIC_NAMES[role], [])


class FakeProducer:
    def __init__(self, sent: Sent) -> None:
        self.sent = sent

    async def start(self) -> None:
        self.sent.started += 1

    async def stop(self) -> None:
        pass

    async def partitions_for(self, _: str, /) -> set[int]:
        return {0}

    async def send(self, topic: str, *, value: bytes, **_: Any) -> Awaitable[Any]:
        async def acknowledged() -> None:
            await self.sent.answers.wait()
            failure = self.sent.fails(topic, value)
            if failure is not None:
                raise failure
            self.sent.values.setdefault(topic, []).append(value)

        return asyncio.ensure_future(acknowledged())
