"""The alert stage on Faust: findings in, alerts out, with a table that remembers each alert.

At least once, and no less:

1. An alert is acknowledged by the broker before the state that makes it redundant is written.
2. The state of an alert says, in one value, up to which input record its findings were counted. What was counted
   is never counted again, so a repeat has the same uid and the same bytes. That holds for a finding of an aborted
   transaction too: Faust reads uncommitted records, and the stage that undid its batch finds the same again.
3. Time is read from the finding topic like all else. The stage writes a tick into a partition of its own when an
   alert there is due; what is written for it follows from the log, whoever reads it.
4. Faust acknowledges an event whose agent failed. So an error is caught here, the worker is told to stop, and
   the event is never let go.
5. Nothing is written without a lease on the partitions: Faust's producers are not fenced (``alert_watch``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import faust
import structlog

from assay_stream.core.alert import AlertRules
from assay_stream.core.alerting import DueTimes, apply_entry, is_alert, partition_key
from assay_stream.core.attention import Tick, decode_entry
from assay_stream.core.partition import murmur2_partition
from assay_stream.core.record import Origin, Output
from assay_stream.stream.alert_watch import Lease
from assay_stream.stream.faust_consumer import commit_no_more
from assay_stream.stream.meter import StageMeter

_log = structlog.get_logger(__name__)


class AlertStage:
    """Connects the alert rules of the core to a Faust application.

    Args:
        app: the application.
        findings_topic: where findings are read.
        alerts_topic: where alerts are written.
        partitions: how many partitions the finding topic and the change log have.
        alert_partitions: how many partitions the alert topic has.
        rules: what the stage is told.
        clock_us: gives the time, microseconds since the epoch.
        tick_s: how often to look whether an alert is due, seconds; 0 for never.
        meter: where to count.
        lease: says whether the stage may write.
        before_work: called after each rebalance, before anything is processed.
        fail: called with the error that must stop the worker.
    """

    def __init__(
        self,
        app: faust.App,
        *,
        findings_topic: str,
        alerts_topic: str,
        partitions: int,
        alert_partitions: int,
        rules: AlertRules,
        clock_us: Callable[[], int],
        tick_s: int,
        meter: StageMeter,
        lease: Lease,
        before_work: Callable[[], Coroutine[None, None, None]],
        fail: Callable[[BaseException], None],
    ) -> None:
        raw = {"key_type": bytes, "value_type": bytes, "key_serializer": "raw", "value_serializer": "raw"}
        self._findings = app.topic(findings_topic, **raw)
        self._alerts = app.topic(alerts_topic, **raw)
        self._alert_partitions = alert_partitions
        self._states = app.Table("alerts", partitions=partitions, key_type=str)
        self._rules = rules
        self._clock_us = clock_us
        self._app = app
        self._findings_name = findings_topic
        self._partitions = partitions
        self._due: dict[int, DueTimes] = {}
        self._meter = meter
        self._lease = lease
        self._before_work = before_work
        self._fail = fail
        self.ready = False
        self._restoring_since_s: float | None = time.monotonic()
        self._event_since_s: float | None = None
        """Since when the one event in hand is."""
        self._done: dict[int, int] = {}
        """Partition to the next finding to read."""
        app.agent(self._findings, name="raise_alerts")(self._raise_alerts)
        if tick_s:
            app.timer(float(tick_s))(self._tick)
        app.on_rebalance_complete.connect(self._on_rebalance_complete)
        app.on_partitions_revoked.connect(self._on_partitions_revoked)

    @property
    def still_s(self) -> float:
        """For how long the table is being restored, or one event is in hand."""
        since_s = [moment for moment in (self._restoring_since_s, self._event_since_s) if moment is not None]
        return time.monotonic() - min(since_s) if since_s else 0.0

    def note_gauges(self) -> None:
        """Note how far behind each partition is, and how many alerts are kept."""
        behind = {}
        if self.ready:
            for tp in self._app.consumer.assignment():
                done = self._done.get(tp.partition)
                end = self._app.consumer.highwater(tp) if tp.topic == self._findings_name else None
                if end is not None and done is not None:
                    behind[(tp.topic, tp.partition)] = end - done
        self._meter.lags(behind)
        self._meter.state(len(self._states))

    async def _on_rebalance_complete(self, app: faust.App, **_: Any) -> None:
        # Faust clears its queues when it recovers a table, but not the position it has read to: what was fetched
        # in between would be skipped for good. With the flow stopped nothing is; recovery resumes it itself.
        app.consumer.stop_flow()
        if self._restoring_since_s is not None:
            mine = [tp for tp in app.consumer.assignment() if tp.topic == self._findings_name]
            self._meter.opened(len(mine), seconds=time.monotonic() - self._restoring_since_s)
        self._restoring_since_s = None
        try:
            await self._before_work()
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing may be processed
            self._fail(error)
            await asyncio.Event().wait()
        self.ready = True

    async def _on_partitions_revoked(self, *_: Any, **__: Any) -> None:
        self.ready = False
        self._restoring_since_s = time.monotonic()
        self._due.clear()
        self._done.clear()

    async def _raise_alerts(self, stream: Any) -> None:
        async for event in stream.events():
            self._event_since_s = time.monotonic()
            try:
                await self._apply(event)
                self._event_since_s = None
                self._done[event.message.partition] = event.message.offset + 1
            except asyncio.CancelledError:
                self._event_since_s = None
                commit_no_more(self._app.consumer)
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the event must not be acknowledged
                commit_no_more(self._app.consumer)
                self._fail(error)
                await asyncio.Event().wait()

    async def _apply(self, event: Any) -> None:
        message = event.message
        due = self._due_times(message.partition)
        place = Origin(topic=message.topic, partition=message.partition, offset=message.offset)
        self._lease.check()
        step = apply_entry(self._states, decode_entry(event.value), self._rules, due, place=place)
        # A tick may have thousands due: they wait for the broker together.
        for delivery in [await self._publish(alert) for alert in step.outputs]:
            await delivery
        # Those may have taken long, and a state from before would undo what another worker has counted since.
        self._lease.check()
        for key, state in step.states.items():
            self._states[key] = state
        due.note(step.states)
        if step.left_out:
            self._meter.claim_left_out()
        if step.left_out == 1:
            # Once for each set of look-alikes: who floods it shall not flood the log.
            _log.warning("name_claims_left_out", partition=message.partition, offset=message.offset)
        self._meter.done(1, step.outputs)

    def _due_times(self, partition: int) -> DueTimes:
        due = self._due.get(partition)
        if due is None:
            due = self._due[partition] = DueTimes(self._rules)
            # The table holds the alerts of every partition that this worker has; a state says whose it is.
            due.note({key: state for key, state in self._states.items() if self._is_of(partition, key, state)})
        return due

    def _is_of(self, partition: int, key: str, state: dict[str, Any]) -> bool:
        if not is_alert(key):
            return False
        return murmur2_partition(partition_key(state["last"]).encode(), self._partitions) == partition

    async def _tick(self) -> None:
        """Write how far time has come, where something of ours is due: it comes back as a record."""
        if not self.ready:
            return
        now_us = self._clock_us()
        value = Tick(time_us=now_us).encode()
        for assigned in list(self._app.consumer.assignment()):
            if assigned.topic == self._findings_name and self._due_times(assigned.partition).any_by(now_us):
                await self._findings.send(key=b"", value=value, partition=assigned.partition)

    async def _publish(self, alert: Output) -> Awaitable[Any]:
        key = alert.key or b""
        delivery: Awaitable[Any] = await self._alerts.send(
            key=key,
            value=alert.value,
            partition=murmur2_partition(key, self._alert_partitions),
            timestamp=alert.timestamp_ms / 1_000,
            headers=dict(alert.headers),
        )
        return delivery
