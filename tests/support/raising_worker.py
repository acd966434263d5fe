"""A worker whose join agent raises on every batch: ``python -m tests.support.raising_worker worker``."""

from __future__ import annotations

from assay_stream.cli import main
from assay_stream.model.record import Output, Record
from assay_stream.worker import agents
from assay_stream.worker.join import Joining, join_call


def broken(state: Joining, record: Record) -> list[Output]:
    """Join a call, and raise with what is in it."""
    join_call(state, record)
    raise ValueError(record.value)


if __name__ == "__main__":
    setattr(agents, "join_call", broken)  # noqa: B010 - it is imported there, not exported
    main()
