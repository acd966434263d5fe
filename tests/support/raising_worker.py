"""A worker whose join agent raises on every batch: ``python -m tests.support.raising_worker worker``."""

from __future__ import annotations

from collections.abc import Sequence

from assay_stream.cli import main
from assay_stream.kafka import runner
from assay_stream.model.record import Output, Record
from assay_stream.worker import worker
from assay_stream.worker.join import JoinState, join_calls


def broken(state: JoinState, records: Sequence[Record]) -> list[Output]:
    join_calls(state, records)
    raise ValueError(records[0].value)


if __name__ == "__main__":
    setattr(worker, "join_calls", broken)  # noqa: B010 - it is imported there, not exported
    setattr(runner, "_REOPENING_PAUSE_S", 0.1)  # noqa: B010 - nobody waits for brokers here
    main()
