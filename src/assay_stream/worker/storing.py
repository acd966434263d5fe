"""The store filled from the topics: by assignment, committed records only, positions kept in the store itself.

1. No consumer group: one process fills one store, and where it goes on is what the store says.
2. A log that ends before where the store stands, or holds another record where the store read its last, was made
   again: its offsets mean something else now, so nothing of it can be taken in.
3. Partitions that are added are read from their beginning, within half a minute.
4. Offsets that retention deleted before they were read are counted, and reading goes on behind them.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError
from assay_stream.kafka.connection import Consumer, TopicPartition, open_admin, read, record_of
from assay_stream.kafka.part import UNCOUNTED, Following, StageMetrics
from assay_stream.kafka.ranges import finalised_level, places_of
from assay_stream.kafka.topics import AccessRole, topic_names
from assay_stream.limits import STORE_BATCH_RECORDS
from assay_stream.model.record import Role
from assay_stream.readmodel import schema
from assay_stream.readmodel.filling import ROLES, Bounds, Filler, LogPlace, LogState, witness_of
from assay_stream.readmodel.schema import StoreStatus, status_of

if TYPE_CHECKING:
    from assay_stream.worker.host import Host, PartitionCounts

_log = structlog.get_logger(__name__)

_STAGE = "store"
_LOOK_S = 5.0
"""Between two looks at how far the logs go, and at what the store may keep."""
_TELL_S = 10.0
"""Between two lines about how far the store is, while it is not up to date."""
_DAY_US = 86_400 * 1_000_000
_MIB = 1_024 * 1_024


def _now_us() -> int:
    return time.time_ns() // 1_000


def bounds_of(settings: Settings) -> Bounds:
    """Return what the store may keep, as the settings say."""
    return Bounds(age_us=settings.store_days * _DAY_US, size_bytes=settings.store_mib_max * _MIB)


class _PartitionsAddedError(Exception):
    """A topic has more partitions than are read."""


@dataclass(eq=False, repr=False)
class StoreFilling(Following):
    """Fills a store until told to stop, or until everything is read that was there.

    Args:
        filler: of the store; nobody else may use its connection while this runs.
        once: read what is there now, and end.
        metrics: counts what is read.
    """

    settings: Settings
    filler: Filler
    _: KW_ONLY
    once: bool = False
    metrics: StageMetrics = UNCOUNTED
    now_us: Callable[[], int] = _now_us

    def __post_init__(self) -> None:
        super().__init__("filling the store", self.settings, metrics=self.metrics, waits=not self.once)
        names = topic_names(self.settings)
        self._roles = {names[role]: role for role in ROLES}
        self._lags: dict[TopicPartition, int] = {}
        self._even_s: dict[TopicPartition, float] = {}
        self._times_ms: dict[TopicPartition, int] = {}
        self._looked_s = self._told_s = 0.0
        self._started_s = time.monotonic()
        self.committed_s = 0.0
        """When records were last committed, seconds since the epoch; 0 where none were yet."""
        self.status: StoreStatus | None = None

    def note_gauges(self) -> None:
        self.metrics.lags(dict(self._lags))
        if self.status is not None:
            for kind, rows in self.status.counts.items():
                self.metrics.measure("store_rows", rows, kind)
            for role, positions in groupby(self.status.positions, key=lambda each: each.role):
                self.metrics.measure("store_refused", sum(each.refused for each in positions), role)
            self.metrics.measure("store_bytes", self.status.size_bytes)
        self.metrics.measure("store_behind", self.behind_s)
        self.metrics.measure("store_committed", self.committed_s)

    @property
    def behind_s(self) -> float:
        """For how long the store has lacked something, or how old its latest record of a log is that goes on."""
        now_s, now_ms = time.monotonic(), self.now_us() // 1_000
        behind_s = [0.0]
        for place in [place for place, lag in self._lags.items() if lag]:
            lacking_s, time_ms = now_s - self._even_s.get(place, self._started_s), self._times_ms.get(place)
            behind_s.append(lacking_s if time_ms is None else min(lacking_s, max(now_ms - time_ms, 0) / 1_000))
        return max(behind_s)

    async def run(self) -> None:
        """Fill the store.

        Raises:
            ConfigurationError: ``topic_missing``, ``store_of_another``, ``topic_recreated``, ``format_too_new``.
            OperatingError: ``broker_unreachable``, ``brokers_failing``, ``store_failing``.
        """
        try:
            await super().run()
        finally:
            self.is_ready = False

    async def endure(self, error: Exception) -> bool:
        self.is_ready = False
        if isinstance(error, _PartitionsAddedError):
            _log.info("partitions_added")
            return True
        return await super().endure(error)

    async def _find_places(self) -> list[TopicPartition]:
        async with open_admin(self.settings) as admin:
            cluster = (await admin.describe_cluster())["cluster_id"]
        places = [place for each in await places_of(self.settings, list(self._roles)) for place in each]
        prefix = self.settings.topic_prefix
        named = f"cluster {cluster}, topics {prefix}*" if prefix else f"cluster {cluster}"
        await asyncio.to_thread(self.filler.begin, named)
        return places

    async def open(self, consumer: Consumer) -> None:
        """Go to where the store stands in each log."""
        self.is_ready = False
        await finalised_level(self.settings)
        places = await self._find_places()
        begins, self.ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
        for place in places:
            await self._check_same(consumer, place, begins[place])
        consumer.assign(places)
        found: dict[LogPlace, LogState] = {}
        for place in places:
            begin, before = begins[place], self.filler.position(place.topic, place.partition)
            is_compacted = self._roles[place.topic] in (Role.BINDINGS, Role.DEFINITIONS, Role.VERDICTS)
            lost = 0 if before is None or is_compacted else max(begin - before, 0)
            if lost:
                self.metrics.expired(place, before or 0, lost)
            found[self._roles[place.topic], *place] = LogState(begin, lost, self.ends[place])
            consumer.seek(place, max(begin, before or 0))
        await asyncio.to_thread(self.filler.note, found)
        _log.info("filling_store", logs=len(places))

    async def _check_same(self, consumer: Consumer, place: TopicPartition, begin: int) -> None:
        """Make sure that a log is the one that the store was filled from."""
        before = self.filler.position(place.topic, place.partition) or 0
        witness = self.filler.witness(place.topic, place.partition)
        is_same = before <= self.ends[place]
        if is_same and witness is not None and witness[0] >= begin:
            # Compaction takes records away, and only that.
            async for messages in read(consumer, place, witness[0], witness[0] + 1):
                is_same = witness_of(record_of(self._roles[place.topic], messages[0])) == witness[1]
        if not is_same:
            raise ConfigurationError(
                "topic_recreated",
                f"{place.topic}/{place.partition} is not the log that the store was filled from: the topic was made "
                "again. Fill the store anew: assay-stream store run --rebuild",
            )

    async def turn(self, consumer: Consumer) -> bool:
        fetched = await consumer.getmany(
            timeout_ms=self.settings.poll_timeout_ms,
            max_records=min(self.settings.batch_records_max, STORE_BATCH_RECORDS),
        )
        records = [record_of(self._roles[place.topic], each) for place, found in fetched.items() for each in found]
        filled = Counter[str]()
        for place, found in fetched.items():
            filled[f"filled:{self._roles[place.topic].value}"] += len(found)
        if records:
            started_s = time.monotonic()
            await asyncio.to_thread(self.filler.take, records)
            self.failures = 0
            self.metrics.batch(len(records), filled, seconds=time.monotonic() - started_s)
            self.committed_s = self.now_us() / 1_000_000
            self._times_ms |= {place: found[-1].timestamp for place, found in fetched.items() if found}
        if time.monotonic() - self._looked_s >= _LOOK_S or (not records and not self.is_ready):
            await self._look(consumer)
        return self.stopping.is_set() or (self.once and self.is_ready)

    async def _look(self, consumer: Consumer) -> None:
        self._looked_s = time.monotonic()
        places = list(self.ends)
        positions = {place: await consumer.position(place) for place in places}
        # Markers of transactions are offsets without a record: where one was passed, the store must know.
        was_ready = self.is_ready
        if all(positions[place] >= end for place, end in self.ends.items()):
            self.is_ready, self.failures = True, 0
        known: dict[LogPlace, LogState] = {}
        for place in places:
            end = consumer.last_stable_offset(place)
            end = None if end is None or end < 0 else end
            known[self._roles[place.topic], *place] = LogState(positions[place], end=end)
            self._lags[place] = max((self.ends[place] if end is None else end) - positions[place], 0)
            if not self._lags[place]:
                self._even_s[place] = self._looked_s
        # A broker that does not answer does not say how far its logs go.
        heard_ms = [consumer.last_poll_timestamp(place) for place in places]
        looked_us = None if None in heard_ms else min(heard_ms, default=0) * 1_000 or None
        await asyncio.to_thread(self.filler.note, known, looked_us=looked_us)
        self._tell(was_ready=was_ready)
        counts = Counter(place.topic for place in places)
        if any(len(consumer.partitions_for_topic(topic) or ()) > count for topic, count in counts.items()):
            raise _PartitionsAddedError
        # A clock that is ahead would drop everything.
        bounds, now_us = bounds_of(self.settings), min(self.now_us(), self.filler.latest_us)
        while (done := await asyncio.to_thread(self.filler.keep_within, bounds, now_us=now_us)) and not (
            self.stopping.is_set()
        ):
            self.metrics.batch(0, {f"dropped:{done.kind}:{done.bound}": done.rows}, seconds=0)
        self.status = await asyncio.to_thread(status_of, self.filler.connection)

    def _tell(self, *, was_ready: bool) -> None:
        if self.is_ready and not was_ready:
            _log.info("up_to_date", records=self.filler.read)
        elif not self.is_ready and self._looked_s - self._told_s >= _TELL_S:
            self._told_s = self._looked_s
            _log.info("catching_up", records=self.filler.read, behind=sum(self._lags.values()))


def run_store(
    settings: Settings, folder: Path, *, rebuild: bool = False, once: bool = False, web_port: int | None = None
) -> None:
    """Fill a store until SIGTERM or SIGINT, or until it holds everything that is there.

    Args:
        rebuild: begin with an empty store, whatever is there.

    Raises:
        ConfigurationError: ``store_in_use``, ``store_version``, ``store_of_another``, ``topic_missing``,
            ``topic_recreated``, ``web_port_taken``.
        OperatingError: ``broker_unreachable``, ``brokers_failing``, ``store_failing``.
    """
    # Imported here: the console fills its store without Faust.
    from assay_stream.worker.host import run_host
    from assay_stream.worker.telemetry import PrometheusStage

    with schema.writing(folder, rebuild=rebuild) as connection:

        def build(host: Host, counts: PartitionCounts) -> None:
            metrics = PrometheusStage(host.metrics, _STAGE)
            host.add(_STAGE, StoreFilling(settings, Filler(connection), once=once, metrics=metrics))

        needed = {*ROLES, Role.FORMATS}
        run_host(settings, needed, [AccessRole.ANALYST], build, web_port=web_port, once=once)
