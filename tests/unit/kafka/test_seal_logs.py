"""Logs in Kafka for code that is not asynchronous, over ranges in memory."""

# ruff: noqa: ARG002 - the signatures are the client's

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator

import pytest
from aiokafka.errors import KafkaConnectionError

from assay_stream.config import Settings, load_settings
from assay_stream.errors import OperatingError
from assay_stream.files.seal_files import LogName
from assay_stream.kafka import ranges
from assay_stream.kafka.seal_logs import KafkaLogs
from assay_stream.model.record import Record, Role
from tests.support.seals import TOPIC, some_records

RECORDS = some_records(*range(3, 10))


class Ranges:
    """Partition 0 has records, two a batch; partition 1 is empty."""

    error: Exception | None = None
    is_stuck = False
    entered = 0
    reading = 0

    def __init__(self, settings: Settings, roles: list[Role]) -> None:
        assert roles == [Role.EVIDENCE]
        self.bounds = {(TOPIC, 0): (3, 10), (TOPIC, 1): (0, 0)}

    async def __aenter__(self) -> Ranges:
        Ranges.entered += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        Ranges.entered -= 1

    async def read(self, role: Role, number: int, **_: object) -> AsyncGenerator[list[Record], None]:
        """The batches."""
        if Ranges.error is not None:
            raise Ranges.error
        Ranges.reading += 1
        try:
            if Ranges.is_stuck:
                await asyncio.sleep(3_600)
            for at in range(0, 0 if number else len(RECORDS), 2):
                yield RECORDS[at : at + 2]
        finally:
            Ranges.reading -= 1


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaLogs]:
    """The evidence of two partitions."""
    monkeypatch.setattr(ranges, "LogRanges", Ranges)
    monkeypatch.setattr(Ranges, "error", None)
    monkeypatch.setattr(Ranges, "is_stuck", False)
    with asyncio.Runner() as runner, KafkaLogs(load_settings(connect_limit_s=1), Role.EVIDENCE, runner) as made:
        assert Ranges.entered == 1
        yield made
    assert (Ranges.entered, Ranges.reading) == (0, 0)


def test_a_log_can_be_read_several_times(logs: KafkaLogs) -> None:
    """Record by record."""
    assert logs.names() == [LogName(TOPIC, 0), LogName(TOPIC, 1)]
    for _ in range(2):
        assert list(logs.records(LogName(TOPIC, 0))) == RECORDS
        assert list(logs) == RECORDS, "all logs, one after the other"
    assert (logs.start(LogName(TOPIC, 0)), logs.start(LogName(TOPIC, 1))) == (3, 0)


def test_a_log_that_is_empty_or_not_there_has_no_records(logs: KafkaLogs) -> None:
    """Of another topic neither."""
    assert list(logs.records(LogName(TOPIC, 1))) == []
    assert list(logs.records(LogName("other", 0))) == []
    assert logs.start(LogName("other", 0)) == 0


def test_a_log_that_is_left_early_leaves_nothing_open(logs: KafkaLogs) -> None:
    """The fixture counts."""
    records = logs.records(LogName(TOPIC, 0))
    assert next(records) == RECORDS[0]
    assert Ranges.reading == 1
    records.close()  # type: ignore[attr-defined]


def test_a_broker_that_fails_is_an_error_of_ours(logs: KafkaLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    """So is one that gives nothing for too long."""
    monkeypatch.setattr(Ranges, "error", KafkaConnectionError())
    with pytest.raises(OperatingError, match="brokers_failing"):
        list(logs.records(LogName(TOPIC, 0)))
    monkeypatch.setattr(Ranges, "error", None)
    monkeypatch.setattr(Ranges, "is_stuck", True)
    with pytest.raises(OperatingError, match="brokers_failing"):
        list(logs.records(LogName(TOPIC, 0)))
