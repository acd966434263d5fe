"""Connections to the brokers: clients, and topics read outside the stages, ``read`` up to an offset or ``follow``.

Partitions are then assigned manually. No offsets are committed, so the stages' own are unaffected.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

# What has ``as`` is for other packages, which do not import aiokafka.
from aiokafka import (
    AIOKafkaProducer as AIOKafkaProducer,
    ConsumerRebalanceListener as ConsumerRebalanceListener,
    TopicPartition as TopicPartition,
)
from aiokafka.admin import AIOKafkaAdminClient as AIOKafkaAdminClient
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError as GroupCoordinatorNotAvailableError,
    KafkaConnectionError,
    KafkaError as KafkaError,
    NotEnoughReplicasError as NotEnoughReplicasError,
    OffsetOutOfRangeError,
    ProducerFenced as ProducerFenced,
)

from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.kafka.aiokafka_private import Consumer as Consumer, FetchedRecord as FetchedRecord, Producer
from assay_stream.kafka.credentials import RereadTls, sasl_options
from assay_stream.kafka.publishing import KafkaProducer, disconnect, kafka_producer
from assay_stream.kafka.refusals import explained, why_refused
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.record import Origin, Record, Role, made_of
from assay_stream.model.state_table import LEVEL

if TYPE_CHECKING:
    # Proxies follow verdicts without the settings of a deployment, which need an extra.
    from assay_stream.config import Settings

REQUEST_BYTES_MAX = 2 * DEFAULT_LIMITS.record_bytes_max
"""Room for the largest record and its overhead in one request."""
_ATTEMPT_LEAST_S = 1.0
_BATCH_BYTES = 512 * 1_024
_BACKOFF_MS = 10
"""Client retry backoff: usually enough for the coordinator to end the previous transaction."""

MAY_PASS = (KafkaError, OSError, TimeoutError)
"""Errors of unreachable or busy brokers: retried, as ``kafka.part`` says."""

_READ_WAIT_MS = 20
_BATCH_RECORDS_MAX = 2_000
_LAST_OFFSETS = 8
_CLOSE_LIMIT_S = 5.0


def client_id(settings: Settings) -> str:
    """Return the client id of this release, by which others know what it is and which format level it reads."""
    producer = settings.producer()
    commit = [] if producer.git == "unknown" else [producer.git[:8]]
    return "-".join([producer.name, producer.version, f"level{LEVEL}", *commit])


def connection_options(settings: Settings) -> dict[str, Any]:
    """Return the connection arguments that aiokafka's clients share.

    Raises:
        ConfigurationError: ``bad_tls_file`` if a certificate or key cannot be read, or as ``sasl_options``.
    """
    options: dict[str, Any] = {
        "bootstrap_servers": settings.bootstrap_servers,
        "client_id": client_id(settings),
        "security_protocol": settings.security_protocol,
    }
    if settings.security_protocol.endswith("SSL"):
        password = settings.ssl_keyfile_password
        options["ssl_context"] = RereadTls(
            cafile=settings.ssl_cafile,
            certfile=settings.ssl_certfile,
            keyfile=settings.ssl_keyfile,
            password="" if password is None else password.get_secret_value(),
        )
    if settings.security_protocol.startswith("SASL"):
        options |= sasl_options(settings)
    return options


def writing_producer(settings: Settings, **options: Any) -> Any:
    """Return an unstarted producer: idempotent, ordered, and acknowledged by all in-sync replicas."""
    return kafka_producer(connection_options(settings), record_bytes_max=REQUEST_BYTES_MAX, **options)


async def start_producer(settings: Settings) -> KafkaProducer:
    """Return a started producer.

    Raises:
        AssayStreamError: as ``start_admin``.
    """
    await (await start_admin(settings)).close()
    producer: KafkaProducer = writing_producer(settings)
    try:
        await producer.start()
    except Exception as error:
        await disconnect(producer)
        known = explained(error)
        if known is not None:
            raise known from None
        raise
    return producer


async def start_admin(settings: Settings, *, waiting: Callable[[str], None] | None = None) -> AIOKafkaAdminClient:
    """Return a connected admin client, trying until the operator's limit.

    Args:
        waiting: called once with a message if the brokers do not answer yet.

    Raises:
        ConfigurationError: where the brokers are there and refuse us, or we them: as ``kafka.refusals.why_refused``.
        OperatingError: ``broker_unreachable`` or ``token_unavailable`` after ``connect_limit_s``.
    """
    deadline = asyncio.get_running_loop().time() + settings.connect_limit_s
    options = connection_options(settings)
    while True:
        admin = AIOKafkaAdminClient(**options)
        try:
            # A host that drops packets would hold one attempt for longer than all of them may take.
            async with asyncio.timeout_at(max(deadline, asyncio.get_running_loop().time() + _ATTEMPT_LEAST_S)):
                await admin.start()
                if "sasl_oauth_token_provider" in options:
                    # Starting does not find out that a broker refuses the token.
                    await admin.describe_cluster()
        except (KafkaError, OSError, ValueError) as error:
            await admin.close()
            refusal = await why_refused(options)
            if isinstance(refusal, ConfigurationError):
                raise refusal from None
            if asyncio.get_running_loop().time() >= deadline:
                raise refusal or broker_unreachable(settings, error) from None
            if waiting is not None:
                waiting(
                    f"no Kafka broker answers at {settings.bootstrap_servers} yet, trying for "
                    f"{settings.connect_limit_s} s"
                )
                waiting = None
            await asyncio.sleep(1.0)
        else:
            return admin


@asynccontextmanager
async def open_admin(settings: Settings, *, waiting: Callable[[str], None] | None = None) -> AsyncIterator[Any]:
    """Give a connected admin client, and close it; arguments and errors are those of ``start_admin``."""
    admin = await start_admin(settings, waiting=waiting)
    try:
        yield admin
    finally:
        await admin.close()


def broker_unreachable(settings: Settings, error: Exception) -> OperatingError:
    detail = "" if isinstance(error, KafkaConnectionError) else f" ({type(error).__name__})"
    return OperatingError(
        "broker_unreachable",
        f"no Kafka broker answers at {settings.bootstrap_servers}{detail}, tried for "
        f"{settings.connect_limit_s} s. Start it, or set ASSAY_STREAM_BOOTSTRAP_SERVERS; if it runs there, "
        "ASSAY_STREAM_SECURITY_PROTOCOL must be what its listener speaks.",
    )


class Clients(Protocol):
    """Makes the clients of one deployment, not started: ``KafkaClients``, or in tests a cluster in memory."""

    def consumer(self, **options: Any) -> Consumer:
        """Return a consumer as ``reading_consumer`` does."""

    def producer(self, transactional_id: str) -> Producer:
        """Return a transactional producer."""


class KafkaClients:
    """Makes clients of the brokers that the settings name."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._undecided: dict[str, str] = {}

    def consumer(self, **options: Any) -> Consumer:
        return reading_consumer(self._settings, **options)

    def producer(self, transactional_id: str) -> Producer:
        """Return a transactional producer, not started.

        Args:
            transactional_id: derived from the input partition, so the same on every worker.
        """
        return Producer(
            undecided=self._undecided,
            **connection_options(self._settings),
            transactional_id=transactional_id,
            transaction_timeout_ms=self._settings.transaction_timeout_ms,
            acks="all",
            max_batch_size=_BATCH_BYTES,
            max_request_size=REQUEST_BYTES_MAX,
            linger_ms=0,
            retry_backoff_ms=_BACKOFF_MS,
        )


def reading_consumer(settings: Settings, *, isolation_level: str = "read_committed", **options: Any) -> Consumer:
    """Return an unstarted consumer that sees only committed records and never resets its offsets automatically.

    Args:
        isolation_level: ``read_uncommitted`` to include open transactions in end offsets.
    """
    defaults = {"max_partition_fetch_bytes": REQUEST_BYTES_MAX, "fetch_max_bytes": 4 * REQUEST_BYTES_MAX}
    return Consumer(
        **connection_options(settings),
        enable_auto_commit=False,
        isolation_level=isolation_level,
        auto_offset_reset="none",
        metadata_max_age_ms=30_000,
        **defaults | options,
    )


def record_of(role: Role, message: FetchedRecord) -> Record:
    topic, partition, offset, timestamp_ms, key, value, headers = message
    origin = made_of(Origin, (topic, partition, offset))
    if timestamp_ms < 0:
        timestamp_ms = 0
    return made_of(Record, (role, origin, key, value, headers, timestamp_ms, False, False))


async def read(
    consumer: Consumer, place: TopicPartition, first: int, end: int
) -> AsyncGenerator[list[FetchedRecord], None]:
    """Yield one partition's records from ``first`` to before ``end``, in batches, with a started consumer."""
    if consumer.assignment() != {place}:
        consumer.assign([place])
    consumer.seek(place, first)
    while await consumer.position(place) < end:
        # Behind the last record there may be no more than a transaction's marker, which wakes nobody.
        fetched = await consumer.getmany(place, timeout_ms=_READ_WAIT_MS, max_records=_BATCH_RECORDS_MAX)
        batch = [message for message in fetched.get(place, ()) if message.offset < end]
        if batch:
            yield batch
        # Records fetched already are returned without a pause: let heartbeats run.
        await asyncio.sleep(0)


async def read_partition(consumer: Consumer, role: Role, place: TopicPartition) -> AsyncIterator[Record]:
    """Yield every committed record now in one partition.

    Args:
        consumer: unstarted; stopped at the end.
    """
    async with _started(consumer, place) as (first, end):
        async for batch in read(consumer, place, first, end):
            for message in batch:
                yield record_of(role, message)


async def read_last(consumer: Consumer, role: Role, place: TopicPartition) -> Record | None:
    """Return the last committed record of one partition; ``None`` if there is none.

    Args:
        consumer: unstarted; stopped at the end.
    """
    async with _started(consumer, place) as (beginning, end):
        first, last = end, None
        while last is None and first > beginning:
            # Transaction markers and aborted records take offsets too.
            first = max(beginning, end - _LAST_OFFSETS * (end - first + 1))
            async for batch in read(consumer, place, first, end):
                last = batch[-1]
        return None if last is None else record_of(role, last)


@asynccontextmanager
async def _started(consumer: Consumer, place: TopicPartition) -> AsyncGenerator[tuple[int, int], None]:
    """Start a consumer of one partition, give the offsets at which this begins and ends, and stop it."""
    consumer.assign([place])
    try:
        await consumer.start()
        yield (await consumer.beginning_offsets([place]))[place], (await consumer.end_offsets([place]))[place]
    finally:
        await consumer.stop()


async def follow(
    make: Callable[[], Consumer],
    begin: Callable[[Consumer], Awaitable[None]],
    step: Callable[[Consumer], Awaitable[bool]],
    endure: Callable[[Exception], Awaitable[bool]],
) -> None:
    """Read topics continuously, with a new consumer after each failure.

    Args:
        make: returns an unstarted consumer.
        begin: assigns partitions to a started consumer, and seeks to where each continues.
        step: reads and handles a few records; returns True when finished.
        endure: pauses after a failure; returns True to begin again.
    """
    was_out_of_range = False
    while True:
        consumer = make()
        try:
            await consumer.start()
            await begin(consumer)
            while not await step(consumer):
                was_out_of_range = False
                # Of a topic that was deleted aiokafka says nothing: it goes on looking for a leader.
                await consumer.find(consumer.assignment())
            return
        except Exception as error:  # noqa: BLE001 - what is not endured is raised there
            failure = error
            if isinstance(error, OffsetOutOfRangeError) and not was_out_of_range:
                # Retention deleted records that were not read: noticed when the partitions are opened again.
                was_out_of_range = True
                continue
        finally:
            # Stopping fails while the brokers are unreachable.
            with suppress(*MAY_PASS):
                await asyncio.wait_for(consumer.stop(), _CLOSE_LIMIT_S)
        if not await endure(failure):
            return
