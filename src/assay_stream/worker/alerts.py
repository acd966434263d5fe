"""The alert stage on Kafka: findings in, alerts out, with a table that remembers each alert.

Alerts, the states behind them and the offsets of the findings are one transaction. So a crash neither loses a
finding nor counts it twice (``docs/adr/0015``).

Time is read from the finding topic like all else. The stage writes a tick into a partition of its own when an
alert there is due; what is written for it follows from the log, whoever reads it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import structlog
from aiokafka import TopicPartition

from assay_stream.alerts.life_cycle import AlertRules
from assay_stream.alerts.table import AlertTable
from assay_stream.config import Settings
from assay_stream.kafka.state_thread import EngineThread
from assay_stream.kafka.transport import read_to_end
from assay_stream.model.record import Output, Record, Role
from assay_stream.worker.metrics import StageMeter

_log = structlog.get_logger(__name__)


class AlertStage:
    """One alert table per partition, restored from the partition's own states.

    Args:
        settings: the operator's settings.
        topics: topic name of every role.
        rules: what the stage is told.
        clock_us: gives the time, microseconds since the epoch.
        meter: where to count.
    """

    name = "alerts"
    input_roles = (Role.FINDINGS,)
    piece_records = 1
    changes = 0

    def __init__(
        self,
        settings: Settings,
        *,
        topics: Mapping[Role, str],
        rules: AlertRules,
        clock_us: Callable[[], int],
        meter: StageMeter,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._rules = rules
        self._clock_us = clock_us
        self._meter = meter
        self._tables: dict[int, AlertTable] = {}
        self._threads: dict[int, EngineThread] = {}
        self._looked_s: dict[int, float] = {}
        """Partition to when it was last asked whether an alert is due."""

    @property
    def entries(self) -> int:
        """How many states its tables hold."""
        return sum(len(table) for table in self._tables.values())

    async def open(self, partition: int) -> Mapping[TopicPartition, int | None]:
        """Restore the partition's table; the findings go on from where it was written last.

        Without a table, or with a part of one, they are read from the beginning, whatever the group committed:
        every count would start anew otherwise.
        """
        table = AlertTable(partition, self._rules)
        log = TopicPartition(self._topics[Role.ALERT_STATES], partition)
        async for record in read_to_end(self._settings, Role.ALERT_STATES, log):
            table.restore(record)
        self._tables[partition] = table
        self._threads[partition] = EngineThread(f"alerts-{partition}")
        return {TopicPartition(self._topics[Role.FINDINGS], partition): table.restored()}

    def close(self, partition: int) -> None:
        """Drop the partition's table."""
        self._tables.pop(partition, None)
        if (thread := self._threads.pop(partition, None)) is not None:
            thread.close()

    def thread(self, partition: int) -> EngineThread:
        """Return the partition's own thread."""
        return self._threads[partition]

    async def done_before(self, partition: int) -> Mapping[TopicPartition, int]:
        """Its table's progress says it all: see ``open``."""
        return {}

    async def note_ends(self) -> Mapping[TopicPartition, int]:
        """Nothing comes before a finding."""
        return {}

    def admit(self, records: Sequence[Record], ends: Mapping[TopicPartition, int]) -> int:
        """Everything can be processed at once."""
        return len(records)

    async def wait(self, limit_s: float, *, since: int) -> None:
        """Nothing is ever held."""
        raise AssertionError("the alert stage holds nothing")

    def process(self, partition: int, records: Sequence[Record]) -> list[Output]:
        """Step the records through the partition's table."""
        table = self._tables[partition]
        outputs: list[Output] = []
        for record in records:
            step = table.apply(record)
            outputs += step.outputs
            if step.left_out:
                self._meter.claim_left_out()
            if step.left_out == 1:
                # Once for each set of look-alikes: who floods it shall not flood the log.
                _log.warning("name_claims_left_out", partition=partition, offset=record.origin.offset)
        return outputs

    def seal(self, partition: int, positions: Mapping[TopicPartition, int]) -> list[Output]:
        """Return the states that changed, and how far they are."""
        return self._tables[partition].written(positions[TopicPartition(self._topics[Role.FINDINGS], partition)])

    def unasked(self, partition: int) -> list[Output]:
        """Return a tick where an alert of the partition is due."""
        interval_s, now_s = self._settings.alert_tick_s, time.monotonic()
        if not interval_s or now_s - self._looked_s.get(partition, now_s - interval_s) < interval_s:
            return []
        self._looked_s[partition] = now_s
        tick = self._tables[partition].tick(self._clock_us())
        return [] if tick is None else [tick]
