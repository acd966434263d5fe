"""Watches over the alert stage where Faust does not: that it moves, that its table is whole, that it may write.

1. *It moves.* Faust can lose its place in a rebalance or an outage and sit there for good, alive and idle. Where
   findings wait and nothing was committed for a limit, the worker ends; a new one starts from what was committed.
2. *Its table is whole.* Faust's recovery goes on where a step of it times out. The worker ends where the table was
   not read to the end of its change log: counts would start anew.
3. *It may write.* Nothing fences Faust's writes. A worker that was frozen or cut off for longer than its session
   has lost its partitions, and knows it last. It ends before it writes again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import faust
import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from assay_stream.config import Settings
from assay_stream.core.errors import OperatingError
from assay_stream.stream.connection import reading_consumer
from assay_stream.stream.topics import alert_changelog_name

_log = structlog.get_logger(__name__)

_LOOKS_PER_LIMIT = 20
_ANSWER_LIMIT_S = 20.0
_PEEK_MS = 500
_BROKERS_AWAY = (KafkaError, OSError, TimeoutError)


class Lease:
    """For how long a worker may take its partitions for its own: one session from its last sign of life.

    Args:
        session_s: after how long a silent worker's partitions go to others, seconds.
        clock_s: gives the time since some moment, seconds; it must go on while the process is stopped.
    """

    def __init__(self, session_s: float, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._session_s = session_s
        self._clock_s = clock_s
        self._renewed_s = clock_s()

    def now_s(self) -> float:
        """Return the time, to be handed to ``renew``."""
        return self._clock_s()

    def renew(self, asked_s: float) -> None:
        """Note a sign of life that the coordinator has confirmed.

        Args:
            asked_s: when it was sent, not when it was confirmed.
        """
        self._renewed_s = max(self._renewed_s, asked_s)

    def check(self) -> None:
        """Raise where the partitions may be someone else's by now.

        Raises:
            OperatingError: ``partitions_lost``.
        """
        silent_s = self._clock_s() - self._renewed_s
        if silent_s >= self._session_s:
            raise OperatingError(
                "partitions_lost",
                f"the alert stage was out of touch with its group for {silent_s:.1f} s, longer than "
                "ASSAY_STREAM_SESSION_TIMEOUT_MS: another worker may have its partitions by now",
            )


class AlertWatch:
    """Ends the worker where the alert stage stands still, or would go on from a table that is not whole.

    Args:
        settings: the operator's settings.
        app: the application that runs the stage.
        findings_topic: what the stage reads.
        lease: renewed with every heartbeat.
    """

    def __init__(
        self,
        settings: Settings,
        app: faust.App,
        *,
        findings_topic: str,
        lease: Lease,
    ) -> None:
        self._settings = settings
        self._app = app
        self._findings_topic = findings_topic
        self._lease = lease
        self._stopping = asyncio.Event()
        self._reader: AIOKafkaConsumer | None = None
        self._moved_s = time.monotonic()
        self._seen: object = None
        self._begun = False
        self.ready = True

    def stop(self) -> None:
        """Ask it to end."""
        self._stopping.set()

    async def run(self) -> None:
        """Watch until stopped.

        Raises:
            OperatingError: ``alerts_stalled`` where findings wait and nothing moved within the limit.
        """
        limit_s = self._settings.alert_stall_limit_s
        while not self._stopping.is_set():
            try:
                async with asyncio.timeout(_ANSWER_LIMIT_S):
                    await self._look(limit_s)
            except _BROKERS_AWAY:
                # No stage gets on without brokers; its time counts from when they are back.
                self._moved_s = time.monotonic()
                await self._close()
            try:
                await asyncio.wait_for(self._stopping.wait(), limit_s / _LOOKS_PER_LIMIT)
            except TimeoutError:
                continue
        await self._close()

    async def before_work(self) -> None:
        """Make sure of the table and of the heartbeats, after each rebalance and before anything is processed.

        Raises:
            OperatingError: ``alert_table_not_restored``.
        """
        self._begun = True
        self._follow_heartbeats()
        limit_s = time.monotonic() + self._settings.alert_stall_limit_s
        while True:
            try:
                async with asyncio.timeout(_ANSWER_LIMIT_S):
                    return await self._check_table()
            except _BROKERS_AWAY as error:
                if time.monotonic() > limit_s:
                    raise OperatingError(
                        "alert_table_not_restored",
                        f"no broker says where {alert_changelog_name(self._settings)} ends "
                        f"({type(error).__name__}): whether the table is whole cannot be known",
                    ) from error
                await asyncio.sleep(1.0)

    async def _check_table(self) -> None:
        recovery = self._app.tables.recovery
        if recovery.signal_recovery_start.is_set():
            return  # Of an assignment that is over already: another recovery follows.
        restored = {
            TopicPartition(tp.topic, tp.partition): recovery.active_offsets.get(tp) for tp in recovery.active_tps
        }
        reader = reading_consumer(self._settings)
        await reader.start()
        try:
            ends = await reader.end_offsets(list(restored)) if restored else {}
        finally:
            await reader.stop()
        for partition, end in ends.items():
            offset = restored[partition]
            if (-1 if offset is None else offset) < end - 1:
                raise OperatingError(
                    "alert_table_not_restored",
                    f"{partition.topic} was read to offset {offset} in partition {partition.partition} and holds "
                    f"records up to {end - 1}: a new worker reads it again",
                )

    def _follow_heartbeats(self) -> None:
        asked_s = self._lease.now_s()
        # Neither Faust nor aiokafka tells anybody of heartbeats.
        coordinator = self._app.consumer._thread._ensure_consumer()._coordinator
        if getattr(coordinator, "followed_by", None) is not self:
            beat = coordinator._do_heartbeat

            async def followed() -> Any:
                sent_s = self._lease.now_s()
                confirmed = await beat()
                if confirmed:
                    self._lease.renew(sent_s)
                return confirmed

            coordinator._do_heartbeat = followed
            coordinator.followed_by = self
        self._lease.renew(asked_s)

    async def _look(self, limit_s: float) -> None:
        reader = await self._open()
        # Until its first assignment Faust's consumer may not be asked.
        assigned = self._app.consumer.assignment() if self._begun else set()
        committed = {
            TopicPartition(tp.topic, tp.partition): await self._committed(reader, tp)
            for tp in assigned
            if tp.topic == self._findings_topic
        }
        # What was processed and is not committed does not count: it may never be.
        seen = (committed, dict(self._app.tables.recovery.active_offsets))
        if seen != self._seen or not await self._anything_waits(reader, committed):
            self._seen = seen
            self._moved_s = time.monotonic()
        elif (still_s := time.monotonic() - self._moved_s) > limit_s:
            raise OperatingError(
                "alerts_stalled",
                f"findings wait and the alert stage has not moved for {still_s:.0f} s, longer than "
                "ASSAY_STREAM_ALERT_STALL_LIMIT_S: a new worker goes on from what was committed",
            )

    async def _anything_waits(self, reader: AIOKafkaConsumer, committed: Mapping[TopicPartition, int]) -> bool:
        """Tell whether a record stands after what the group committed; the markers of transactions are none."""
        ends = await reader.end_offsets(list(committed))
        for partition, position in committed.items():
            if position >= ends[partition]:
                continue
            beginning = (await reader.beginning_offsets([partition]))[partition]
            reader.assign([partition])
            reader.seek(partition, max(position, beginning))
            while await reader.position(partition) < ends[partition]:
                if await reader.getmany(partition, timeout_ms=_PEEK_MS, max_records=1):
                    return True
        return not self._begun or (not committed and self._app.rebalancing)

    async def _committed(self, reader: AIOKafkaConsumer, partition: Any) -> int:
        offset = await reader.committed(TopicPartition(partition.topic, partition.partition))
        return 0 if offset is None else int(offset)

    async def _open(self) -> AIOKafkaConsumer:
        if self._reader is None:
            # In the group's name, to read what it committed; without a subscription it never joins.
            self._reader = reading_consumer(self._settings, group_id=f"{self._settings.group_prefix}-alerts")
            await self._reader.start()
        return self._reader

    async def _close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.stop()
