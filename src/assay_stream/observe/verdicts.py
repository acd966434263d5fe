"""Verdicts of the stream, and what a proxy does with a call: the verdict table, and the client that follows the topic.

The stream's verdict covers the whole fleet and arrives a moment after a change. The definition that the proxy itself
passed to its client is checked against the same pins at once, and takes precedence.

The client's thread follows the verdict topic and reconnects by itself. Until it has read the topic to its end once,
nothing is known, and ``rule`` answers as ``unavailable`` says. After that the latest verdicts stand, however long the
brokers are away; ``age_s`` says how long that is.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from assay_stream.errors import AssayStreamError, ConfigurationError, InputError, IntegrityError, OperatingError
from assay_stream.kafka.refusals import explained, why_refused
from assay_stream.model.evidence import PinResult, PinStatus
from assay_stream.model.record import TOPIC_NAMES, Role
from assay_stream.registry.pins import PinsInForce, check_pins
from assay_stream.schemes.fingerprint import SCHEMES, Fingerprint
from assay_stream.schemes.hangar import Action, DigestPolicy, MismatchAction, UnknownPolicy

_log = logging.getLogger(__name__)
_POLL_MS = 200
_STOP_LIMIT_S = 5.0
_BACKOFF_MIN_S = 0.2
_BACKOFF_MAX_S = 5.0
_ORDER = (Action.ALLOW, Action.WARN, Action.BLOCK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The stream's verdict on one tool, or on the tools of a server that have none of their own.

    Args:
        action: the policy's action for the tool as the fleet sees it.
        result: the worst pin result among the tool's definitions.
    """

    action: Action
    result: PinResult
    pins: PinsInForce
    policy: DigestPolicy | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What to do with a call."""

    action: Action
    reason_code: str
    result: PinResult | None = None


UNREADABLE = Fingerprint(full="", schemes={}, errors=dict.fromkeys(SCHEMES, "unreadable"), fields={})
"""A definition that a client was given and that has no value under any scheme."""

WITHDRAWN = Fingerprint(full="", schemes={}, errors=dict.fromkeys(SCHEMES, "withdrawn"), fields={})
"""A definition that a client was given before the server changed its list to one without it."""

NO_VERDICT = Ruling(action=Action.ALLOW, reason_code="no_verdict")


class VerdictTable:
    """The current state of the verdict topic, by server and tool."""

    def __init__(self) -> None:
        self._verdicts: dict[tuple[str, str | None], Verdict] = {}

    def __len__(self) -> int:
        return len(self._verdicts)

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Apply one record of the verdict topic.

        Raises:
            IntegrityError: ``foreign_verdict`` if somebody else has written to the topic.
        """
        try:
            place = orjson.loads(key or b"")
            if not isinstance(place, list):
                raise TypeError
            server_id, tool_name = place
            if not isinstance(server_id, str) or not (tool_name is None or isinstance(tool_name, str)):
                raise TypeError
            if value is None:
                self._verdicts.pop((server_id, tool_name), None)
            else:
                self._verdicts[server_id, tool_name] = _read(orjson.loads(value))
        except (ValueError, KeyError, TypeError, AttributeError, InputError):
            raise IntegrityError(
                "foreign_verdict", "the verdict topic holds a record that is not ours: find out who writes to it"
            ) from None

    def rule(self, server_id: str, tool_name: str, definition: Fingerprint | None) -> Ruling:
        """Return what to do with a call.

        The definition that the client was given takes precedence over what the fleet sees. If it has no value under
        a pin's scheme it counts as a mismatch, because the approved definition had one.
        """
        own = self._verdicts.get((server_id, tool_name))
        verdict = own or self._verdicts.get((server_id, None))
        if verdict is None:
            return NO_VERDICT
        if definition is None and own is not None:
            return _ruling(verdict.action, verdict.result)
        result = check_pins(verdict.pins, definition, policy=verdict.policy)
        action = result.action or Action.ALLOW
        if result.status is PinStatus.MISMATCH and definition is WITHDRAWN:
            return _ruling(action, replace(result, status=PinStatus.UNOBSERVED))
        if result.status is PinStatus.MISMATCH and result.observed is None:
            return Ruling(action=action, reason_code="definition_not_digestible", result=result)
        return _ruling(action, result)


def gravity(action: Action) -> int:
    """Return how restrictive an action is, to choose the most restrictive of several."""
    return _ORDER.index(action)


def _ruling(action: Action, result: PinResult) -> Ruling:
    return Ruling(action=action, reason_code=f"definition_{result.status.value}", result=result)


def _read(content: Mapping[str, Any]) -> Verdict:
    action, policy = Action(content["action"]), content.get("policy")
    if policy is not None:
        enforcement, unknown = MismatchAction(policy["enforcement"]), UnknownPolicy.parse(policy["unknown"])
        policy = DigestPolicy(enforcement=enforcement, unknown=unknown)
    optional = {name: content.get(name) for name in ("scheme", "expected", "observed", "enforcement")}
    rejected = {scheme: tuple(values) for scheme, values in content.get("rejected", {}).items()}
    return Verdict(
        action=action,
        result=PinResult(status=PinStatus(content["status"]), action=action, **optional),
        pins=PinsInForce(approved=dict(content.get("pins", {})), rejected=rejected),
        policy=policy,
    )


class VerdictClient:
    """Follows the verdict topic and rules on calls from memory. May be used from any thread.

    Args:
        unavailable: what to do with calls until the verdicts have been read.
    """

    def __init__(
        self,
        connection: Mapping[str, Any],
        *,
        topic: str = TOPIC_NAMES[Role.VERDICTS],
        unavailable: Action = Action.BLOCK,
        monotonic_s: Callable[[], float],
    ) -> None:
        self._connection = dict(connection)
        self._topic = topic
        self._unavailable = unavailable
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._table: VerdictTable | None = None
        self._heard_s = monotonic_s()
        self._pause_s = _BACKOFF_MIN_S
        self._complained = False
        self._ready = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start to follow the topic in the background; does not wait for a broker."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="assay-stream verdicts", daemon=True)
            self._thread.start()

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait for the first complete read of the topic, at most ``timeout_s`` seconds; return whether it is done."""
        return self._ready.wait(timeout_s)

    @property
    def age_s(self) -> float:
        """Seconds since the brokers last answered for every partition of the topic, or since the beginning."""
        return self._monotonic_s() - self._heard_s

    def rule(self, server_id: str, tool_name: str, definition: Fingerprint | None = None) -> Ruling:
        """Return what to do with a call. Never waits.

        Args:
            definition: fingerprint of the definition that the caller was given (``schemes.fingerprint``), if known.
        """
        with self._lock:
            if self._table is None:
                return Ruling(action=self._unavailable, reason_code="verdicts_unavailable")
            return self._table.rule(server_id, tool_name, definition)

    def close(self) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join(_STOP_LIMIT_S)
            self._thread = None

    # In the thread

    def _follow(self) -> None:
        while not self._closing.is_set():
            try:
                asyncio.run(self._connect())
            except Exception as error:  # noqa: BLE001 - whatever fails, the latest verdicts stand and we reconnect
                if not self._complained or isinstance(error, IntegrityError):
                    # Our own errors quote nothing; others may name hosts and users.
                    cause = explained(error)
                    if not isinstance(cause, AssayStreamError) or isinstance(cause, OperatingError):
                        cause = asyncio.run(why_refused(self._connection))
                    what = type(error).__name__ if cause is None else str(cause)
                    _log.warning("cannot follow the verdicts, still trying: %s", what)
                self._complained = True
                self._closing.wait(self._pause_s)
                self._pause_s = min(self._pause_s * 2, _BACKOFF_MAX_S)

    async def _connect(self) -> None:
        # Imported here: a tap that does not enforce starts faster without it.
        from aiokafka import AIOKafkaConsumer, TopicPartition

        partitions = [TopicPartition(self._topic, number) for number in range(await self._partition_count())]
        consumer = AIOKafkaConsumer(
            **self._connection,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=_POLL_MS,
        )
        consumer.assign(partitions)
        try:
            await consumer.start()
            await consumer.seek_to_beginning(*partitions)
            ends = await consumer.end_offsets(partitions)
            fresh = VerdictTable()
            while any([await consumer.position(tp) < end for tp, end in ends.items()]):
                if self._closing.is_set():
                    return
                await self._read(consumer, fresh)
            with self._lock:
                self._table = fresh
            self._heard_s = self._monotonic_s()
            self._ready.set()
            self._pause_s, self._complained = _BACKOFF_MIN_S, False
            await self._stay(consumer, partitions, fresh)
        finally:
            await consumer.stop()

    async def _partition_count(self) -> int:
        from aiokafka.admin import AIOKafkaAdminClient

        # A consumer knows only the partitions of topics that it reads, and asking for a topic may create it.
        admin = AIOKafkaAdminClient(**self._connection)
        try:
            await admin.start()
            if self._topic not in await admin.list_topics():
                raise ConfigurationError(
                    "topic_missing", f"no such topic: {self._topic}. Create it: assay-stream topics apply"
                )
            [topic] = await admin.describe_topics([self._topic])
            return len(topic["partitions"])
        finally:
            await admin.close()

    async def _stay(self, consumer: Any, partitions: list[Any], table: VerdictTable) -> None:
        answered: dict[Any, int | None] = {}
        while not self._closing.is_set():
            await self._read(consumer, table)
            # An empty read proves nothing: it looks the same while the brokers are away.
            answers = {tp: consumer.last_poll_timestamp(tp) for tp in partitions}
            if all(answer is not None and answer != answered.get(tp) for tp, answer in answers.items()):
                self._heard_s = self._monotonic_s()
                answered = answers

    async def _read(self, consumer: Any, table: VerdictTable) -> None:
        fetched = await consumer.getmany(timeout_ms=_POLL_MS)
        with self._lock:
            for messages in fetched.values():
                for message in messages:
                    table.apply(message.key, message.value)
