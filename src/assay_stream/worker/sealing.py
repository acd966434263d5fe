"""The sealer: follows every partition of the evidence, and writes a signed checkpoint over each range.

1. One transactional producer for each partition. Opening it fences the previous sealer of the partition.
2. Only then is the last checkpoint read. It must be signed by a trusted key; it says where to go on.
3. A checkpoint goes to the partition of its evidence, in a transaction with the offset up to which is sealed. That
   offset is for those who watch the lag of ``<group_prefix>-seal``; nothing here reads it.
4. What fails makes the partitions unusable: all are closed and opened again, from 1. A sealer that was fenced ends.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from assay_stream import __version__
from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, IntegrityError, OperatingError
from assay_stream.kafka.connection import Clients, Consumer, KafkaClients, KafkaError, ProducerFenced, TopicPartition
from assay_stream.kafka.refusals import explained
from assay_stream.kafka.stage import StageMetrics
from assay_stream.kafka.topics import topic_names
from assay_stream.kafka.transport import record_of
from assay_stream.model.record import Output, Role
from assay_stream.schemes import ed25519
from assay_stream.seal.checkpoint import encode, sealed
from assay_stream.worker.host import Host, PartitionCounts, run_host
from assay_stream.worker.metrics import PrometheusStage
from assay_stream.worker.open_ranges import OpenRange, RangeOpener, close_ranges

_log = structlog.get_logger(__name__)

_MAY_PASS = (KafkaError, OSError, TimeoutError)
_FAILURES_MAX = 10
_PAUSE_S = 1.0
_CLOSE_LIMIT_S = 5.0
_STAGE = "seal"


@dataclass(frozen=True, slots=True, kw_only=True)
class SealPlan:
    """How to seal.

    Args:
        key: signs.
        trusted: keys whose checkpoints are continued, by their id; the own one among them.
        every_records: records of one range at most.
        every_s: how long a record waits for its checkpoint at most, seconds.
        log_name: begins the origin of signed notes.
        once: seal what is there now, and end.
    """

    key: Ed25519PrivateKey
    trusted: ed25519.Keys
    every_records: int
    every_s: float
    log_name: str
    once: bool = False


def run_sealer(settings: Settings, plan: SealPlan, *, web_port: int | None = None) -> None:
    """Seal until SIGTERM or SIGINT, or until everything that is there is sealed.

    Raises:
        ConfigurationError: ``topic_missing``, ``partition_count``, ``web_port_taken``; as ``Sealer.run``.
        OperatingError: ``broker_unreachable`` or ``brokers_failing``.
    """

    def build(host: Host, counts: PartitionCounts) -> None:
        sealer = Sealer(settings, plan, partitions=counts[Role.EVIDENCE], metrics=PrometheusStage(host.metrics, _STAGE))
        host.add(_STAGE, sealer, still_s=lambda: sealer.still_s, note_gauges=sealer.note_gauges)

    run_host(settings, {Role.EVIDENCE, Role.CHECKPOINTS}, build, web_port=web_port)


def _now() -> datetime:
    return datetime.now(UTC)


class Sealer:
    """Seals until told to stop, or until everything that was there is sealed.

    Args:
        partitions: how many partitions the evidence and the checkpoint topic have.
        now: gives the time for ``sealed_at``.
    """

    def __init__(
        self,
        settings: Settings,
        plan: SealPlan,
        *,
        partitions: int,
        metrics: StageMetrics | None = None,
        clients: Clients | None = None,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._settings = settings
        self._plan = plan
        self._partitions = partitions
        self._metrics = StageMetrics() if metrics is None else metrics
        self._clients = KafkaClients(settings) if clients is None else clients
        self._now = now
        self._consumer: Consumer | None = None
        self._moved_s = time.monotonic()
        self._topics = topic_names(settings)
        self._group_id = f"{settings.group_prefix}-{_STAGE}"
        self._opener = RangeOpener(
            self._clients, self._topics, self._group_id, partitions=partitions, trusted=plan.trusted
        )
        self._ranges: dict[int, OpenRange] = {}
        self._ends: dict[TopicPartition, int] = {}
        """Where the evidence ended when the partitions were opened."""
        self._written = 0
        self._failures = 0
        """How often in a row sealing failed, quiet turns in between or not."""
        self._stopping = asyncio.Event()

    @property
    def ready(self) -> bool:
        """Whether every partition is open, and what was read last could be sealed."""
        return bool(self._ranges) and not self._failures

    @property
    def still_s(self) -> float:
        return time.monotonic() - self._moved_s

    def note_gauges(self) -> None:
        """Note how much evidence of each partition is not sealed yet."""
        if self._consumer is None or not self._ranges:
            return
        behind = {}
        for partition in self._consumer.assignment():
            end = self._consumer.last_stable_offset(partition)
            before = self._ranges[partition.partition].before
            sealed_to = 0 if before is None else before.last_offset + 1
            if end is not None and end >= 0:
                behind[(partition.topic, partition.partition)] = end - sealed_to
        self._metrics.lags(behind)
        # What is read and not sealed yet is all that is kept.
        self._metrics.state(sum(len(part.leaves) for part in self._ranges.values()))

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        """Seal.

        Raises:
            ConfigurationError: ``sealer_fenced`` where another sealer has taken over.
            InputError: ``checkpoint_not_continued`` where the last checkpoint of a partition is not ours.
            IntegrityError: ``evidence_cut_off`` where sealed evidence is gone from the end of its log;
                ``checkpoints_cut_off`` where checkpoints are.
            OperatingError: ``brokers_failing``.
        """
        consumer = self._consumer = self._clients.consumer()
        try:
            await consumer.start()
            while True:
                try:
                    if await self._turn(consumer):
                        return
                except ProducerFenced:
                    raise ConfigurationError(
                        "sealer_fenced", "another sealer has taken over: run one for each deployment"
                    ) from None
                except _MAY_PASS as error:
                    await self._recover(error)
        finally:
            await self._close()
            with suppress(KafkaError, OSError, TimeoutError):
                await asyncio.wait_for(consumer.stop(), _CLOSE_LIMIT_S)

    async def _turn(self, consumer: Consumer) -> bool:
        """Read and seal a little, and say whether that was all."""
        self._moved_s = time.monotonic()
        if not self._ranges:
            await self._open(consumer)
            self._metrics.opened(self._partitions, seconds=time.monotonic() - self._moved_s)
        fetched = await consumer.getmany(
            timeout_ms=self._settings.poll_timeout_ms, max_records=self._settings.batch_records_max
        )
        written = self._written
        for partition, messages in fetched.items():
            part = self._ranges[partition.partition]
            for message in messages:
                part.take(record_of(Role.EVIDENCE, message), time.monotonic())
                if len(part.leaves) >= self._plan.every_records:
                    await self._seal(part)
        is_done = self._stopping.is_set() or (self._plan.once and await self._is_at_end(consumer))
        for part in self._ranges.values():
            if part.leaves and (is_done or time.monotonic() - part.since_s >= self._plan.every_s):
                await self._seal(part)
        if self._written > written:
            # A turn with nothing to seal proves nothing.
            self._failures = 0
        return is_done

    async def _is_at_end(self, consumer: Consumer) -> bool:
        for partition, end in self._ends.items():
            if await consumer.position(partition) < end:
                return False
        return True

    async def _seal(self, part: OpenRange) -> None:
        started_s = time.monotonic()
        now = self._now()
        made = sealed(
            part.before,
            part.leaves,
            topic=self._topics[Role.EVIDENCE],
            partition=part.partition,
            sealed_at=now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            key=self._plan.key,
            software=f"assay-stream {__version__}",
            partitions=self._partitions,
            log_name=self._plan.log_name,
            siblings=[other.before.head for other in self._ranges.values() if other.before is not None],
        )
        checkpoint = made.checkpoint
        output = Output(
            role=Role.CHECKPOINTS,
            key=None,
            value=encode(made),
            timestamp_ms=int(now.timestamp() * 1_000),
            partition=part.partition,
            label="checkpoint",
        )
        sealed_to = {TopicPartition(checkpoint.topic, part.partition): checkpoint.last_offset + 1}
        writing_s = time.monotonic()
        gathered = part.writer.gather()
        gathered.add([output])
        await part.writer.write(gathered, sealed_to, self._group_id)
        self._metrics.transaction(time.monotonic() - writing_s)
        self._metrics.batch(len(part.leaves), {output.label: 1}, seconds=time.monotonic() - started_s)
        part.before, part.leaves = checkpoint, []
        self._written += 1
        _log.info(
            "checkpoint_written",
            partition=part.partition,
            sequence=checkpoint.sequence,
            records=checkpoint.records,
            tree_size=checkpoint.tree_size,
            last_offset=checkpoint.last_offset,
        )

    async def _open(self, consumer: Consumer) -> None:
        parts = await self._opener.open()
        try:
            await self._go_on(consumer, parts)
        except BaseException:
            await close_ranges(parts)
            raise
        self._ranges = parts
        _log.info("sealing", partitions=self._partitions, key_id=ed25519.key_id(self._plan.key.public_key()))

    async def _go_on(self, consumer: Consumer, parts: dict[int, OpenRange]) -> None:
        """Go to the first record of each partition that is not sealed."""
        partitions = {TopicPartition(self._topics[Role.EVIDENCE], number): part for number, part in parts.items()}
        consumer.assign(list(partitions))
        beginnings = await consumer.beginning_offsets(list(partitions))
        self._ends = await consumer.end_offsets(list(partitions))
        for partition, part in partitions.items():
            beginning = beginnings[partition]
            following = beginning if part.before is None else part.before.last_offset + 1
            if following > self._ends[partition]:
                raise IntegrityError(
                    "evidence_cut_off",
                    f"{partition.topic}/{partition.partition} ends at offset {self._ends[partition]} and is "
                    f"sealed up to {following - 1}: alter neither topic, and run assay-stream seal verify",
                )
            if part.before is not None and following < beginning:
                self._metrics.lost(beginning - following)
                _log.error(
                    "input_expired",
                    partition=partition.partition,
                    first_lost_offset=following,
                    lost=beginning - following,
                )
            consumer.seek(partition, max(following, beginning))

    async def _recover(self, error: Exception) -> None:
        told = explained(error)
        if isinstance(told, ConfigurationError):
            raise told from error
        failures = self._failures = self._failures + 1
        self._metrics.reopened()
        _log.warning("partitions_reopening", stage="seal", error=type(error).__name__, attempt=failures)
        if failures > _FAILURES_MAX or self._stopping.is_set():
            raise OperatingError(
                "brokers_failing",
                f"sealing failed {failures} times, last with {type(error).__name__}: see the brokers' logs",
            ) from error
        await self._close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_PAUSE_S * failures):
                await self._stopping.wait()

    async def _close(self) -> None:
        parts, self._ranges = self._ranges, {}
        await close_ranges(parts)
