"""The logs of one topic in Kafka, for synchronous code that may read them several times.

Where each log ends is settled once, at the start: what is written later is not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Self

from assay_stream.config import Settings
from assay_stream.files.seal_files import LogName
from assay_stream.kafka.ranges import SyncRanges
from assay_stream.model.record import Record, Role

_SETTLE_LOOKS_MAX = 6
_SETTLE_PAUSE_S = 0.5


class KafkaLogs(SyncRanges):
    """The logs of one topic, while it is entered; the arguments and errors are those of ``SyncRanges``."""

    def __init__(self, settings: Settings, role: Role, runner: asyncio.Runner) -> None:
        super().__init__(settings, [role], runner)
        self._role = role
        self.settled: dict[LogName, int] = {}
        """Where each log ended before the ends of all of them were noted. What stands before it names nothing that
        they lack, though the logs are being written."""

    @property
    def at_rest(self) -> bool:
        """Whether nothing was written while ends were noted."""
        return all(self.ranges.bounds[name][1] == end for name, end in self.settled.items())

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self.run(self._settle())
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    async def _settle(self) -> None:
        for _ in range(_SETTLE_LOOKS_MAX):
            self.settled = {LogName(*place): end for place, (_, end) in self.ranges.bounds.items()}
            if self._role is not Role.CHECKPOINTS:
                return
            # Time for a transaction that has ended to show in all its partitions.
            await asyncio.sleep(_SETTLE_PAUSE_S)
            await self.ranges.note_ends()
            if self.at_rest:
                return

    def __iter__(self) -> Iterator[Record]:
        return (record for name in self.names() for record in self.records(name))

    def names(self) -> list[LogName]:
        """Return which logs there are, sorted."""
        return sorted(LogName(*place) for place in self.ranges.bounds)

    def start(self, name: LogName) -> int:
        """Return the offset at which a log starts now."""
        return self.ranges.bounds.get(name, (0, 0))[0]

    def records(self, name: LogName) -> Iterator[Record]:
        """Yield the committed records of a log."""
        if name in self.ranges.bounds:
            for batch in self.batches(self._role, name.partition):
                yield from batch
