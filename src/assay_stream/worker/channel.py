"""Faust agents over batches: an application, and the channel between a partition task and its agent.

The partition task puts a batch on the channel and waits until the agent asks for the next one. Then it commits what
the agent wrote, the state and the offsets in one transaction. What an agent raises is raised in the task instead,
which aborts and tries again; the agent goes on with the next batch. Faust holds no offsets and no state.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import wraps
from typing import Any

import faust
from faust.app import BootStrategy

from assay_stream.errors import OperatingError
from assay_stream.kafka.partition import Batch, BatchDropped, place_of

Batches = AsyncIterator[Batch[Any]]
AgentFunction = Callable[[Batches], Awaitable[None]]


class TransactionalChannel(faust.Channel):  # type: ignore[misc]
    """A channel whose events are batches. Its agent runs once per partition, so that no batch waits for another's.

    Args:
        name: the stage whose batches it carries.
    """

    def __init__(self, app: faust.App, *, name: str = "", partitions: int = 1, **options: Any) -> None:
        super().__init__(app, **options)
        self.name = name
        self.partitions = partitions
        self._ended: OperatingError | None = None
        self._waiting: dict[Batch[Any], asyncio.Future[None]] = {}

    async def process(self, batch: Batch[Any]) -> None:
        """Pass a batch to the agent, and wait until the agent is done with it.

        Raises:
            OperatingError: ``agent_failed`` if the agent returned, or failed outside any batch.
            Exception: what the agent raised.
        """
        if self._ended is not None:
            raise self._ended
        done = self._waiting[batch] = asyncio.get_running_loop().create_future()
        try:
            await self.send(value=batch)
            await done
        finally:
            del self._waiting[batch]

    def guarded(self, function: AgentFunction) -> Callable[[AsyncIterator[Any]], Awaitable[None]]:
        """Return an agent function that settles every batch it takes, however it leaves it."""

        @wraps(function)
        async def agent(stream: AsyncIterator[Any]) -> None:
            # Faust's stream, which outlives an exception of the agent.
            events, in_hand, is_exhausted = aiter(stream), list[Batch[Any]](), False

            async def batches() -> AsyncGenerator[Batch[Any], None]:
                nonlocal is_exhausted
                async for batch in events:
                    in_hand.append(batch)
                    yield batch
                    # Requesting the next batch acknowledges this one.
                    self._settle(in_hand.pop(), None)
                is_exhausted = True

            why = f"the {self.name} agent returned: an agent iterates over its batches until the worker stops"
            while True:
                try:
                    async with aclosing(batches()) as given:
                        await function(given)
                    break
                except Exception as error:  # noqa: BLE001 - the task that waits for the batch raises it
                    if not in_hand:
                        why = f"the {self.name} agent failed outside any batch: {place_of(error)}"
                        break
                    self._settle(in_hand.pop(), error)
                except asyncio.CancelledError:
                    if in_hand:
                        self._settle(in_hand.pop(), BatchDropped())
                    raise
            if not is_exhausted:
                self._end(OperatingError("agent_failed", why))

        return agent

    def _settle(self, batch: Batch[Any], error: Exception | None) -> None:
        done = self._waiting.get(batch)
        if done is None or done.done():
            return  # dropped meanwhile
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def _end(self, error: OperatingError) -> None:
        """Fail all waiting batches: with one run of the agent gone, some would wait forever."""
        self._ended = error
        for done in self._waiting.values():
            if not done.done():
                done.set_exception(error)


class _WithoutKafka(BootStrategy):  # type: ignore[misc]
    """Faust runs the agents; ``kafka.runner`` talks to Kafka."""

    enable_kafka = False


class AgentApp(faust.App):  # type: ignore[misc]
    """A Faust application whose agents work on batches."""

    BootStrategy = _WithoutKafka

    async def on_first_start(self) -> None:
        """Let streams flow: otherwise Faust's own consumer does it. Tables are not used and need no folder."""
        self.flow_control.resume()

    def agent(self, channel: TransactionalChannel, **options: Any) -> Callable[[AgentFunction], faust.Agent]:
        """Declare the agent of a channel."""
        declare = super().agent

        def declared(function: AgentFunction) -> faust.Agent:
            named = {"name": channel.name, "concurrency": channel.partitions, **options}
            return declare(channel, **named)(channel.guarded(function))

        return declared
