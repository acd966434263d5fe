"""Records that kill their worker: found, tried a bounded number of times across restarts, then set aside.

Pure: what a task is to do next, as data. The task writes each mark into the metadata of its group's committed
offset, in a transaction, before it begins on the records. A commit of records leaves no mark. So a mark that is
found on opening says that its owner ended while it worked on them, and the transactional id sees to it that no
other owner could have written it.

1. ``FREE``: nothing is suspected, nothing is marked. Marks cost a transaction each.
2. ``BATCH``: the first batch after opening is marked.
3. ``FEW``: an owner ended in a marked batch. Its records are tried a few at a time.
4. ``ONE``: an owner ended in a few. They are tried one by one, and each mark names its record and counts.
5. A record that is named with as many attempts as are allowed is set aside.

A span that was passed without another end goes back to ``BATCH``, and from there to ``FREE``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

import orjson

from assay_stream.model.record import Origin

_FEW_RECORDS = 32
"""Records tried together: a marked batch of thousands costs hundreds of transactions, some seconds."""


class SuspicionLevel(StrEnum):
    """How much is suspected."""

    FREE = "free"
    BATCH = "batch"
    FEW = "few"
    ONE = "one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What an owner noted before it began.

    Args:
        left: how many records it was about to try.
        record: at ``ONE``: which.
        attempt: at ``ONE``: which attempt at it this is, counted from 1.
    """

    level: SuspicionLevel
    left: int
    record: Origin | None = None
    attempt: int = 0

    def encode(self) -> str:
        record = None if self.record is None else list(self.record)
        return orjson.dumps(
            {"level": self.level.value, "left": self.left, "record": record, "attempt": self.attempt}
        ).decode()


def decode_mark(metadata: str) -> Mark | None:
    try:
        fields = orjson.loads(metadata)
        record = None if fields["record"] is None else Origin(*fields["record"])
        return Mark(
            level=SuspicionLevel(fields["level"]),
            left=int(fields["left"]),
            record=record,
            attempt=int(fields["attempt"]),
        )
    except (ValueError, TypeError, KeyError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to take the next records.

    Args:
        mark: what to write first; ``None`` for nothing.
        set_aside: refuse the one record instead of trying it.
    """

    count: int
    mark: Mark | None = None
    set_aside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """What one owner of a partition suspects.

    Args:
        left: how many records the suspicion is still about.
        record: at ``ONE``: the record that an owner ended in last.
        attempts: how often it was tried.
    """

    level: SuspicionLevel = SuspicionLevel.BATCH
    left: int = 0
    record: Origin | None = None
    attempts: int = 0

    def plan(self, first: Origin, available: int, *, attempts_max: int) -> Plan:
        match self.level:
            case SuspicionLevel.FREE:
                return Plan(count=available)
            case SuspicionLevel.BATCH:
                return Plan(count=available, mark=Mark(level=SuspicionLevel.BATCH, left=available))
            case SuspicionLevel.FEW:
                count = min(available, self.left, _FEW_RECORDS)
                return Plan(count=count, mark=Mark(level=SuspicionLevel.FEW, left=count))
            case SuspicionLevel.ONE:
                attempts = self.attempts if first == self.record else 0
                if attempts >= attempts_max:
                    return Plan(count=1, set_aside=True)
                mark = Mark(level=SuspicionLevel.ONE, left=self.left, record=first, attempt=attempts + 1)
                return Plan(count=1, mark=mark)

    def after(self, count: int) -> Suspicion:
        """Return what is suspected once some records were committed."""
        if self.level in (SuspicionLevel.FREE, SuspicionLevel.BATCH):
            return Suspicion(level=SuspicionLevel.FREE)
        left = self.left - count
        if left <= 0:
            return Suspicion(level=SuspicionLevel.BATCH)
        return replace(self, left=left, record=None, attempts=0)


def suspicion_after(mark: Mark | None) -> Suspicion:
    if mark is None:
        return Suspicion()
    match mark.level:
        case SuspicionLevel.BATCH:
            return Suspicion(level=SuspicionLevel.FEW, left=mark.left)
        case SuspicionLevel.FEW:
            return Suspicion(level=SuspicionLevel.ONE, left=mark.left)
        case _:
            return Suspicion(level=SuspicionLevel.ONE, left=mark.left, record=mark.record, attempts=mark.attempt)
