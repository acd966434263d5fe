"""Replay: recorded observations through the same processors, in the order stated in ``order``.

Time advances with the event times of what is replayed: once they are a minute further, and at the last record, what is
due by then is written, as a worker's ticks would have it written. Nothing is written for the time after the last
record: the records do not say whether an alert would have been closed or repeated then.

What a live worker did not know in time a replay may know: a comparison calls that a late snapshot.

An interrupted replay resumes from a *resume point* between two records. It holds what calls have changed: how far each
log was read, and the states of alerts. All else follows from snapshots and control records, which are few and are
applied again.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import compress
from typing import Any

from msgspec import Struct

from assay_stream import engine
from assay_stream.alerts.remembered import state_json, state_of
from assay_stream.alerts.rules import AlertRules
from assay_stream.bindings.state import Bindings
from assay_stream.canonical.redaction import DEFAULT_REDACTION, Redaction
from assay_stream.engine import EngineState
from assay_stream.errors import InputError
from assay_stream.files.spool import Log, LogSpool
from assay_stream.join.processor import Join, process_calls
from assay_stream.limits.core import DEFAULT_LIMITS, Limits
from assay_stream.limits.storage import CALLS_TOGETHER_BYTES_MAX, CALLS_TOGETHER_MAX
from assay_stream.model.cloudevents import Call
from assay_stream.model.envelope import Producer
from assay_stream.model.finding_topic import Tick
from assay_stream.model.observation import CallProfile
from assay_stream.model.record import Origin, Output, Record, Role, made_of
from assay_stream.registry import processor
from assay_stream.registry.processor import Registry
from assay_stream.replay.order import LogPosition, Merge, Placed

_Calls = list[tuple[Placed, Call | InputError]]


def joined_calls(
    join: Join, merged: Iterable[Placed], server_ids: Collection[str] | None
) -> Iterator[tuple[Placed, list[Output] | None]]:
    """Yield records in their places: a call with what the join writes for it, any other with ``None``.

    Args:
        merged: records in order. Of these the caller applies each that is no call before it asks for the next.
        server_ids: calls of other servers lead to nothing; ``None`` for all.
    """
    calls: _Calls = []
    size_bytes = 0
    for placed in merged:
        event = placed.read
        if event is None:
            yield from _written(join, calls, server_ids)
            calls, size_bytes = [], 0
            yield placed, None
            continue
        calls.append((placed, event))
        size_bytes += len(placed.record.value or b"")
        if len(calls) >= CALLS_TOGETHER_MAX or size_bytes >= CALLS_TOGETHER_BYTES_MAX:
            yield from _written(join, calls, server_ids)
            calls, size_bytes = [], 0
    yield from _written(join, calls, server_ids)


def _written(join: Join, calls: _Calls, server_ids: Collection[str] | None) -> Iterator[tuple[Placed, list[Output]]]:
    if server_ids is None:
        found = process_calls(join, [(placed.record, event) for placed, event in calls])
        return zip((placed for placed, _ in calls), found, strict=True)
    wanted = [_is_of(placed, event, server_ids) for placed, event in calls]
    read = [(placed.record, event) for placed, event in compress(calls, wanted)]
    others = iter(process_calls(join, read))
    return ((placed, next(others) if is_wanted else []) for (placed, _), is_wanted in zip(calls, wanted, strict=True))


def _is_of(placed: Placed, event: Call | InputError, server_ids: Collection[str]) -> bool:
    """Return True if a call is to one of these servers; a refused call is matched by its key."""
    if isinstance(event, InputError):
        key = placed.record.key
        return key is not None and key.decode("utf-8", "replace") in server_ids
    return event.server_id in server_ids


_FINDING_TOPIC = "replay"
_TICK_US = 60_000_000
"""How far event time advances between two looks at what is due."""
_STEPS_MAX = 400
"""Steps in which time advances after the last record: more than a year of days."""


class ResumePoint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a replay stands between two records.

    Args:
        logs: how far each log was replayed, and how many of its records were.
    """

    logs: list[tuple[Log, LogPosition, int]]
    alerts: dict[str, dict[str, Any]]
    findings: int
    ticked_us: int
    time_us: int


class Replay:
    """The stages over everything in a spool.

    Args:
        snapshot_partitions: partition count of the snapshot topic, ``None`` if unknown.
        server_ids: replay the calls of these servers only; ``None`` for all.
        take_fact: gets every record of the binding topic, which is no result of a replay.
    """

    def __init__(
        self,
        spool: LogSpool,
        *,
        producer: Producer,
        limits: Limits = DEFAULT_LIMITS,
        snapshot_partitions: int | None = None,
        redaction: Redaction = DEFAULT_REDACTION,
        call_profile: CallProfile = "assay",
        server_ids: Collection[str] | None = None,
        alert_rules: AlertRules | None = None,
        take_fact: Callable[[Output], None] | None = None,
    ) -> None:
        self._producer = producer
        self._take_fact = take_fact
        self._limits = limits
        self.snapshot_partitions = snapshot_partitions
        self._server_ids = None if server_ids is None else frozenset(server_ids)
        self._state = EngineState(
            producer=producer, limits=limits, redaction=redaction, call_profile=call_profile, alert_rules=alert_rules
        )
        self._state.join.bindings = Bindings(home_partitions=snapshot_partitions)
        self._registries: dict[int, Registry] = {}
        self._spool = spool
        self._merge = Merge(spool, limits=limits, call_profile=call_profile)
        self._positions = [LogPosition()] * len(self._merge.logs)
        self._done = [0] * len(self._merge.logs)
        self._findings = 0
        self._ticked_us = self._time_us = 0

    @property
    def time_us(self) -> int:
        """Event time of the latest record, microseconds since the epoch."""
        return max(self._ticked_us, self._time_us)

    def calls_done(self) -> list[tuple[str, int, int]]:
        """Return the name of each partition of calls, how many were replayed, and how many there are."""
        return [
            (f"{log.topic}:{log.partition}", done, self._spool.count(log))
            for log, done in zip(self._merge.logs, self._done, strict=True)
            if log.role is Role.CALLS
        ]

    def resume_point(self) -> ResumePoint:
        return ResumePoint(
            logs=list(zip(self._merge.logs, self._positions, self._done, strict=True)),
            alerts={key: state_json(value) for key, value in self._state.alerts.states.items()},
            findings=self._findings,
            ticked_us=self._ticked_us,
            time_us=self._time_us,
        )

    def resume_from(self, point: ResumePoint) -> list[Output]:
        """Bring the state to a resume point of another replay of the same records.

        Return what snapshots and control records wrote up to there, without alerts.
        """
        outputs: list[Output] = []
        for placed in self._merge.read_applied({log: position for log, position, _ in point.logs}):
            outputs += self._register(placed.record)
        before = {log: (position, done) for log, position, done in point.logs}
        found = [before.get(log, (LogPosition(), 0)) for log in self._merge.logs]
        self._positions, self._done = [position for position, _ in found], [done for _, done in found]
        self._state.alerts.keep({key: state_of(key, content) for key, content in point.alerts.items()})
        self._findings = point.findings
        self._ticked_us, self._time_us = point.ticked_us, point.time_us
        return outputs

    def steps(self) -> Iterator[list[Output]]:
        """Yield the outputs of each record; the last list belongs to the end."""
        positions, done = self._positions, self._done
        placed = self._merge.read(dict(zip(self._merge.logs, positions, strict=True)))
        for (time_ms, log, offset, record, _, latest_ms), written in joined_calls(
            self._state.join, placed, self._server_ids
        ):
            outputs: list[Output] = []
            self._time_us = time_us = time_ms * 1_000
            if time_us >= self._ticked_us + _TICK_US:
                self._ticked_us = time_us
                self._tick(time_us, outputs)
            if written is None:
                self._follow(self._register(record), outputs)
            elif len(written) == 1:
                outputs += written  # evidence, or the rejected copy: most calls
            else:
                self._follow(written, outputs)
            positions[log] = made_of(LogPosition, (offset, latest_ms))
            done[log] += 1
            yield outputs
        outputs = []
        # Times may go back in the merged order: a partition keeps its own.
        self._tick(max(self._ticked_us, self._time_us), outputs)
        yield outputs

    def advance_time(self, until_us: int) -> Iterator[list[Output]]:
        """Yield the alerts that a worker would write after the last record, until an event time in microseconds."""
        pacing = self._state.alerts.rules.pacing
        # The end of an alert is dated by when it was seen, and written once it has settled.
        until_us += max(pacing.settle_us, pacing.repeat_interval_us)
        time_us = max(self._ticked_us, self._time_us)
        # An alert may be dated thousands of years ahead.
        step_us = max(pacing.repeat_interval_us, (until_us - time_us) // _STEPS_MAX)
        while time_us < until_us and self._state.alerts.any_due_by(until_us):
            time_us = min(time_us + step_us, until_us)
            outputs: list[Output] = []
            self._tick(time_us, outputs)
            yield outputs

    def _register(self, record: Record) -> list[Output]:
        """Apply a snapshot or control record and the facts of its registry; return everything else it writes."""
        # One registry per partition, as in the worker: a misrouted server must look the same.
        registry = self._registries.get(record.origin.partition)
        if registry is None:
            registry = self._registries[record.origin.partition] = Registry(
                producer=self._producer, limits=self._limits, partitions=self.snapshot_partitions
            )
        outputs = []
        for output in processor.process(registry, record):
            if output.role is Role.BINDINGS:
                engine.process(self._state, _fed_back(output, 0))
                if self._take_fact is not None:
                    self._take_fact(output)
            else:
                outputs.append(output)
        return outputs

    def _follow(self, written: Iterable[Output], outputs: list[Output]) -> None:
        for output in written:
            outputs.append(output)
            if output.role is Role.FINDINGS:
                outputs += engine.process(self._state, _fed_back(output, self._findings))
                self._findings += 1

    def _tick(self, time_us: int, outputs: list[Output]) -> None:
        while self._state.alerts.any_due_by(time_us):
            origin = Origin(topic=_FINDING_TOPIC, partition=0, offset=self._findings)
            tick = Record(role=Role.FINDINGS, origin=origin, key=b"", value=Tick(time_us=time_us).encode())
            outputs += engine.process(self._state, tick)
            self._findings += 1


def replay(records: Iterable[Record], *, producer: Producer, **options: Any) -> Iterator[Output]:
    """Yield everything the stages write for these records: evidence, alerts, definitions, rejected records.

    Args:
        records: records of the snapshots, control and calls topics, in any order. All are read before the first
            output; what does not fit into memory goes to a temporary file.

    Raises:
        InputError: ``conflicting_records``: two different records claim one place in one log.
    """
    with spooled(records) as spool:
        for outputs in Replay(spool, producer=producer, **options).steps():
            yield from outputs


def spooled(records: Iterable[Record]) -> LogSpool:
    """Return a finished spool of records of any partitions, in any order.

    Raises:
        InputError: ``conflicting_records``.
    """
    spool = LogSpool()
    try:
        for record in records:
            spool.add(record)
        spool.finish()
    except BaseException:
        spool.close()
        raise
    return spool


def _fed_back(output: Output, offset: int) -> Record:
    # Alerts have one partition here; facts keep that of their registry.
    partition = 0 if output.role is Role.FINDINGS else output.partition or 0
    return Record(
        role=output.role,
        origin=Origin(topic=_FINDING_TOPIC, partition=partition, offset=offset),
        key=output.key,
        value=output.value,
        headers=output.headers,
        timestamp_ms=output.timestamp_ms,
    )
