"""The sealer: follows every partition of the evidence, and writes a signed checkpoint over each range.

1. One transactional producer for each partition. Opening it fences the previous sealer of the partition.
2. Only then is the last checkpoint read. It must be signed by a trusted key; it says where to go on.
3. A checkpoint goes to the partition of its evidence, in a transaction with the offset up to which is sealed. That
   offset is for those who watch the lag of ``<group_prefix>-seal``; nothing here reads it.
4. What fails makes the partitions unusable: all are closed and opened again, from 1. A sealer that was fenced ends.
5. It does not go on where checkpoints or evidence are gone from the end of their logs: that would heal the cut over.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from assay_stream import __version__
from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, InputError, IntegrityError, OperatingError
from assay_stream.kafka.connection import Consumer, ProducerFenced, TopicPartition, read_last, record_of
from assay_stream.kafka.part import UNCOUNTED, Following, StageMetrics, lags_of
from assay_stream.kafka.stage import Topology, TransactionalWriter
from assay_stream.kafka.topics import AccessRole
from assay_stream.model.checkpoint import Checkpoint, TreeLeaf, decode, encode, leaf_of, sealed
from assay_stream.model.record import Output, Record, Role
from assay_stream.schemes import tlog
from assay_stream.seal.check import is_known
from assay_stream.text.times import rfc3339
from assay_stream.worker.host import Host, PartitionCounts, run_host
from assay_stream.worker.telemetry import PrometheusStage

_log = structlog.get_logger(__name__)

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
    trusted: tlog.Keys
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
        metrics = PrometheusStage(host.metrics, _STAGE)
        host.add(_STAGE, Sealer(Topology(settings, counts), plan, metrics=metrics))

    run_host(settings, {Role.EVIDENCE, Role.CHECKPOINTS}, [AccessRole.SEALER], build, web_port=web_port, once=plan.once)


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True, kw_only=True)
class OpenRange:
    """The range of one partition that is not sealed yet.

    Args:
        leaves: what is read and not sealed yet.
        sealed_to: the offset up to which nothing is left to seal.
        since_s: when the first of them was read, by the monotonic clock.
    """

    partition: int
    writer: TransactionalWriter
    before: Checkpoint | None = None
    leaves: list[TreeLeaf] = field(default_factory=list)
    sealed_to: int = 0
    since_s: float = 0.0

    def take(self, record: Record, now_s: float) -> None:
        if not self.leaves:
            self.since_s = now_s
        self.leaves.append((record.origin.offset, leaf_of(record)))


@dataclass(eq=False, repr=False)
class Sealer(Following):
    """Seals until told to stop, or until everything that was there is sealed.

    Args:
        now: gives the time for ``sealed_at``.
    """

    topology: Topology
    plan: SealPlan
    _: KW_ONLY
    metrics: StageMetrics = UNCOUNTED
    now: Callable[[], datetime] = _now

    def __post_init__(self) -> None:
        settings, clients = self.topology.settings, self.topology.clients
        super().__init__("sealing", settings, metrics=self.metrics, clients=clients, waits=not self.plan.once)
        self._topics = self.topology.names
        self._partitions = self.topology.counts[Role.EVIDENCE]
        self._consumer: Consumer | None = None
        self._group_id = f"{settings.group_prefix}-{_STAGE}"
        self._ranges: dict[int, OpenRange] = {}

    @property
    def ready(self) -> bool:
        return self._consumer is not None and not self.failures

    def note_gauges(self) -> None:
        if self._consumer is not None:
            sealed_to = {place: self._ranges[place.partition].sealed_to for place in self.ends}
            self.metrics.lags(lags_of(self._consumer, sealed_to))
            # What is read and not sealed yet is all that is kept.
            self.metrics.measure("state_entries", sum(len(part.leaves) for part in self._ranges.values()))

    async def run(self) -> None:
        """Seal.

        Raises:
            ConfigurationError: ``sealer_fenced`` where another sealer has taken over.
            InputError: ``checkpoint_not_continued`` where the last checkpoint of a partition is not ours.
            IntegrityError: ``evidence_cut_off`` where sealed evidence is gone from the end of its log;
                ``checkpoints_cut_off`` where checkpoints are.
            OperatingError: ``brokers_failing``.
        """
        try:
            await super().run()
        finally:
            await self._close()

    async def open(self, consumer: Consumer) -> None:
        """Fence the previous sealer, and go to the first record of each partition that is not sealed."""
        started_s = time.monotonic()
        # Those of before, where retention overtook the reading.
        await self._close()
        # Opening a writer fences the previous sealer of its partition.
        parts = self._ranges = {
            number: OpenRange(partition=number, writer=self._writer(number)) for number in range(self._partitions)
        }
        opened = await asyncio.gather(*(part.writer.open() for part in parts.values()), return_exceptions=True)
        # Only when all have ended: one that is still opening cannot be closed.
        for error in opened:
            if error is not None:
                raise error
        for part in parts.values():
            part.before = await self._last_checkpoint(part.partition)
        check_siblings(parts)
        places = self.topology.places(Role.EVIDENCE)
        beginnings, self.ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
        consumer.assign(places)
        for place in places:
            first = self._ranges[place.partition].sealed_to = self._first_unsealed(place, beginnings[place])
            consumer.seek(place, first)
        self._consumer = consumer
        self.metrics.measure("opened", self._partitions)
        self.metrics.measure("opening_seconds", time.monotonic() - started_s)
        _log.info("sealing", partitions=self._partitions, key_id=tlog.key_id(self.plan.key.public_key()))

    def _writer(self, number: int) -> TransactionalWriter:
        inputs, outputs = ([TopicPartition(self._topics[role], number)] for role in (Role.EVIDENCE, Role.CHECKPOINTS))
        return TransactionalWriter(self.topology, self._group_id, number, inputs=inputs, outputs=outputs)

    async def _last_checkpoint(self, number: int) -> Checkpoint | None:
        place = TopicPartition(self._topics[Role.CHECKPOINTS], number)
        record = await read_last(self.clients.consumer(), Role.CHECKPOINTS, place)
        if record is None:
            return None
        try:
            found = decode(record.value, self.plan.trusted).checkpoint
            if (found.topic, found.partition) != (self._topics[Role.EVIDENCE], number):
                raise InputError("checkpoint_of_another_log", "it is about another log")
        except InputError as error:
            raise InputError(
                "checkpoint_not_continued",
                f"the last checkpoint of partition {number} (offset {record.origin.offset} of {place.topic}) "
                f"is not continued ({error.code}). If another key signed it, give its public key with "
                "--also-trust; otherwise find out who wrote it",
            ) from None
        return found

    def _first_unsealed(self, place: TopicPartition, beginning: int) -> int:
        before = self._ranges[place.partition].before
        if before is None:
            return beginning
        following = before.last_offset + 1
        if following > self.ends[place]:
            raise IntegrityError(
                "evidence_cut_off",
                f"{place.topic}/{place.partition} ends at offset {self.ends[place]} and is "
                f"sealed up to {following - 1}: alter neither topic, and run assay-stream seal verify",
            )
        lost = beginning - following
        if lost > 0:
            self.metrics.expired(place, following, lost)
        return max(following, beginning)

    async def turn(self, consumer: Consumer) -> bool:
        fetched = await consumer.getmany(
            timeout_ms=self.settings.poll_timeout_ms, max_records=self.settings.batch_records_max
        )
        for place, messages in fetched.items():
            part = self._ranges[place.partition]
            for message in messages:
                part.take(record_of(Role.EVIDENCE, message), time.monotonic())
                if len(part.leaves) >= self.plan.every_records:
                    await self._seal(part)
        has_caught_up = (self.plan.once or self.failures) and await self.has_caught_up(consumer)
        is_done = self.stopping.is_set() or bool(self.plan.once and has_caught_up)
        for place in self.ends:
            part = self._ranges[place.partition]
            if part.leaves and (is_done or time.monotonic() - part.since_s >= self.plan.every_s):
                await self._seal(part)
            if not part.leaves:
                # The markers of transactions lie between: left there, they would pass for records that wait.
                part.sealed_to = await consumer.position(place)
        if has_caught_up and not any(part.leaves for part in self._ranges.values()):
            self.failures = 0
        return is_done

    async def _seal(self, part: OpenRange) -> None:
        started_s = time.monotonic()
        now = self.now()
        made = sealed(
            part.before,
            part.leaves,
            topic=self._topics[Role.EVIDENCE],
            partition=part.partition,
            sealed_at=rfc3339(now, "milliseconds"),
            key=self.plan.key,
            software=f"assay-stream {__version__}",
            partitions=self._partitions,
            log_name=self.plan.log_name,
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
        # Not beyond the last record: a check of the seal would take what follows for evidence that was removed.
        sealed_to = {TopicPartition(checkpoint.topic, part.partition): checkpoint.last_offset + 1}
        writing_s = time.monotonic()
        gathered = part.writer.gather()
        gathered.add([output])
        await part.writer.write(gathered, sealed_to)
        self.metrics.measure("transaction_seconds", time.monotonic() - writing_s)
        self.metrics.batch(len(part.leaves), {output.label: 1}, seconds=time.monotonic() - started_s)
        part.before, part.leaves = checkpoint, []
        # A turn with nothing to seal proves nothing.
        self.failures = 0
        _log.info(
            "checkpoint_written",
            partition=part.partition,
            sequence=checkpoint.sequence,
            records=checkpoint.records,
            tree_size=checkpoint.tree_size,
            last_offset=checkpoint.last_offset,
        )

    async def endure(self, error: Exception) -> bool:
        is_unsealed = self.failures > 0 or any(part.leaves for part in self._ranges.values())
        await self._close()
        if isinstance(error, ProducerFenced):
            raise ConfigurationError(
                "sealer_fenced", "another sealer has taken over: run one for each deployment"
            ) from None
        was_stopping = self.stopping.is_set()
        goes_on = await super().endure(error)
        if was_stopping and is_unsealed:
            text = f"what was read last could not be sealed ({type(error).__name__}): the next start seals it"
            raise OperatingError("brokers_failing", text) from error
        return goes_on

    async def _close(self) -> None:
        self._consumer, parts, self._ranges = None, self._ranges, {}
        await asyncio.gather(*(part.writer.close() for part in parts.values()))


def check_siblings(parts: Mapping[int, OpenRange]) -> None:
    """Refuse to go on where a partition has lost checkpoints that another one knows of."""
    for part in parts.values():
        if part.before is None:
            continue
        for head in part.before.siblings:
            other = parts.get(head.partition)
            if other is None or not is_known(head, None if other.before is None else other.before.head):
                raise IntegrityError(
                    "checkpoints_cut_off",
                    f"partition {part.partition} was sealed after {head.tree_size} records of partition "
                    f"{head.partition}, whose checkpoints do not go as far: restore their topic, and run "
                    "assay-stream seal verify",
                )
