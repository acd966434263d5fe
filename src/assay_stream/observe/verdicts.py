"""Client that follows the verdict topic and rules on calls.

Its thread follows the verdict topic and reconnects automatically. Until it has read the topic to its end once,
nothing is known, and ``rule`` answers as ``unavailable`` says. After that the latest verdicts apply, however long the
brokers are away; ``age_s`` says how long that is.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from assay_stream.bindings.controls import Ruling, VerdictTable
from assay_stream.errors import ConfigurationError, IntegrityError
from assay_stream.kafka.refusals import why_away
from assay_stream.model.record import TOPIC_NAMES, Role
from assay_stream.schemes.fingerprint import Fingerprint
from assay_stream.schemes.hangar import Action

if TYPE_CHECKING:
    from assay_stream.kafka.connection import Consumer, TopicPartition

_log = logging.getLogger(__name__)
_POLL_MS = 200
_STOP_LIMIT_S = 5.0
_BACKOFF_MIN_S = 0.2
_BACKOFF_MAX_S = 5.0
_LOOK_S = 0.05
_COMPARISONS_MAX = 1_000


@dataclass(eq=False, repr=False)
class VerdictClient:
    """Follow the verdict topic and rule on calls from memory; ``unavailable`` until it was read. Thread-safe.

    Args:
        server_ids: the servers enforced for; each without a verdict is logged once, after the first complete read.
    """

    connection: Mapping[str, Any]
    _: KW_ONLY
    topic: str = TOPIC_NAMES[Role.VERDICTS]
    unavailable: Action = Action.BLOCK
    server_ids: Collection[str] = ()
    monotonic_s: Callable[[], float]

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._table: VerdictTable | None = None
        self._heard_s = self.monotonic_s()
        self._pause_s = _BACKOFF_MIN_S
        self._complained = False
        self._ready = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start following the topic in the background; does not wait for a broker."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="assay-stream verdicts", daemon=True)
            self._thread.start()

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait up to ``timeout_s`` seconds for the first complete read of the topic; return True if it is complete."""
        return self._ready.wait(timeout_s)

    @property
    def age_s(self) -> float:
        """Seconds since the brokers last answered for every partition of the topic, or since creation."""
        return self.monotonic_s() - self._heard_s

    def rule(self, server_id: str, tool_name: str, definition: Fingerprint | None = None) -> Ruling:
        """Rule on a call by the fingerprint of the definition that its caller received. Never waits."""
        with self._lock:
            if self._table is None:
                return Ruling(action=self.unavailable, reason_code="verdicts_unavailable")
            return self._table.rule(server_id, tool_name, definition)

    def close(self) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join(_STOP_LIMIT_S)
            self._thread = None

    # In the thread

    def _follow(self) -> None:
        # Imported here: a tap that does not enforce starts faster without it.
        from assay_stream.kafka.connection import follow

        asyncio.run(follow(self._consumer, self._begin, self._step, self._endure))

    def _consumer(self) -> Consumer:
        from assay_stream.kafka.connection import Consumer

        return Consumer(
            **self.connection,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="none",
            fetch_max_wait_ms=_POLL_MS,
        )

    async def _begin(self, consumer: Consumer) -> None:
        from assay_stream.kafka.connection import TopicPartition

        places = [TopicPartition(self.topic, number) for number in range(await self._partition_count())]
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        self._ends = await consumer.end_offsets(places)
        self._answered_ms: dict[TopicPartition, int | None] = {}
        self._reading = VerdictTable()

    async def _partition_count(self) -> int:
        from assay_stream.kafka.connection import AIOKafkaAdminClient

        # A consumer knows only the partitions of topics that it reads, and asking for a topic may create it.
        admin = AIOKafkaAdminClient(**self.connection)
        try:
            await admin.start()
            if self.topic not in await admin.list_topics():
                raise ConfigurationError(
                    "topic_missing", f"no such topic: {self.topic}. Create it: assay-stream topics apply"
                )
            [topic] = await admin.describe_topics([self.topic])
            return len(topic["partitions"])
        finally:
            await admin.close()

    async def _step(self, consumer: Consumer) -> bool:
        fetched = await consumer.getmany(timeout_ms=_POLL_MS)
        with self._lock:
            for messages in fetched.values():
                for message in messages:
                    self._reading.apply(message.key, message.value)
        if self._table is self._reading:
            # An empty read proves nothing: it looks the same while the brokers are away.
            answered_ms = {place: consumer.last_poll_timestamp(place) for place in self._ends}
            if all(each is not None and each != self._answered_ms.get(place) for place, each in answered_ms.items()):
                self._heard_s = self.monotonic_s()
                self._answered_ms = answered_ms
        elif all([await consumer.position(place) >= end for place, end in self._ends.items()]):
            with self._lock:
                self._table = self._reading
            self._heard_s = self.monotonic_s()
            if not self._ready.is_set():
                self._warn_of_unknown(self._table.server_ids())
            self._ready.set()
            self._pause_s, self._complained = _BACKOFF_MIN_S, False
        return self._closing.is_set()

    def _warn_of_unknown(self, known: set[str]) -> None:
        """A mistyped server id would silently switch enforcement off."""
        unknown = sorted({*self.server_ids} - known)
        # Calls wait meanwhile: in a large fleet the ids of a tap are not compared with those of all servers.
        compared = known if len(unknown) * len(known) <= _COMPARISONS_MAX else ()
        for server_id in unknown:
            closest = "".join(f"; the closest is {name!r}" for name in get_close_matches(server_id, compared, 1))
            _log.warning("no pin and no policy is on record for %r, so no tool is refused yet%s", server_id, closest)

    async def _endure(self, error: Exception) -> bool:
        """Reconnect after any failure; the latest verdicts stay in force."""
        if not self._complained or isinstance(error, IntegrityError):
            _log.warning("cannot follow the verdicts, still trying: %s", await why_away(error, self.connection))
        self._complained = True
        until_s, self._pause_s = time.monotonic() + self._pause_s, min(self._pause_s * 2, _BACKOFF_MAX_S)
        while not self._closing.is_set() and time.monotonic() < until_s:
            await asyncio.sleep(_LOOK_S)
        return not self._closing.is_set()
