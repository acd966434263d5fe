"""How every client of a deployment reaches the brokers."""

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError, for_code
from aiokafka.protocol.metadata import MetadataRequest

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.kafka.fetched_records import give_fetched_records
from assay_stream.kafka.group_protocol import UNSTABLE_OFFSET_COMMIT, GroupMember, StableOffsetFetch
from assay_stream.kafka.refusals import why_refused
from assay_stream.limits.core import DEFAULT_LIMITS

give_fetched_records()

REQUEST_BYTES_MAX = 2 * DEFAULT_LIMITS.record_bytes_max
"""Room for the largest record and what goes with it in one request."""
_ATTEMPT_LEAST_S = 1.0
_BATCH_BYTES = 512 * 1_024
_OFFSETS_LATER = frozenset({14, UNSTABLE_OFFSET_COMMIT})
"""The coordinator loads its log, or an open transaction has offsets."""
_COORDINATOR_MOVED = frozenset({15, 16})
_STABLE_LIMIT_S = 15.0
_STABLE_PAUSE_S = 0.02
_ASKED, _NAMED_BY = 3, 2
_ANSWER_LIMIT_S = 2.0
_LEADERS_LOOKS = 40
_LEADERS_PAUSE_S = 0.1
_BACKOFF_MS = 10
"""Before the client asks again: mostly until the coordinator has ended the transaction before."""


def client_id(settings: Settings) -> str:
    """Return the name of this release, by which the members of a group tell each other's."""
    producer = settings.producer()
    return "-".join([producer.name, producer.version, *([] if producer.git == "unknown" else [producer.git[:8]])])


def connection_options(settings: Settings) -> dict[str, Any]:
    """Return the connection arguments that aiokafka's clients share.

    Raises:
        ConfigurationError: ``bad_tls_file`` where a certificate or key cannot be read.
    """
    options: dict[str, Any] = {
        "bootstrap_servers": settings.bootstrap_servers,
        "client_id": client_id(settings),
        "security_protocol": settings.security_protocol,
    }
    if settings.security_protocol.endswith("SSL"):
        options["ssl_context"] = _ssl_context(settings)
    if settings.security_protocol.startswith("SASL"):
        if settings.sasl_username is None or settings.sasl_password is None:
            raise ConfigurationError(
                "bad_setting",
                "SASL needs ASSAY_STREAM_SASL_USERNAME and ASSAY_STREAM_SASL_PASSWORD (or _PASSWORD_FILE)",
            )
        options["sasl_mechanism"] = settings.sasl_mechanism
        options["sasl_plain_username"] = settings.sasl_username
        options["sasl_plain_password"] = settings.sasl_password.get_secret_value()
    return options


def writing_producer(settings: Settings, **options: Any) -> AIOKafkaProducer:
    """Return a producer, not started, whose writes are acknowledged by all in-sync replicas, once and in order."""
    return AIOKafkaProducer(
        **connection_options(settings),
        acks="all",
        enable_idempotence=True,
        max_request_size=REQUEST_BYTES_MAX,
        **options,
    )


def _ssl_context(settings: Settings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ssl_cafile)
        if settings.ssl_certfile is not None:
            password = settings.ssl_keyfile_password
            # Without a password of ours OpenSSL would ask the terminal for one, and wait.
            context.load_cert_chain(
                settings.ssl_certfile, settings.ssl_keyfile, "" if password is None else password.get_secret_value()
            )
    except (OSError, ssl.SSLError, ValueError) as error:
        raise ConfigurationError("bad_tls_file", f"cannot use the TLS files of ASSAY_STREAM_SSL_*: {error}") from None
    return context


async def start_admin(settings: Settings, *, waiting: Callable[[str], None] | None = None) -> AIOKafkaAdminClient:
    """Return a connected admin client, trying until the operator's limit.

    Args:
        waiting: told once, in words, that the brokers do not answer yet.

    Raises:
        ConfigurationError: where the brokers are there and refuse us, or we them: as ``kafka.refusals.why_refused``.
        OperatingError: ``broker_unreachable`` after ``connect_limit_s``.
    """
    deadline = asyncio.get_running_loop().time() + settings.connect_limit_s
    options = connection_options(settings)
    while True:
        admin = AIOKafkaAdminClient(**options)
        try:
            # A host that drops packets would hold one attempt for longer than all of them may take.
            async with asyncio.timeout_at(max(deadline, asyncio.get_running_loop().time() + _ATTEMPT_LEAST_S)):
                await admin.start()
        except (KafkaError, OSError, ValueError) as error:
            await admin.close()
            refusal = await why_refused(options)
            if refusal is not None:
                raise refusal from None
            if asyncio.get_running_loop().time() >= deadline:
                raise broker_unreachable(settings, error) from None
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


class Consumer(AIOKafkaConsumer):  # type: ignore[misc]
    """A consumer that also knows what aiokafka keeps to itself: committed metadata, and its membership."""

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where logs end, as told by leaders that two of three brokers name; of fewer, all.

        A broker that was frozen or cut off takes itself for the leader until it hears of its successor, and says where
        the log ended before. Who goes by that takes a call for ready that is not, or restores half a state.

        Raises:
            KafkaTimeoutError: brokers do not agree who leads, or are away.
        """
        places = list(partitions)
        for _ in range(_LEADERS_LOOKS):
            leaders = self._leaders(places)
            ends, are_named = await asyncio.gather(super().end_offsets(places), self._are_named(leaders))
            if are_named and leaders == self._leaders(places):
                return dict(ends)
            await self._client.force_metadata_update()
            await asyncio.sleep(_LEADERS_PAUSE_S)
        raise KafkaTimeoutError("brokers do not agree who leads")

    def _leaders(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        return {tp: self._client.cluster.leader_for_partition(tp) for tp in places}

    async def _are_named(self, leaders: Mapping[TopicPartition, int | None]) -> bool:
        nodes = [broker.nodeId for broker in self._client.cluster.brokers()]
        lacking = min(len(nodes), _NAMED_BY) if len(nodes) > 1 else 0
        chosen = random.sample(nodes, min(len(nodes), _ASKED)) if lacking else []
        waiting = {asyncio.create_task(self._does_name(node, leaders)) for node in chosen}
        while lacking > 0 and waiting:
            done, waiting = await asyncio.wait(waiting, timeout=_ANSWER_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
            lacking -= sum(each.result() for each in done)
            if not done:
                break
        for each in waiting:
            each.cancel()
        return lacking <= 0

    async def _does_name(self, node: int, leaders: Mapping[TopicPartition, int | None]) -> bool:
        request = MetadataRequest(sorted({tp.topic for tp in leaders}), allow_auto_topic_creation=False)
        try:
            topics = (await self._client.send(node, request)).topics
        except KafkaError:
            return False
        named = {(TopicPartition(topic[1], part[1]), part[2]) for topic in topics for part in topic[-1]}
        return leaders.items() <= named

    def member(self) -> GroupMember:
        """Return its place in the group; of a past generation once the group has expelled it."""
        group = self._coordinator
        return GroupMember(group.group_id, group.generation, group.member_id)

    async def committed_with_metadata(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int | None, str]]:
        """Return the group's committed offset of each partition, ``None`` where there is none, and its metadata.

        Waits until no open transaction has offsets of them.

        Raises:
            KafkaTimeoutError: one that is open does not end.
        """
        group = self._coordinator
        request = StableOffsetFetch(group.group_id, partitions)
        deadline = asyncio.get_running_loop().time() + _STABLE_LIMIT_S
        while True:
            await group.ensure_coordinator_known()
            answer = await group._send_req(request)
            parts = [(topic[0], part) for topic in answer.topics for part in topic[1]]
            codes = {answer.error_code, *(part[4] for _, part in parts)} - {0}
            if not codes:
                return {TopicPartition(topic, part[0]): (_offset(part[1]), part[3] or "") for topic, part in parts}
            refused = codes - _OFFSETS_LATER - _COORDINATOR_MOVED
            if refused:
                raise for_code(min(refused))()
            if codes & _COORDINATOR_MOVED:
                group.coordinator_dead()
            if asyncio.get_running_loop().time() > deadline:
                raise KafkaTimeoutError("an open transaction has offsets of these partitions and does not end")
            await asyncio.sleep(_STABLE_PAUSE_S)


def _offset(committed: int) -> int | None:
    return None if committed < 0 else committed


class Clients(Protocol):
    """Makes the clients of one deployment, not started: ``KafkaClients``, or in tests a cluster in memory."""

    def consumer(self, **options: Any) -> Consumer:
        """Return a consumer as ``reading_consumer`` does."""

    def producer(self, transactional_id: str) -> AIOKafkaProducer:
        """Return a transactional producer."""


class KafkaClients:
    """Makes clients of the brokers that the settings name."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def consumer(self, **options: Any) -> Consumer:
        return reading_consumer(self._settings, **options)

    def producer(self, transactional_id: str) -> AIOKafkaProducer:
        """Return a transactional producer, not started.

        Args:
            transactional_id: names the input partition: the same on every worker.
        """
        return AIOKafkaProducer(
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
    """Return a consumer, not started, that sees committed records only and never resets by itself.

    Args:
        isolation_level: ``read_uncommitted`` to see where open transactions end, too.
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
