"""Looking things up in the topics, over given records."""

from __future__ import annotations

import pytest

from assay_stream.config import load_settings
from assay_stream.join.routing import Routing, reroute
from assay_stream.kafka import lookup, ranges
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import TOPIC_NAMES, Origin, Record, Role
from tests.support.events import SERVER
from tests.support.log_ranges import LogsInMemory, stand_in

SETTINGS = load_settings()


def use(monkeypatch: pytest.MonkeyPatch, role: Role, *partitions: list[Record]) -> None:
    placed = [
        record._replace(origin=Origin(TOPIC_NAMES[role], number, offset))
        for number, records in enumerate(partitions)
        for offset, record in enumerate(records)
    ]
    stand_in(monkeypatch, lookup, LogsInMemory(placed))


def a_record(role: Role, value: bytes | None, key: bytes | None = None) -> Record:
    return Record(role=role, origin=Origin(TOPIC_NAMES[role], 0, 0), key=key, value=value)


async def test_records_are_read_from_a_time_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first one of that time or later; what stands behind it is read whatever its time."""
    records = [a_record(Role.EVIDENCE, b"{}")._replace(timestamp_ms=time_ms) for time_ms in (1, 5, 3)]
    use(monkeypatch, Role.EVIDENCE, records, [])
    read = [record.timestamp_ms async for record in lookup.read_records(load_settings(), Role.EVIDENCE, since_ms=4)]
    assert read == [5, 3]


async def test_the_join_has_come_as_far_as_the_first_copy_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that was re-routed and has no evidence yet is not missing any; one that was joined counts as done."""
    names = topic_names(SETTINGS)
    routing = Routing(calls=2, bindings=2)
    calls = [Record(Role.CALLS, Origin(names[Role.CALLS], 1, offset), b"", b"") for offset in (3, 5, 7)]
    copies = [reroute(call, SERVER, routing) for call in calls]
    [number] = {copy.partition or 0 for copy in copies}
    placed = [
        Record(Role.REROUTED, Origin(names[Role.REROUTED], number, offset), copy.key, copy.value, copy.headers)
        for offset, copy in enumerate(copies)
    ]

    async def committed(*_: object) -> dict[tuple[str, int], int]:
        return {(names[Role.CALLS], 0): 4, (names[Role.CALLS], 1): 9, (names[Role.REROUTED], number): 1}

    monkeypatch.setattr(lookup, "committed_offsets", committed)
    logs = stand_in(monkeypatch, lookup, LogsInMemory(placed))
    stand_in(monkeypatch, ranges, logs)
    assert await lookup.joined_offsets(SETTINGS) == {(names[Role.CALLS], 0): 4, (names[Role.CALLS], 1): 5}
    assert logs.opened
