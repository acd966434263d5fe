"""Forwarding: follows the alert topic in a consumer group of its own, and delivers every alert at least once.

1. An offset is committed only after its alert was taken by the receiver, or stands in the dead letters.
2. A receiver that does not answer is waited for: nothing new is delivered, what waits stays in Kafka, and the lag
   of the group shows it.
3. After a crash, what was delivered and not committed is delivered again, under the same idempotency key.
4. The n-th wait in a row is half a second times ``2**(n-1)``, half a minute at most, and never shorter than the
   receiver asked for. No clock and no jitter: the same outcomes give the same schedule.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import structlog

from assay_stream.alerts.formats import AlertView, read_alert, view_of
from assay_stream.config import Settings
from assay_stream.errors import AssayStreamError, ConfigurationError, InputError
from assay_stream.forward.posting import RETRY_AFTER_MAX_MS
from assay_stream.forward.receivers import AttemptResult, DeliveryOutcome, Subscription, waiting
from assay_stream.kafka.connection import (
    MAY_PASS,
    Consumer,
    ConsumerRebalanceListener,
    KafkaError,
    TopicPartition,
    reading_consumer,
    record_of,
    writing_producer,
)
from assay_stream.kafka.part import UNCOUNTED, PatientPart, StageMetrics, lags_of
from assay_stream.kafka.publishing import send_all
from assay_stream.kafka.topics import STAGES, AccessRole, topic_names
from assay_stream.model.record import Output, Record, Role, rejected
from assay_stream.worker.host import Host, PartitionCounts, run_host
from assay_stream.worker.telemetry import PrometheusStage

_log = structlog.get_logger(__name__)

_RECORDS_PER_POLL_MAX = 100
_COMMIT_INTERVAL_S = 1.0
_REPORT_INTERVAL_S = 60.0
_CLOSE_LIMIT_S = 5.0
_GROUP_LIMIT_S = 10.0
"""For what the client asks of the group's coordinator, which it does until it gets an answer, however long."""
_POLL_INTERVAL_MS = 2**31 - 1
"""A receiver may be down for long, so a long time between two polls is no sign of death."""
_WAIT_FIRST_MS = 500
WAIT_LONGEST_MS = 30_000
_EXPONENT_MAX = 32
_LABELS = {"dead": "dead_letter", "not_wanted": "not_wanted"}


def next_wait_ms(failures: int, retry_after_ms: int) -> int:
    own = min(WAIT_LONGEST_MS, _WAIT_FIRST_MS << min(failures - 1, _EXPONENT_MAX))
    return max(own, min(retry_after_ms, RETRY_AFTER_MAX_MS))


def run_forwarders(settings: Settings, subscriptions: Sequence[Subscription], *, web_port: int | None = None) -> None:
    """Forward alerts until SIGTERM or SIGINT, to each receiver at its own pace.

    Raises:
        ConfigurationError: ``topic_missing``, ``bad_group``, ``web_port_taken``.
        OperatingError: ``broker_unreachable`` or ``brokers_failing``.
    """
    own = {f"{settings.group_prefix}-{stage}" for stage in STAGES}
    if any(each.group in own or not each.group.strip() for each in subscriptions):
        raise ConfigurationError("bad_group", "--group must not be a stage's group, or empty: choose another name")

    def build(host: Host, counts: PartitionCounts) -> None:
        for each in subscriptions:
            forwarder = Forwarder(settings, each, metrics=PrometheusStage(host.metrics, each.name))
            # One broken hook is no reason to hold up a rollout: the others are served.
            host.add(each.name, forwarder, is_alternative=True)
            _log.info("forwarding_started", receiver=each.receiver.name, group=each.group)

    run_host(settings, {Role.ALERTS, Role.DEAD_LETTERS}, [AccessRole.FORWARDER], build, web_port=web_port)


class Forwarder(PatientPart, ConsumerRebalanceListener):  # type: ignore[misc]
    """Delivers alerts to one receiver until told to stop."""

    def __init__(self, settings: Settings, subscription: Subscription, *, metrics: StageMetrics = UNCOUNTED) -> None:
        super().__init__("forwarding", settings, metrics=metrics)
        metrics.count("outputs", 0, _LABELS["dead"])  # from the start: Prometheus misses an increase from nothing to 1
        self._receiver = subscription.receiver
        self._subscription = subscription
        self._topics = topic_names(settings)
        self._generation = 0
        self._delivered: dict[TopicPartition, int] = {}
        """Next offset to commit, of partitions with something to commit."""
        self._next: dict[TopicPartition, int] = {}
        """Next offset to deliver, of the partitions whose position was set."""
        self._committed_s = self._reported_s = time.monotonic()
        self._producer = writing_producer(settings)
        self._consumer: Consumer = reading_consumer(
            settings,
            group_id=subscription.group,
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=settings.session_timeout_ms // 3,
            max_poll_interval_ms=_POLL_INTERVAL_MS,
        )
        self.counts: Counter[str] = Counter()
        self.is_waiting = False
        """Whether the receiver is waited for."""
        self.moved_s = time.monotonic()

    @property
    def ready(self) -> bool:
        """Whether the receiver took the last alert, and the brokers answer."""
        return self.is_ready and not self.is_waiting

    def note_gauges(self) -> None:
        self.metrics.measure("buffered", self.is_waiting)
        self.metrics.lags(lags_of(self._consumer, self._next))

    def _count(self, what: str) -> None:
        self.counts[what] += 1
        self.metrics.done(0, {_LABELS.get(what, f"attempt:{what}"): 1})

    async def run(self) -> None:
        self._consumer.subscribe([self._topics[Role.ALERTS]], listener=self)
        try:
            await self._producer.start()
            await self._consumer.start()
            while not self.stopping.is_set():
                try:
                    await self._turn()
                    self.failures, self.is_ready = 0, True
                except MAY_PASS as error:
                    self.is_ready = False
                    await self.endure(error)
                    # What was fetched and not delivered is fetched again.
                    self._next.clear()
        finally:
            await self._close()

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Commit delivered alerts: the partitions may move to another member."""
        self._generation += 1
        # Who comes next delivers again what this could not commit.
        with suppress(KafkaError, TimeoutError):
            await self._commit()
        self._delivered.clear()
        self._next.clear()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._generation += 1
        self._next.clear()
        _log.info("partitions_assigned", partitions=sorted(partition.partition for partition in assigned))

    async def _go_to(self, partitions: set[TopicPartition], generation: int) -> None:
        """Go to where each partition was left; a new group starts at the oldest alert, or at the end if it is to."""
        beginnings = await self._consumer.beginning_offsets(list(partitions))
        ends = await self._consumer.end_offsets(list(partitions)) if self._subscription.from_now else {}
        async with asyncio.timeout(_GROUP_LIMIT_S):
            committed = {partition: await self._consumer.committed(partition) for partition in partitions}
        if self._generation != generation:
            return
        for partition, beginning in beginnings.items():
            left_at = self._delivered.get(partition, committed[partition])
            if left_at is not None and left_at < beginning:
                # Retention was shorter than the outage: the alerts are gone, and that must not pass in silence.
                self.metrics.expired(partition, left_at, beginning - left_at)
                self.counts["expired"] += beginning - left_at
                self._delivered[partition] = beginning
            if left_at is None and partition in ends:
                left_at = self._delivered[partition] = ends[partition]
            self._next[partition] = beginning if left_at is None else max(left_at, beginning)
            self._consumer.seek(partition, self._next[partition])
        if ends:
            # At once, before anything is fetched: what arrives while this process is down is not skipped.
            await self._commit()

    async def _turn(self) -> None:
        generation = self._generation
        self.moved_s = time.monotonic()
        unplaced = self._consumer.assignment() - self._next.keys()
        if unplaced:
            await self._go_to(set(unplaced), generation)
        if self._generation != generation:
            return
        fetched = await self._consumer.getmany(
            timeout_ms=self.settings.poll_timeout_ms, max_records=_RECORDS_PER_POLL_MAX
        )
        for partition, messages in fetched.items():
            for message in messages:
                if not await self._handle(record_of(Role.ALERTS, message), generation):
                    return
                self.counts["read"] += 1
                self.metrics.done(1, {})
                self._delivered[partition] = self._next[partition] = message.offset + 1
                if time.monotonic() - self._committed_s >= _COMMIT_INTERVAL_S:
                    await self._commit()
        for partition, following in list(self._next.items()):
            position = await self._consumer.position(partition)
            if self._generation != generation:
                return
            if position > following:
                # The markers of transactions lie between: left there, they would pass for alerts that wait.
                self._delivered[partition] = self._next[partition] = position
        await self._commit()
        if time.monotonic() - self._reported_s >= _REPORT_INTERVAL_S:
            self._report("forwarding")

    async def _handle(self, record: Record, generation: int) -> bool:
        """Bring one alert to its end, and say whether that was reached before the stop or a rebalance."""
        try:
            alert = read_alert(record.value)
            view = view_of(alert)
            if not self._subscription.wants(view):
                self._count("not_wanted")
            elif not await self._deliver(alert, view, generation):
                return False
        except InputError as error:
            await self._bury(record, error)
        return self._generation == generation

    async def _deliver(self, alert: dict[str, Any], view: AlertView, generation: int) -> bool:
        """Return whether the receiver took an alert before the stop or a rebalance; one refused for good raises."""
        failures = 0
        while not self.stopping.is_set() and self._generation == generation:
            self.moved_s = time.monotonic()
            # After a stop request, the attempt in hand has half of the stop limit to finish.
            result = await self.until_stopped(self._send(view, alert), grace_s=self.settings.stop_limit_s / 2)
            answer = waiting("stopped") if result is None else result
            self._count(answer.outcome.value)
            self.is_waiting = answer.outcome is DeliveryOutcome.UNAVAILABLE
            if answer.outcome is DeliveryOutcome.DELIVERED:
                if failures:
                    _log.info("receiver_answers_again", receiver=self._receiver.name, failures=failures)
                return True
            if answer.outcome is DeliveryOutcome.REFUSED:
                raise InputError("refused_by_receiver", f"{self._receiver.name} refused it: {answer.code}")
            failures += 1
            wait_ms = next_wait_ms(failures, answer.retry_after_ms)
            _log.warning(
                "receiver_not_answering",
                receiver=self._receiver.name,
                why=answer.code,
                attempt=failures,
                wait_ms=wait_ms,
            )
            # While this alert waits, those before it are done.
            await self._commit()
            # A wait that a receiver asked for may be longer than what passes for a stall.
            self.moved_s = time.monotonic() + wait_ms / 1_000
            await self.pause(wait_ms / 1_000)
        # Whoever has the alert now waits for the receiver.
        self.is_waiting = False
        return False

    async def _send(self, view: AlertView, alert: dict[str, Any]) -> AttemptResult:
        try:
            result = await self._receiver.send(view, self._receiver.write(alert))
            return result if isinstance(result, AttemptResult) else waiting("no_result")
        except InputError:
            raise
        except Exception as error:  # noqa: BLE001 - the mistake of one plug-in holds up no other receiver
            return waiting(type(error).__name__)

    async def _bury(self, record: Record, error: AssayStreamError) -> None:
        self.is_waiting = False
        letter = dead_letter(record, error)
        [failure] = await send_all(self._producer, self._topics, [letter])
        if failure is not None:
            raise failure
        self._count("dead")
        _log.error("alert_refused", code=error.code, why=error.message, **record.origin.as_json())

    async def _commit(self) -> None:
        offsets = dict(self._delivered)
        if offsets:
            async with asyncio.timeout(_GROUP_LIMIT_S):
                await self._consumer.commit(offsets)
        # What was delivered while the commit was under way stays for the next one.
        self._delivered = {tp: offset for tp, offset in self._delivered.items() if offsets.get(tp) != offset}
        self._committed_s = time.monotonic()

    async def _close(self) -> None:
        with suppress(KafkaError, TimeoutError):
            await self._commit()
        for ending in (self._consumer.stop(), self._producer.stop(), self._receiver.close()):
            # A broker that is away cannot be told that we leave.
            with suppress(KafkaError, OSError, TimeoutError):
                await asyncio.wait_for(ending, _CLOSE_LIMIT_S)
        self._report("forwarding_ended")

    def _report(self, event: str) -> None:
        self._reported_s = time.monotonic()
        _log.info(event, receiver=self._receiver.name, **dict(sorted(self.counts.items())))


def dead_letter(record: Record, error: AssayStreamError) -> Output:
    """Return the dead letter of an alert: its bytes, key and headers, and why it was refused."""
    return rejected(record, error)._replace(role=Role.DEAD_LETTERS, label=f"dead:{error.code}")
