"""The join's stage: which calls are ready, and the view of the binding topic that they are looked up in."""

import asyncio
from collections.abc import Mapping, Sequence

import orjson
from aiokafka import TopicPartition

from assay_stream.errors import InputError
from assay_stream.join import processor
from assay_stream.join.processor import Join
from assay_stream.kafka.connection import Clients
from assay_stream.kafka.stage import NoState, Stage
from assay_stream.kafka.transport import read_last
from assay_stream.model.cloudevents import Call
from assay_stream.model.partition import murmur2_partition
from assay_stream.model.record import Origin, Output, Record, Role
from assay_stream.worker.freshness import EvidenceLatency
from assay_stream.worker.view import BindingView


class Joining(NoState):
    """The join of a process, and the calls that it has read and that wait: they are not read again.

    Args:
        latency: measures until the evidence is committed.
    """

    def __init__(self, join: Join, latency: EvidenceLatency) -> None:
        self.join = join
        self.latency = latency
        self.read: dict[Origin, Call | InputError] = {}


def join_call(state: Joining, record: Record) -> list[Output]:
    event = state.read.pop(record.origin, None) if state.read else None
    if event is None or record.set_aside:
        event = state.join.read(record)
    if not isinstance(event, InputError):
        state.latency.joined(record, event)
    return processor.process(state.join, record, event)


class JoinStage(Stage[Joining]):
    """Looks calls up in the view. No partition has state of its own, so any worker may take any.

    A call is ready once the registry has applied every snapshot and control record that stood in the partitions of
    its server when the call was read. A call that names a known snapshot needs the control records only.
    """

    def __init__(
        self, join: Join, view: BindingView, *, clients: Clients, topics: Mapping[Role, str], latency: EvidenceLatency
    ) -> None:
        self._joining = Joining(join, latency)
        super().__init__(
            "join",
            (Role.CALLS,),
            clients=clients,
            topics=topics,
            new_state=lambda _: self._joining,
            thread=view.thread,
            piece_records=100,
        )
        self._join = join
        self._view = view
        self._asking = asyncio.Lock()
        self._next_ends: asyncio.Task[Mapping[TopicPartition, int]] | None = None

    @property
    def entries(self) -> int:
        return len(self._join.view.servers)

    @property
    def changes(self) -> int:
        return self._view.changes

    def close(self, partition: int) -> None:
        """Drop the calls of the partition that were read and never joined."""
        super().close(partition)
        read = self._joining.read
        self._joining.read = {origin: call for origin, call in read.items() if origin.partition != partition}
        self._joining.latency.drop(partition)

    def committed(self, records: Sequence[Record]) -> None:
        self._joining.latency.committed(records)

    async def done_before(self, partition: int) -> Mapping[TopicPartition, int]:
        """Return the call behind the last one that has evidence.

        Offsets that the group has lost, or that somebody has set back, would have calls joined twice.
        """
        calls = TopicPartition(self._topics[Role.CALLS], partition)
        log = TopicPartition(self._topics[Role.EVIDENCE], partition)
        last = await read_last(self._clients.consumer(), Role.EVIDENCE, log)
        offset = None if last is None else _call_offset(last, calls)
        return {} if offset is None else {calls: offset + 1}

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
        missing = self._view.missing(ends)
        if not missing:
            return len(records)
        partitions = sum(tp.topic == self._topics[Role.SNAPSHOTS] for tp in ends)
        for index, record in enumerate(records):
            if not record.hold_expired and not self._is_ready(record, missing, partitions):
                return index
        return len(records)

    def _is_ready(self, record: Record, missing: Sequence[TopicPartition], partitions: int) -> bool:
        event = self._joining.read.get(record.origin)
        if event is None:
            event = self._join.read(record)
        if isinstance(event, InputError):
            return True
        server = self._join.view.servers.get(event.server_id)
        # Where its records belong, and wherever some have been seen: a producer may partition otherwise.
        numbers = {murmur2_partition(event.server_id.encode(), partitions)}
        if server is not None:
            numbers |= server.partitions
        awaited = {tp.topic for tp in missing if tp.partition in numbers}
        if not awaited:
            return True
        if awaited == {self._topics[Role.SNAPSHOTS]} and self._join.names_known_snapshot(event):
            return True
        self._joining.read[record.origin] = event
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
