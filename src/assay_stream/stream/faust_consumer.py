"""Faust's consumer, set right (faust-streaming 0.15, mode-streaming 0.7).

1. *Gaps.* Transactions leave markers between records, which a consumer never sees. Faust notes the gap, but the
   record after it too (`Consumer._add_gap`). That record then counts twice, Faust takes the second for the
   beginning of another run, and commits no further than one gap at a time: its group falls behind for good.
2. *Its thread.* It can outlive a worker that has stopped, send heartbeats and keep its partitions.
"""

from __future__ import annotations

from typing import Any

from mode.threads import WorkerThread


class ThreadOfProcess(WorkerThread):  # type: ignore[misc]
    """A thread that ends with the process, and does not keep it."""

    def __init__(self, service: Any, **options: Any) -> None:
        super().__init__(service, **options)
        self.daemon = True


def set_right(consumer: Any) -> Any:
    """Have a Faust consumer note gaps as they are, and end with its process.

    Args:
        consumer: the consumer, before it has been started.

    Returns:
        The same consumer.
    """
    consumer._thread.Worker = ThreadOfProcess
    return note_gaps_exactly(consumer)


def note_gaps_exactly(consumer: Any) -> Any:
    """Have a Faust consumer note the offsets of a gap without the record that ends it.

    Args:
        consumer: the consumer, before it has read anything.

    Returns:
        The same consumer.
    """
    add_gap = consumer._add_gap

    async def add_gap_before(partition: Any, first: int, next_record: int) -> None:
        await add_gap(partition, first, next_record - 1)

    consumer._add_gap = add_gap_before
    return consumer


def commit_no_more(consumer: Any) -> None:
    """Have a Faust consumer commit nothing from now on: what was in hand is read again by whoever comes next.

    Faust acknowledges an event whose agent ends, also where it is cancelled in the middle of it, and commits when
    it stops.

    Args:
        consumer: the consumer of a worker that is about to end.
    """

    async def nothing(*_: Any, **__: Any) -> bool:
        return False

    consumer._commit_offsets = nothing
