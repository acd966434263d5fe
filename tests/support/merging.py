"""The order of a replay, for tests that look at nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.record import Record
from assay_stream.replay.order import Merge
from assay_stream.replay.run import spooled


def merge_by_event_time(records: Iterable[Record]) -> list[Record]:
    with spooled(records) as spool:
        return [placed.record for placed in Merge(spool, limits=DEFAULT_LIMITS, call_profile="assay").read({})]
