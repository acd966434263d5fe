"""Faust's own consumer: what it commits where offsets have gaps, and whether its thread keeps the process."""

# ruff: noqa: ARG002 - the signatures are the client's

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest
from faust.transport.consumer import Consumer
from faust.types import TP
from intervaltree import IntervalTree
from mode.threads import WorkerThread

from assay_stream.config import load_settings
from assay_stream.core.record import Role
from assay_stream.stream.app import WorkerBuilder
from assay_stream.stream.faust_consumer import commit_no_more, note_gaps_exactly

PARTITION = TP("findings", 0)
RECORDS = (0, 1, 3, 4, 6, 9)
"""Offsets of records; what is missing between them are markers of transactions."""


class Offsets:
    """The part of Faust's consumer that works out what to commit."""

    _add_gap = Consumer._add_gap
    _new_offset = Consumer._new_offset

    def __init__(self) -> None:
        self._acked: Any = defaultdict(list)
        self._acked_index: Any = defaultdict(set)
        self._gap: Any = defaultdict(IntervalTree)
        self._committed_offset: Any = defaultdict(lambda: None)


async def after_all(consumer: Any) -> int | None:
    """What Faust commits once every record was read and acknowledged."""
    for before, offset in pairwise(RECORDS):
        if offset > before + 1:
            await consumer._add_gap(PARTITION, before + 1, offset)
    consumer._acked[PARTITION].extend(RECORDS)
    offset: int | None = consumer._new_offset(PARTITION)
    return offset


async def test_one_commit_passes_every_gap() -> None:
    """However many transactions the records came in, one commit covers all that was acknowledged."""
    assert await after_all(note_gaps_exactly(Offsets())) == RECORDS[-1] + 1


async def test_a_record_after_a_gap_is_not_committed_before_it_is_acknowledged() -> None:
    """A gap takes the commit up to the record that ends it, and no further."""
    consumer = note_gaps_exactly(Offsets())
    await consumer._add_gap(PARTITION, 2, 3)
    consumer._acked[PARTITION].extend([0, 1])
    assert consumer._new_offset(PARTITION) in (2, 3)


@pytest.mark.xfail(strict=True, reason="faust-streaming 0.15: once this passes, note_gaps_exactly can go")
async def test_faust_itself_commits_no_further_than_one_gap() -> None:
    """Left alone Faust stops behind the first gap: what note_gaps_exactly is for."""
    assert await after_all(Offsets()) == RECORDS[-1] + 1


class Committing:
    """The part of Faust's consumer that decides what to commit."""

    _commit_tps = Consumer._commit_tps

    def __init__(self) -> None:
        self.committed: list[Any] = []

    def _filter_committable_offsets(self, partitions: Any) -> Any:
        return dict.fromkeys(partitions, 7)

    async def _handle_attached(self, offsets: Any) -> None:
        pass

    async def _commit_offsets(self, offsets: Any, start_new_transaction: bool = True) -> bool:
        self.committed.append(offsets)
        return True


async def test_a_worker_that_ends_in_the_middle_of_an_event_commits_nothing() -> None:
    """Faust acknowledges the event of a cancelled agent; no commit makes it final."""
    consumer: Any = Committing()
    assert await consumer._commit_tps([PARTITION], True)
    commit_no_more(consumer)
    assert not await consumer._commit_tps([PARTITION], True)
    assert len(consumer.committed) == 1


async def test_the_consumer_of_a_worker_is_set_right() -> None:
    """Its thread ends with the process: the thread that Faust makes by itself would keep it."""
    worker = WorkerBuilder(load_settings(), frozenset({"alerts"}), dict.fromkeys(Role, 1))
    thread = worker.app.consumer._thread
    try:
        assert thread.Worker(thread).daemon
        assert not WorkerThread(thread).daemon
    finally:
        thread.thread_loop.close()
