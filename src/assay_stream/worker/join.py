"""The join's stage: which calls are ready, and the view of the binding topic that they are looked up in."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from assay_stream.errors import InputError
from assay_stream.join import processor
from assay_stream.join.processor import Join
from assay_stream.join.routing import Routing, call_in, reroute
from assay_stream.kafka.connection import Clients, TopicPartition
from assay_stream.kafka.log import read_last
from assay_stream.kafka.stage import PartitionState, Stage
from assay_stream.model.cloudevents import Call
from assay_stream.model.join_progress import KEY, JoinProgress, read_progress, write_progress
from assay_stream.model.record import Origin, Output, Record, Role, rejected
from assay_stream.worker.freshness import EvidenceLatency
from assay_stream.worker.view import BindingView

_REROUTED = Role.REROUTED  # reading a member of an enum takes a call of its own


class Joining(PartitionState):
    """The join of a partition of calls, and the calls that it has read and that wait: they are not read again.

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
        self.read: dict[Origin, Call | InputError] = {}
        self._partition = partition
        self._calls, self._rerouted = topics[Role.CALLS], topics[Role.REROUTED]

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
        if record.role is _REROUTED:
            try:
                call = call_in(record, topic=self._calls, partitions=self.routing.calls)
            except InputError as error:
                return record, error
        return call, self.join.read(call) if waited is None or record.set_aside else waited

    def flush(self, positions: Mapping[str, int]) -> list[Output]:
        """Return how far both topics are read: evidence does not show it, since that of copies comes later."""
        progress = JoinProgress(calls=positions[self._calls], rerouted=positions[self._rerouted])
        return [Output(Role.JOIN_PROGRESS, KEY, write_progress(progress), partition=self._partition)]


def join_calls(state: Joining, records: Sequence[Record]) -> list[Output]:
    """Join the calls of a piece, and re-route those that belong elsewhere."""
    calls: list[tuple[Record, Call | InputError]] = []
    joined: list[tuple[Record, Call]] = []
    others: list[tuple[int, list[Output]]] = []
    """What is not joined, with how many calls go before it."""
    is_home = state.routing.is_home
    for record, (call, event) in zip(records, state.read_some(records), strict=True):
        if not isinstance(event, InputError):
            if not is_home(event.server_id, record.origin.partition):
                others.append((len(calls), [_forwarded(state.routing, record, event)]))
                continue
            joined.append((record, event))
        calls.append((call, event))
    state.latency.joined(joined)
    found = processor.process_calls(state.join, calls)
    for index, outputs in reversed(others):
        found.insert(index, outputs)
    return list(chain.from_iterable(found))


def _forwarded(routing: Routing, record: Record, event: Call) -> Output:
    if record.role is _REROUTED:
        # Its header may be anybody's: it is refused where it stands.
        text = "re-routed to a partition that is not its server's: publish the call again under the key server_id"
        return rejected(record, InputError("rerouted_twice", text))
    try:
        return reroute(record, event.server_id, routing)
    except InputError as error:
        return rejected(record, error)


class JoinStage(Stage[Joining]):
    """Looks calls up in the view. No partition has state of its own, so any worker may take any.

    A call is ready once the registry has applied every snapshot and control record that stood in the partition of its
    server when the call was read. A call that names a known snapshot needs the control records only.
    """

    def __init__(
        self,
        view: BindingView,
        *,
        clients: Clients,
        topics: Mapping[Role, str],
        latency: EvidenceLatency,
        routing: Routing,
    ) -> None:
        super().__init__(
            "join",
            (Role.REROUTED, Role.CALLS),
            clients=clients,
            topics=topics,
            new_state=self._new_state,
            thread=view.thread,
            piece_records=100,
        )
        self._view = view
        self._latency = latency
        self._routing = routing
        self._asking = asyncio.Lock()
        self._next_ends: asyncio.Task[Mapping[TopicPartition, int]] | None = None

    def _new_state(self, partition: int) -> Joining:
        join = self._view.need(self.needed_by(partition))
        return Joining(join, self._latency, routing=self._routing, partition=partition, topics=self._topics)

    def needed_by(self, partition: int) -> int:
        return self._routing.needed_by(partition)

    @property
    def entries(self) -> int:
        return self._view.servers

    @property
    def changes(self) -> int:
        return self._view.changes

    def close(self, partition: int) -> None:
        """Drop the calls of the partition that were read and never joined."""
        if partition in self._states:
            self._view.release(self.needed_by(partition))
        super().close(partition)
        self._latency.drop(partition)

    def committed(self, records: Sequence[Record]) -> None:
        self._latency.committed(records)

    async def done_before(self, partition: int) -> Mapping[TopicPartition, int]:
        """Return what the join noted of its progress, in the transactions of its outputs.

        Group offsets that were lost or reset would have calls joined twice.
        """
        log = TopicPartition(self._topics[Role.JOIN_PROGRESS], partition)
        last = await read_last(self._clients.consumer(), Role.JOIN_PROGRESS, log)
        if last is None:
            return {}
        progress = read_progress(last.value)
        return {
            TopicPartition(self._topics[Role.CALLS], partition): progress["calls"],
            TopicPartition(self._topics[Role.REROUTED], partition): progress["rerouted"],
        }

    async def note_ends(self) -> Mapping[TopicPartition, int]:
        """Return where the logs of snapshots and control records end now.

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

    def _is_ready(self, state: Joining, record: Record, missing: set[str]) -> bool:
        event = state.read.get(record.origin)
        if event is None:
            event = state.read_call(record)
        if isinstance(event, InputError) or not self._routing.is_home(event.server_id, record.origin.partition):
            return True
        if missing == {self._topics[Role.SNAPSHOTS]} and state.join.names_known_snapshot(event):
            return True
        state.read[record.origin] = event
        return False

    async def wait(self, limit_s: float, *, since: int) -> None:
        await self._view.wait_for_change(limit_s, since=since)
