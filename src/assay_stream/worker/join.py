"""The join's stage: which calls are ready, and the view of the binding topic that they are looked up in."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import orjson

from assay_stream.errors import InputError
from assay_stream.join import processor
from assay_stream.join.processor import Join
from assay_stream.join.routing import Routing, call_in, reroute
from assay_stream.kafka.connection import Clients, TopicPartition
from assay_stream.kafka.stage import PartitionState, Stage
from assay_stream.kafka.transport import read_last
from assay_stream.model.cloudevents import Call
from assay_stream.model.join_progress import KEY, JoinProgress, read_progress, write_progress
from assay_stream.model.partition import murmur2_partition
from assay_stream.model.record import Origin, Output, Record, Role, rejected
from assay_stream.worker.freshness import EvidenceLatency
from assay_stream.worker.view import BindingView

_REROUTED = Role.REROUTED  # reading a member of an enum takes a call of its own


class Rerouting(NamedTuple):
    """What a partition's join needs to know of re-routed calls.

    Args:
        is_keyed: whether calls that belong elsewhere are re-routed; otherwise only those that were are joined.
    """

    routing: Routing
    partition: int
    calls_topic: str
    rerouted_topic: str
    is_keyed: bool


class Joining(PartitionState):
    """The join of a partition, and the calls that it has read and that wait: they are not read again.

    Args:
        latency: measures until the evidence is committed.
        rerouting: where calls belong and where the topic of re-routed calls is; ``None`` without that topic.
    """

    def __init__(self, join: Join, latency: EvidenceLatency, rerouting: Rerouting | None = None) -> None:
        self.join = join
        self.latency = latency
        self.rerouting = rerouting
        self.read: dict[Origin, Call | InputError] = {}

    def read_call(self, record: Record) -> Call | InputError:
        """Return the call that a record holds or copies, or why it is refused."""
        return self._read_one(record)[1]

    def read_some(self, records: Sequence[Record]) -> Iterable[tuple[Record, Call | InputError]]:
        """Yield for each record the call that it is or copies, and what ``Join.read`` returns for that."""
        if self.read or any(record.role is _REROUTED for record in records):
            return map(self._read_one, records)
        return zip(records, self.join.read_some(records), strict=True)

    def _read_one(self, record: Record) -> tuple[Record, Call | InputError]:
        waited = self.read.pop(record.origin, None)
        call = record
        if record.role is _REROUTED and self.rerouting is not None:
            try:
                call = call_in(record, topic=self.rerouting.calls_topic, partitions=self.rerouting.routing.calls)
            except InputError as error:
                return record, error
        return call, self.join.read(call) if waited is None or record.set_aside else waited

    def is_foreign(self, record: Record, event: Call) -> bool:
        """Tell whether a call belongs in another partition than the one it was read from."""
        rerouting = self.rerouting
        return (
            rerouting is not None
            and rerouting.is_keyed
            and not rerouting.routing.is_home(event.server_id, record.origin.partition)
        )

    def flush(self, positions: Mapping[str, int]) -> list[Output]:
        """Return how far both topics are read: what re-routed calls lead to does not tell."""
        if self.rerouting is None:
            return []
        names = self.rerouting
        progress = JoinProgress(calls=positions[names.calls_topic], rerouted=positions[names.rerouted_topic])
        return [Output(Role.JOIN_PROGRESS, KEY, write_progress(progress), partition=names.partition)]


def join_calls(state: Joining, records: Sequence[Record]) -> list[Output]:
    """Join the calls of a piece, and re-route those that belong elsewhere."""
    calls: list[tuple[Record, Call | InputError]] = []
    joined: list[tuple[Record, Call]] = []
    others: list[tuple[int, list[Output]]] = []
    """What is not joined, with how many calls go before it."""
    is_keyed = state.rerouting is not None and state.rerouting.is_keyed
    for record, (call, event) in zip(records, state.read_some(records), strict=True):
        if not isinstance(event, InputError):
            if is_keyed and state.is_foreign(record, event):
                others.append((len(calls), [_forwarded(state, record, event)]))
                continue
            joined.append((record, event))
        calls.append((call, event))
    state.latency.joined(joined)
    found = processor.process_calls(state.join, calls)
    for index, outputs in reversed(others):
        found.insert(index, outputs)
    return list(chain.from_iterable(found))


def _forwarded(state: Joining, record: Record, event: Call) -> Output:
    if state.rerouting is None:
        raise AssertionError("without the topic of re-routed calls no call is foreign")
    if record.role is _REROUTED:
        # Its header may be anybody's: it is refused where it stands.
        text = "re-routed to a partition that is not its server's: publish the call again under the key server_id"
        return rejected(record, InputError("rerouted_twice", text))
    try:
        return reroute(record, event.server_id, state.rerouting.routing)
    except InputError as error:
        return rejected(record, error)


class JoinStage(Stage[Joining]):
    """Looks calls up in the view. No partition has state of its own, so any worker may take any.

    A call is ready once the registry has applied every snapshot and control record that stood in the partitions of
    its server when the call was read. A call that names a known snapshot needs the control records only.

    Args:
        routing: how many partitions there are, where there is a topic of re-routed calls.
        is_keyed: whether calls are keyed by server: each partition of them then needs one of the view's only.
    """

    def __init__(
        self,
        join: Join,
        view: BindingView,
        *,
        clients: Clients,
        topics: Mapping[Role, str],
        latency: EvidenceLatency,
        routing: Routing | None = None,
        is_keyed: bool = False,
    ) -> None:
        self._joining = Joining(join, latency)
        super().__init__(
            "join",
            (Role.CALLS,) if routing is None else (Role.REROUTED, Role.CALLS),
            clients=clients,
            topics=topics,
            new_state=self._new_state,
            thread=view.thread,
            piece_records=100,
        )
        self._join = join
        self._view = view
        self._latency = latency
        self._routing = routing
        self._is_keyed = is_keyed
        self._asking = asyncio.Lock()
        self._next_ends: asyncio.Task[Mapping[TopicPartition, int]] | None = None

    def _new_state(self, partition: int) -> Joining:
        if self._routing is None:
            return self._joining
        names = self._topics[Role.CALLS], self._topics[Role.REROUTED]
        rerouting = Rerouting(self._routing, partition, *names, self._is_keyed)
        return Joining(self._view.join_of(self._number(partition)), self._latency, rerouting)

    def _number(self, partition: int) -> int | None:
        """Return the partition of the bindings that one of calls needs; ``None`` for all."""
        return self._routing.needed_by(partition) if self._routing is not None and self._is_keyed else None

    def needed_by(self, partition: int) -> int:
        return self._number(partition) or 0

    async def open(self, partition: int) -> Mapping[TopicPartition, int | None]:
        number = self._number(partition)
        if number is not None:
            self._view.need(number)
        return await super().open(partition)

    @property
    def entries(self) -> int:
        return self._view.servers

    @property
    def changes(self) -> int:
        return self._view.changes

    def close(self, partition: int) -> None:
        """Drop the calls of the partition that were read and never joined."""
        number = self._number(partition)
        if number is not None and partition in self._states:
            self._view.release(number)
        super().close(partition)
        read = self._joining.read
        self._joining.read = {origin: call for origin, call in read.items() if origin.partition != partition}
        self._joining.latency.drop(partition)

    def committed(self, records: Sequence[Record]) -> None:
        self._joining.latency.committed(records)

    async def done_before(self, partition: int) -> Mapping[TopicPartition, int]:
        """Return the call behind the last one that has evidence, and what the join noted of its progress.

        Offsets that the group has lost, or that somebody has set back, would have calls joined twice.
        """
        calls = TopicPartition(self._topics[Role.CALLS], partition)
        log = TopicPartition(self._topics[Role.EVIDENCE], partition)
        last = await read_last(self._clients.consumer(), Role.EVIDENCE, log)
        offset = None if last is None else _call_offset(last, calls)
        done = {} if offset is None else {calls: offset + 1}
        if self._routing is None:
            return done
        log = TopicPartition(self._topics[Role.JOIN_PROGRESS], partition)
        last = await read_last(self._clients.consumer(), Role.JOIN_PROGRESS, log)
        if last is None:
            return done
        progress = read_progress(last.value)
        rerouted = TopicPartition(self._topics[Role.REROUTED], partition)
        return {calls: max(progress["calls"], done.get(calls, 0)), rerouted: progress["rerouted"]}

    async def note_ends(self) -> Mapping[TopicPartition, int]:
        """Return where the logs of snapshots and control records end now.

        Partitions that ask at the same time share an answer, unless somebody had asked for it before them.
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
        number = self._number(records[0].origin.partition) if records else None
        needed = ends if number is None else {tp: end for tp, end in ends.items() if tp.partition == number}
        missing = self._view.missing(needed)
        if not missing:
            return len(records)
        partitions = sum(tp.topic == self._topics[Role.SNAPSHOTS] for tp in ends)
        for index, record in enumerate(records):
            if not record.hold_expired and not self._is_ready(record, missing, partitions):
                return index
        return len(records)

    def _is_ready(self, record: Record, missing: Sequence[TopicPartition], partitions: int) -> bool:
        state = self._states.get(record.origin.partition, self._joining)
        event = state.read.get(record.origin)
        if event is None:
            event = state.read_call(record)
        if isinstance(event, InputError) or state.is_foreign(record, event):
            return True
        server = state.join.view.find(event.server_id)
        # Where its records belong, and wherever some have been seen: a producer may partition otherwise.
        numbers = {murmur2_partition(event.server_id.encode(), partitions)}
        if server is not None:
            numbers |= server.partitions
        awaited = {tp.topic for tp in missing if tp.partition in numbers}
        if not awaited:
            return True
        if awaited == {self._topics[Role.SNAPSHOTS]} and state.join.names_known_snapshot(event):
            return True
        state.read[record.origin] = event
        return False

    async def wait(self, limit_s: float, *, since: int) -> None:
        await self._view.wait_for_change(limit_s, since=since)


def _call_offset(evidence: Record, calls: TopicPartition) -> int | None:
    """Return the offset of the call that a record of evidence is about; ``None`` where it is of another log."""
    try:
        origin = orjson.loads(evidence.value or b"")["data"]["origin"]
        is_of = (origin["topic"], origin["partition"]) == (calls.topic, calls.partition)
        return int(origin["offset"]) if is_of else None
    except (ValueError, KeyError, TypeError):
        return None
