"""The logs of one topic in Kafka, for synchronous code that may read them several times.

Where each log ends is settled once, at the start: what is written later is not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterator
from types import TracebackType
from typing import Any, TypeVar

from aiokafka.errors import KafkaError

from assay_stream.config import Settings
from assay_stream.errors import OperatingError
from assay_stream.files.seal_files import LogName
from assay_stream.kafka.ranges import LogRanges
from assay_stream.model.record import Record, Role

_SETTLE_LOOKS_MAX = 6
_SETTLE_PAUSE_S = 0.5

_T = TypeVar("_T")


class KafkaLogs:
    """The logs of one topic, while it is entered.

    Args:
        settings: the operator's settings.
        role: what the topic carries.
        runner: runs the client; it must live as long as this does.

    Raises:
        ConfigurationError: ``topic_missing``.
        OperatingError: ``broker_unreachable`` or ``brokers_failing``; the latter also while records are read.
    """

    def __init__(self, settings: Settings, role: Role, runner: asyncio.Runner) -> None:
        self._role = role
        self._runner = runner
        self._limit_s = settings.connect_limit_s
        self._ranges = LogRanges(settings, [role])
        self.settled: dict[LogName, int] = {}
        """Where each log ended before the ends of all of them were noted. What stands before it names nothing that
        they lack, though the logs are being written."""

    @property
    def at_rest(self) -> bool:
        """Whether nothing was written while ends were noted."""
        return all(self._ranges.bounds[name][1] == end for name, end in self.settled.items())

    def __enter__(self) -> KafkaLogs:
        self._run(self._ranges.__aenter__())
        try:
            self._run(self._settle())
        except BaseException:
            self._run(self._ranges.__aexit__(None, None, None))
            raise
        return self

    async def _settle(self) -> None:
        for _ in range(_SETTLE_LOOKS_MAX):
            self.settled = {LogName(*place): end for place, (_, end) in self._ranges.bounds.items()}
            if self._role is not Role.CHECKPOINTS:
                return
            # Time for a transaction that has ended to show in all its partitions.
            await asyncio.sleep(_SETTLE_PAUSE_S)
            await self._ranges.note_ends()
            if self.at_rest:
                return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._ranges.__aexit__(kind, error, trace))

    def __iter__(self) -> Iterator[Record]:
        return (record for name in self.names() for record in self.records(name))

    def names(self) -> list[LogName]:
        """Return which logs there are, sorted."""
        return sorted(LogName(*place) for place in self._ranges.bounds)

    def start(self, name: LogName) -> int:
        """Return the offset at which a log starts now."""
        return self._ranges.bounds.get(name, (0, 0))[0]

    def records(self, name: LogName) -> Iterator[Record]:
        """Yield the committed records of a log."""
        if name not in self._ranges.bounds:
            return
        batches = self._ranges.read(self._role, name.partition)
        try:
            while (batch := self._run(self._next(batches))) is not None:
                yield from batch
        finally:
            self._run(batches.aclose())

    async def _next(self, batches: AsyncGenerator[list[Record], None]) -> list[Record] | None:
        async with asyncio.timeout(self._limit_s):
            return await anext(batches, None)

    def _run(self, step: Coroutine[Any, Any, _T]) -> _T:
        try:
            return self._runner.run(step)
        except (KafkaError, OSError, TimeoutError) as error:
            raise OperatingError(
                "brokers_failing",
                f"reading the {self._role.value} topic failed with {type(error).__name__}: try again",
            ) from error
