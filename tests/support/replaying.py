"""A replay of records at hand, in one call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any

from assay_stream.files.spool import LogSpool
from assay_stream.model.evidence import Producer
from assay_stream.model.record import Output, Record
from assay_stream.replay.run import Replay


def spooled(records: Iterable[Record]) -> LogSpool:
    """Return a finished spool of records of any partitions, in any order; raises ``conflicting_records``."""
    with ExitStack() as undoing:
        spool = undoing.enter_context(LogSpool())
        for record in records:
            spool.add(record)
        spool.finish()
        undoing.pop_all()
    return spool


def replay(records: Iterable[Record], *, producer: Producer, **options: Any) -> Iterator[Output]:
    """Yield everything the stages write for these records: evidence, alerts, definitions, rejected records."""
    with spooled(records) as spool:
        for outputs in Replay(spool, producer=producer, **options).steps():
            yield from outputs
