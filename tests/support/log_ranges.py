"""Topics in memory, in place of ``kafka.ranges.LogRanges``."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import nullcontext
from types import TracebackType
from typing import Any

import pytest

from assay_stream.cli import shared
from assay_stream.config import Settings
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import TOPIC_NAMES, Origin, Record, Role
from tests.support.events import Story


def topics_of(story: Story, settings: Settings) -> list[Record]:
    """What a live run of a story leaves in the topics: its input, and what the stages wrote of it but facts."""
    names = topic_names(settings)
    story.records = [
        record._replace(origin=record.origin._replace(topic=names[record.role])) for record in story.records
    ]
    records = list(story.records)
    counts: Counter[Role] = Counter()
    for output in story.tell().outputs:
        place = Origin(names[output.role], 0, counts[output.role])
        counts[output.role] += 1
        records.append(Record(output.role, place, output.key, output.value, output.headers, output.timestamp_ms))
    return records


class LogsInMemory:
    def __init__(self, records: Iterable[Record], firsts: dict[tuple[str, int], int] | None = None) -> None:
        self._records = list(records)
        self._firsts = firsts or {}
        self.opened: list[Sequence[Role]] = []
        self.bounds: dict[tuple[str, int], tuple[int, int]] = {}
        for record in self._records:
            place = record.origin[:2]
            first, end = self.bounds.get(place, (self._firsts.get(place, 0), 0))
            self.bounds[place] = (first, max(end, record.origin.offset + 1))

    def __call__(self, settings: Settings, roles: Sequence[Role], **_: Any) -> LogsInMemory:
        assert settings
        self.opened.append(roles)
        return self

    async def __aenter__(self) -> LogsInMemory:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def partitions(self, role: Role) -> list[int]:
        found = {record.origin.partition for record in self._records if record.role is role}
        return sorted(found | {number for topic, number in self.bounds if topic == TOPIC_NAMES[role]})

    def starts(self) -> dict[tuple[str, int], int]:
        return {place: first for place, (first, _) in self.bounds.items()}

    def ends(self) -> dict[Role, dict[int, int]]:
        ends: dict[Role, dict[int, int]] = {role: {} for role in self.opened[-1]}
        for record in self._records:
            if record.role in ends:
                ends[record.role][record.origin.partition] = self.bounds[record.origin[:2]][1]
        return ends

    async def offset_at(self, role: Role, number: int, time_ms: int) -> int:
        offsets = [
            record.origin.offset
            for record in self._records
            if record.role is role and record.origin.partition == number and record.timestamp_ms >= time_ms
        ]
        return min(offsets, default=2**40)

    async def read(
        self, role: Role, number: int, *, first: int = 0, end: int | None = None
    ) -> AsyncGenerator[list[Record], None]:
        found = [
            record
            for record in self._records
            if record.role is role
            and record.origin.partition == number
            and record.origin.offset >= max(first, self._firsts.get(record.origin[:2], 0))
            and (end is None or record.origin.offset < end)
        ]
        for at in range(0, len(found), 2):
            yield found[at : at + 2]

    async def records(self, role: Role, *, since_ms: int | None = None) -> AsyncIterator[Record]:
        for number in self.partitions(role):
            first = 0 if since_ms is None else await self.offset_at(role, number, since_ms)
            async for batch in self.read(role, number, first=first):
                for record in batch:
                    yield record


def stand_in(monkeypatch: pytest.MonkeyPatch, module: Any, logs: LogsInMemory) -> LogsInMemory:
    monkeypatch.setattr(module, "LogRanges", logs)
    # Commands wait for the brokers first.
    monkeypatch.setattr(shared, "open_admin", lambda *_, **__: nullcontext())
    return logs
