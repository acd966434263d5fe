"""The three stages: their inputs and their state, which calls are ready to be joined, and how late evidence is.

The gauges: publishers' clocks may be wrong, and strangers choose their names. So times are bounded, and observers are
counted, never named.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from itertools import chain

import structlog

from assay_stream import join as joining
from assay_stream.alerts import processor as alerting
from assay_stream.alerts.remembered import AlertTable
from assay_stream.alerts.rules import AlertRules
from assay_stream.errors import ConfigurationError, InputError
from assay_stream.join import Join, Routing, call_in, reroute
from assay_stream.kafka.connection import Consumer, FetchedRecord, TopicPartition, read_last, record_of
from assay_stream.kafka.part import UNCOUNTED, Following, StageMetrics
from assay_stream.kafka.stage import PartitionState, Stage, StateThread, Topology
from assay_stream.limits import OBSERVER_ALIVE_S, OBSERVERS_COUNTED_MAX
from assay_stream.model.cloudevents import Call
from assay_stream.model.facts import KEY, JoinProgress, decode_key, read_progress, write_progress
from assay_stream.model.record import Origin, Output, Record, Role, rejected
from assay_stream.registry.processor import Registry
from assay_stream.registry.step import progress

_log = structlog.get_logger(__name__)

_REGISTRY_INPUTS = (Role.CONTROL, Role.SNAPSHOTS)


class RegistryState(Registry, PartitionState):
    """The registry of one partition, kept as facts in the binding topic; every join reads them too."""

    def __init__(self, topology: Topology, partition: int) -> None:
        settings = topology.settings
        super().__init__(
            producer=settings.producer(), limits=settings.limits(), partitions=topology.counts[Role.SNAPSHOTS]
        )
        self.number = partition
        self._inputs = [topology.names[role] for role in _REGISTRY_INPUTS]

    @property
    def entries(self) -> int:
        return len(self.bindings)

    def restore(self, record: Record) -> None:
        self.bindings.take(record)

    def restored(self) -> Mapping[str, int | None]:
        known = self.bindings.progress
        return {topic: known.get((topic, self.number)) for topic in self._inputs}

    def flush(self, positions: Mapping[str, int]) -> list[Output]:
        """Return the progress records that make what was applied visible to every join."""
        return [
            progress(topic=topic, partition=self.number, position=position) for topic, position in positions.items()
        ]


def registry_stage(topology: Topology) -> Stage[RegistryState]:
    return Stage(
        "registry", _REGISTRY_INPUTS, topology, state_role=Role.BINDINGS, new_state=partial(RegistryState, topology)
    )


class AlertStageTable(AlertTable):
    """The alert stage's state: an alert table that reports the name claims it has no room for.

    Args:
        metrics: counts the claims that are not stored.
    """

    metrics: StageMetrics = UNCOUNTED

    def process(self, record: Record) -> list[Output]:
        """Apply one record of the finding topic, and return the alerts."""
        outputs = alerting.process(self.alerts, record)
        if self.alerts.names_left_out:
            self.metrics.count("claims_left_out")
        if self.alerts.names_left_out == 1:
            # Once per set of look-alike names, so that a flood of claims does not flood the log.
            _log.warning("name_claims_left_out", partition=record.origin.partition, offset=record.origin.offset)
        return outputs


def alert_stage(
    topology: Topology, *, rules: AlertRules, clock_us: Callable[[], int], metrics: StageMetrics = UNCOUNTED
) -> Stage[AlertStageTable]:
    def new_state(partition: int) -> AlertStageTable:
        now_us, input_topic = _every(topology.settings.alert_tick_s, clock_us), topology.names[Role.FINDINGS]
        table = AlertStageTable(partition, rules, input_topic=input_topic, now_us=now_us)
        table.metrics = metrics
        return table

    return Stage("alerts", (Role.FINDINGS,), topology, state_role=Role.ALERT_STATES, new_state=new_state)


class SteadyClock:
    """A wall clock whose jumps ahead are followed slowly, by a hundredth of the time that passes.

    A clock that is fast closes alerts whose findings are still to come; one that is slow only delays records
    (``docs/adr/0010``).
    """

    def __init__(self, wall_us: Callable[[], int], monotonic_us: Callable[[], int]) -> None:
        self._wall_us, self._monotonic_us = wall_us, monotonic_us
        self._latest_us, self._read_us = wall_us(), monotonic_us()

    def __call__(self) -> int:
        wall_us, read_us = self._wall_us(), self._monotonic_us()
        passed_us, self._read_us = read_us - self._read_us, read_us
        self._latest_us += passed_us
        self._latest_us += max(0, min(wall_us - self._latest_us, passed_us // 100))
        return min(wall_us, self._latest_us)


def _every(interval_s: int, clock_us: Callable[[], int]) -> Callable[[], int | None]:
    """Return a clock that gives the time once per interval, and never where the interval is 0."""
    looked_s: float | None = None

    def now_us() -> int | None:
        nonlocal looked_s
        now_s = time.monotonic()
        if not interval_s or (looked_s is not None and now_s - looked_s < interval_s):
            return None
        looked_s = now_s
        return clock_us()

    return now_us


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class RecentObservers:
    """Counts the observers that published within ``OBSERVER_ALIVE_S``.

    Args:
        clock_ms: the time, milliseconds since the epoch.
    """

    def __init__(self, clock_ms: Callable[[], int] = now_ms) -> None:
        self._clock_ms = clock_ms
        self._heard_ms: dict[str, int] = {}

    def heard(self, observer_id: str, at_ms: int) -> None:
        now = self._clock_ms()
        at_ms = min(at_ms, now)
        if at_ms <= now - OBSERVER_ALIVE_S * 1_000 or at_ms <= self._heard_ms.get(observer_id, 0):
            return
        if observer_id not in self._heard_ms and len(self._heard_ms) >= OBSERVERS_COUNTED_MAX:
            self.count()
            if len(self._heard_ms) >= OBSERVERS_COUNTED_MAX:
                return
        self._heard_ms[observer_id] = at_ms

    def count(self) -> int:
        """Return the number of recent observers, at most ``OBSERVERS_COUNTED_MAX``, and forget the others."""
        since_ms = self._clock_ms() - OBSERVER_ALIVE_S * 1_000
        silent = [name for name, at_ms in list(self._heard_ms.items()) if at_ms <= since_ms]
        for name in silent:
            self._heard_ms.pop(name, None)
        return len(self._heard_ms)


@dataclass(eq=False, repr=False)
class EvidenceLatency:
    """Measures the time from the calls of one partition to the commit of their evidence, those of a batch at once.

    Args:
        observe: called with ``observed`` or ``logged``, the time now, and those times of the calls, in milliseconds.
        observers: records who called.
        clock_ms: the time, milliseconds since the epoch.
    """

    observe: Callable[[str, int, Sequence[int]], None]
    observers: RecentObservers
    clock_ms: Callable[[], int] = now_ms
    _observed_ms: list[int] = field(default_factory=list, init=False)
    _logged_ms: list[int] = field(default_factory=list, init=False)

    def joined(self, calls: Sequence[tuple[Record, Call]]) -> None:
        """Record who made some calls and when, until their evidence is committed."""
        # Times only: calls that outlived their piece would push the next ones out of the processor's cache.
        self._observed_ms += [call.time_us // 1_000 for _, call in calls]
        self._logged_ms += [record.timestamp_ms for record, _ in calls]
        now = self.clock_ms()
        for observer_id in {call.observer_id for _, call in calls}:
            self.observers.heard(observer_id, now)

    def committed(self) -> None:
        """Measure the calls whose evidence is now committed: all that were joined."""
        observed_ms, self._observed_ms = self._observed_ms, []
        logged_ms, self._logged_ms = self._logged_ms, []
        if observed_ms:
            now = self.clock_ms()
            self.observe("observed", now, observed_ms)
            self.observe("logged", now, logged_ms)


_POLL_MS = 500
KEPT_UNNEEDED_S = 30.0
"""How long a partition stays loaded that nothing needs: the next rebalance may bring it back."""
_SEEN_KEYS = (b'["seen",', b'["seen_run",')


@dataclass(eq=False, repr=False)
class BindingView(Following):
    """Follows the partitions of the binding topic that are needed, and the registry's progress in them.

    Args:
        new_join: makes the join over one partition of the binding topic.
        heard: called with the observer of each list and the time it was seen, milliseconds since the epoch.
    """

    topology: Topology
    new_join: Callable[[], Join]
    _: KW_ONLY
    heard: Callable[[str, int], None] = lambda _name, _at_ms: None

    def __post_init__(self) -> None:
        super().__init__("reading the bindings", self.topology.settings, clients=self.topology.clients)
        self._joins: dict[int, Join] = {}
        self._partitions = self.topology.places(Role.BINDINGS)
        self._needed: Counter[int] = Counter()
        self._unneeded_since_s: dict[int, float] = {}
        self._next: dict[TopicPartition, int] = {}
        """Next offset of the partitions that were read."""
        self._need_changed = asyncio.Event()
        self._inputs = self.topology.places(Role.SNAPSHOTS, Role.CONTROL)
        self._changed = asyncio.Event()
        self.changes = 0
        """Increases whenever facts arrive."""
        self.thread = StateThread("join")
        """Owns the state: read it only there."""
        self._started = asyncio.Event()
        # A broker answers one connection's requests in order: asked on the reading consumer's, the ends would
        # wait for its long poll.
        self._ends_reader: Consumer | None = None

    @property
    def servers(self) -> int:
        """Number of servers known."""
        return sum(len(join.bindings) for join in list(self._joins.values()))

    def need(self, number: int) -> Join:
        """Follow a partition until every need of it is released; return the join over it."""
        self._needed[number] += 1
        self._unneeded_since_s.pop(number, None)
        if number not in self._joins:
            self._joins[number] = self.new_join()
            self.is_ready = False
            self._need_changed.set()
        return self._joins[number]

    def release(self, number: int) -> None:
        """Release a partition. It is kept for a while, since a rebalance may need it again at once."""
        self._needed[number] -= 1
        if not self._needed[number]:
            self._unneeded_since_s[number] = time.monotonic()

    async def run(self) -> None:
        """Follow what is needed until stopped.

        Raises:
            ConfigurationError: ``topic_recreated``.
            IntegrityError: if the topic holds a record that no registry writes.
        """
        try:
            await super().run()
        finally:
            if self._ends_reader is not None:
                await self._ends_reader.stop()

    async def open(self, consumer: Consumer) -> None:
        """Assign nothing yet: what is needed changes."""
        self.is_ready, self.ends = False, {}
        if not self._started.is_set():
            # Uncommitted: records behind an open transaction count, since they will be read.
            self._ends_reader = self._ends_reader or self.clients.consumer(isolation_level="read_uncommitted")
            await self._ends_reader.start()
            self._started.set()

    async def turn(self, consumer: Consumer) -> bool:
        await self._set_followed(consumer)
        if not self.ends:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._need_changed.wait(), _POLL_MS / 1_000)
        elif fetched := await consumer.getmany(timeout_ms=_POLL_MS):
            await self.thread.run(self._apply, fetched)
            self._next |= {tp: messages[-1].offset + 1 for tp, messages in fetched.items() if messages}
            self.changes += 1
            # Several partitions may be waiting: wake them all.
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()
        if (self.failures or not self.is_ready) and await self.has_caught_up(consumer):
            self.failures = 0
            if len(self.ends) == len(self._joins):
                self.is_ready = True
                _log.info("view_caught_up", servers=self.servers, partitions=sorted(tp.partition for tp in self.ends))
        return self.stopping.is_set()

    async def _set_followed(self, consumer: Consumer) -> None:
        """Assign the needed partitions to the consumer, new ones from their beginning; drop the others."""
        self._need_changed.clear()
        since_s = time.monotonic() - KEPT_UNNEEDED_S
        for number in list(self._unneeded_since_s):
            # It may have been needed again meanwhile.
            if self._unneeded_since_s.get(number, since_s) >= since_s:
                continue
            del self._unneeded_since_s[number]
            del self._joins[number]
            self._next.pop(self._partitions[number], None)
            self.ends.pop(self._partitions[number], None)
            _log.info("bindings_dropped", partition=number)
        wanted = [tp for tp in self._partitions if tp.partition in self._joins]
        if not wanted or set(wanted) == self.ends.keys() == consumer.assignment():
            return
        consumer.assign(wanted)
        begins = await consumer.beginning_offsets(wanted)
        ends = await consumer.end_offsets([tp for tp in wanted if tp not in self.ends])
        for tp in wanted:
            following = self._next.get(tp, 0)
            if following > ends.get(tp, following):
                raise ConfigurationError(
                    "topic_recreated",
                    f"{tp.topic}/{tp.partition} ends at offset {ends[tp]} and was read up to {following}: it was "
                    "recreated. Rebuild it: stop all workers, delete it, run assay-stream topics apply, start them",
                )
            self._next[tp] = max(begins[tp], following)
            consumer.seek(tp, self._next[tp])
        self.ends |= ends

    async def input_ends(self) -> Mapping[TopicPartition, int]:
        """Return the end offsets of the registry's input partitions, open transactions included."""
        await self._started.wait()
        if self._ends_reader is None:
            raise AssertionError("a started view has a reader of ends")
        ends: Mapping[TopicPartition, int] = await self._ends_reader.end_offsets(self._inputs)
        return ends

    def missing(self, ends: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Return the input partitions that the registry has not applied up to these positions."""
        return [tp for tp, end in ends.items() if self._progress(tp) < end]

    def _progress(self, tp: TopicPartition) -> int:
        """Return the registry's position in an input partition, from the binding partition of the same number."""
        join = self._joins.get(tp.partition)
        return 0 if join is None else join.bindings.progress.get((tp.topic, tp.partition), 0)

    async def wait_for_change(self, limit_s: float, *, since: int) -> None:
        """Wait until new facts have arrived, or for the limit."""
        if self.changes == since:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), limit_s)

    def _apply(self, fetched: Mapping[TopicPartition, list[FetchedRecord]]) -> None:
        for tp, messages in fetched.items():
            join = self._joins[tp.partition]
            for message in messages:
                self.thread.note_progress()
                record = record_of(Role.BINDINGS, message)
                joining.process(join, record)
                if record.value is not None and (record.key or b"").startswith(_SEEN_KEYS):
                    _, _, observer_id, *_ = decode_key(record.key)
                    self.heard(str(observer_id), record.timestamp_ms)


_REROUTED = Role.REROUTED  # reading a member of an enum takes a call of its own


class JoinState(PartitionState):
    """The state of one partition of calls: the join over its bindings, and calls decoded that wait for the registry.

    Args:
        latency: measures until the evidence is committed.
        partition: of the calls, and of the re-routed calls.
    """

    def __init__(
        self, join: Join, latency: EvidenceLatency, *, routing: Routing, partition: int, topics: Mapping[Role, str]
    ) -> None:
        self.join = join
        self.latency = latency
        self.routing = routing
        self.waiting: dict[Origin, Call | InputError] = {}
        self._partition = partition
        self._calls, self._rerouted = topics[Role.CALLS], topics[Role.REROUTED]

    def read_some(self, records: Sequence[Record]) -> Iterable[tuple[Record, Call | InputError]]:
        """Yield for each record the call that it is or copies, and the result of ``Join.read`` for that."""
        if self.waiting or any(record.role is _REROUTED for record in records):
            return map(self.read_one, records)
        return zip(records, self.join.read_some(records), strict=True)

    def read_one(self, record: Record) -> tuple[Record, Call | InputError]:
        """Return the call that a record is or copies, and what was read of it."""
        waited = self.waiting.pop(record.origin, None)
        call = record
        if record.role is _REROUTED:
            try:
                call = call_in(record, topic=self._calls, partitions=self.routing.calls)
            except InputError as error:
                return record, error
        return call, self.join.read(call) if waited is None or record.set_aside else waited

    def flush(self, positions: Mapping[str, int]) -> list[Output]:
        """Return the positions in both topics: evidence does not show them, since that of copies comes later."""
        progress = JoinProgress(calls=positions[self._calls], rerouted=positions[self._rerouted])
        return [Output(Role.JOIN_PROGRESS, KEY, write_progress(progress), partition=self._partition)]


def join_calls(state: JoinState, records: Sequence[Record]) -> list[Output]:
    """Join some calls, and re-route those in a partition that is not their server's."""
    calls: list[tuple[Record, Call | InputError]] = []
    joined: list[tuple[Record, Call]] = []
    others: list[tuple[int, list[Output]]] = []
    """Outputs of records that are not joined, each with the number of calls before it."""
    is_home = state.routing.is_home
    for record, (call, event) in zip(records, state.read_some(records), strict=True):
        if not isinstance(event, InputError):
            if not is_home(event.server_id, record.origin.partition):
                others.append((len(calls), [_forwarded(state.routing, record, event)]))
                continue
            joined.append((record, event))
        calls.append((call, event))
    state.latency.joined(joined)
    found = joining.process_calls(state.join, calls)
    for index, outputs in reversed(others):
        found.insert(index, outputs)
    return list(chain.from_iterable(found))


def _forwarded(routing: Routing, record: Record, event: Call) -> Output:
    if record.role is _REROUTED:
        # Anyone can write the header, so a second hop is refused.
        text = "re-routed to a partition that is not its server's: publish the call again under the key server_id"
        return rejected(record, InputError("rerouted_twice", text))
    try:
        return reroute(record, event.server_id, routing)
    except InputError as error:
        return rejected(record, error)


class JoinStage(Stage[JoinState]):
    """Looks up calls in the view. No partition has state of its own, so any worker may take any.

    A call is ready once the registry has applied every snapshot and control record that was in the partition of its
    server when the call was read. A call that names a known snapshot needs the control records only.
    """

    def __init__(self, view: BindingView, topology: Topology, *, latency: Callable[[], EvidenceLatency]) -> None:
        super().__init__(
            "join",
            (Role.REROUTED, Role.CALLS),
            topology,
            new_state=self._new_state,
            shared_thread=view.thread,
            piece_records=100,
        )
        self._view = view
        self._latency = latency
        self._topics = topology.names
        self._routing = Routing(calls=topology.counts[Role.CALLS], bindings=topology.counts[Role.BINDINGS])
        self._asking = asyncio.Lock()
        self._next_ends: asyncio.Task[Mapping[TopicPartition, int]] | None = None

    def _new_state(self, partition: int) -> JoinState:
        join = self._view.need(self.needed_by(partition))
        return JoinState(join, self._latency(), routing=self._routing, partition=partition, topics=self._topics)

    def needed_by(self, partition: int) -> int:
        return self._routing.needed_by(partition)

    @property
    def entries(self) -> int:
        return self._view.servers

    @property
    def changes(self) -> int:
        return self._view.changes

    def close(self, partition: int) -> None:
        if partition in self._states:
            self._view.release(self.needed_by(partition))
        super().close(partition)

    def committed(self, records: Sequence[Record]) -> None:
        state = self._states.get(records[0].origin.partition) if records else None
        if state is not None:
            state.latency.committed()

    async def done_before(self, partition: int) -> Mapping[TopicPartition, int]:
        """Return the join's own progress records, written in the transactions of its outputs.

        Otherwise lost or reset group offsets would have calls joined twice.
        """
        log = TopicPartition(self._topics[Role.JOIN_PROGRESS], partition)
        last = await read_last(self.topology.clients.consumer(), Role.JOIN_PROGRESS, log)
        if last is None:
            return {}
        progress = read_progress(last.value)
        return {
            TopicPartition(self._topics[Role.CALLS], partition): progress["calls"],
            TopicPartition(self._topics[Role.REROUTED], partition): progress["rerouted"],
        }

    async def upstream_ends(self) -> Mapping[TopicPartition, int]:
        """Return the end offsets of the snapshot and control partitions.

        Concurrent callers share an answer, unless its request began before their call.
        """
        if self._next_ends is None:
            self._next_ends = asyncio.create_task(self._ask_for_ends())
        return await asyncio.shield(self._next_ends)

    async def _ask_for_ends(self) -> Mapping[TopicPartition, int]:
        async with self._asking:
            self._next_ends = None
            return await self._view.input_ends()

    def admit(self, records: Sequence[Record], ends: Mapping[TopicPartition, int]) -> int:
        """Return how many leading calls are ready, so that the order of a partition is kept."""
        partition = records[0].origin.partition
        number = self.needed_by(partition)
        missing = self._view.missing({tp: end for tp, end in ends.items() if tp.partition == number})
        if not missing:
            return len(records)
        state, topics = self._states[partition], {tp.topic for tp in missing}
        for index, record in enumerate(records):
            if not record.hold_expired and not self._is_ready(state, record, topics):
                return index
        return len(records)

    def _is_ready(self, state: JoinState, record: Record, missing: set[str]) -> bool:
        event = state.waiting.get(record.origin)
        if event is None:
            _, event = state.read_one(record)
        if isinstance(event, InputError) or not self._routing.is_home(event.server_id, record.origin.partition):
            return True
        if missing == {self._topics[Role.SNAPSHOTS]} and state.join.names_known_snapshot(event):
            return True
        state.waiting[record.origin] = event
        return False

    async def wait(self, limit_s: float, *, since: int) -> None:
        await self._view.wait_for_change(limit_s, since=since)
