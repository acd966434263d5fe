"""Records that kill their worker: found, tried a bounded number of times across restarts, then set aside.

Pure: returns the task's next step as data. The task writes each mark into the metadata of its group's committed
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
    FREE = "free"
    BATCH = "batch"
    FEW = "few"
    ONE = "one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """Suspicion of the next records; as a mark, that of an owner before it began on them.

    Args:
        left: number of suspect records.
        record: at ``ONE``: the record tried last.
        attempt: at ``ONE``: number of its attempts.
    """

    level: SuspicionLevel = SuspicionLevel.BATCH
    left: int = 0
    record: Origin | None = None
    attempt: int = 0

    def plan(self, first: Origin, available: int, *, attempts_max: int) -> Plan:
        match self.level:
            case SuspicionLevel.FREE:
                return Plan(count=available)
            case SuspicionLevel.BATCH:
                return Plan(count=available, mark=Suspicion(left=available))
            case SuspicionLevel.FEW:
                count = min(available, self.left, _FEW_RECORDS)
                return Plan(count=count, mark=replace(self, left=count))
            case SuspicionLevel.ONE:
                attempts = self.attempt if first == self.record else 0
                if attempts >= attempts_max:
                    return Plan(count=1, set_aside=True)
                return Plan(count=1, mark=replace(self, record=first, attempt=attempts + 1))

    def after(self, count: int) -> Suspicion:
        """Return the remaining suspicion after ``count`` records were committed."""
        if self.level in (SuspicionLevel.FREE, SuspicionLevel.BATCH):
            return Suspicion(level=SuspicionLevel.FREE)
        left = self.left - count
        return Suspicion(level=self.level, left=left) if left > 0 else Suspicion()

    def encode(self) -> str:
        record = None if self.record is None else list(self.record)
        fields = {"level": self.level.value, "left": self.left, "record": record, "attempt": self.attempt}
        return orjson.dumps(fields).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to process the next records.

    Args:
        mark: what to write first; ``None`` for nothing.
        set_aside: reject the record instead of trying it.
    """

    count: int
    mark: Suspicion | None = None
    set_aside: bool = False


def suspicion_after(metadata: str) -> Suspicion:
    """Return the suspicion implied by the previous owner's metadata: a mark, if it ended during processing.

    Kafka's own tools write metadata there too.
    """
    try:
        fields = orjson.loads(metadata)
        level = SuspicionLevel(fields["level"])
        record = None if fields["record"] is None else Origin(*fields["record"])
        left, attempt = int(fields["left"]), int(fields["attempt"])
    except (ValueError, TypeError, KeyError):
        return Suspicion()
    following = SuspicionLevel.FEW if level is SuspicionLevel.BATCH else SuspicionLevel.ONE
    return Suspicion(level=following, left=left, record=record, attempt=attempt)
