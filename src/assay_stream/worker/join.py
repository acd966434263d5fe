"""The join on Kafka: calls in, evidence out, once what was observed before them is known."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import orjson
from aiokafka import TopicPartition

from assay_stream.config import Settings
from assay_stream.errors import InputError
from assay_stream.join import processor
from assay_stream.join.processor import Join
from assay_stream.kafka.state_thread import EngineThread
from assay_stream.kafka.transport import read_last
from assay_stream.model.cloudevents import Call
from assay_stream.model.partition import murmur2_partition
from assay_stream.model.record import Origin, Output, Record, Role
from assay_stream.worker.view import BindingView


class JoinStage:
    """Looks calls up in the view. It keeps no state of its own, so any worker may take any partition.

    A call is ready once the registry has applied every snapshot and control record that stood in the partitions of
    its server when the call was read. A call that names a known snapshot needs the control records only.

    Args:
        settings: the operator's settings.
        state: the state that the view feeds.
        view: the view of the binding topic.
        topics: topic name of every role.
    """

    name = "join"
    input_roles = (Role.CALLS,)
    piece_records = 100

    def __init__(self, settings: Settings, state: Join, view: BindingView, *, topics: Mapping[Role, str]) -> None:
        self._settings = settings
        self._state = state
        self._view = view
        self._topics = topics
        self._asking = asyncio.Lock()
        self._waiting: dict[Origin, Call | InputError] = {}
        """Calls that were read and have to wait: they are not read again."""
        self._next_ends: asyncio.Task[Mapping[TopicPartition, int]] | None = None

    @property
    def entries(self) -> int:
        """How many servers the view holds."""
        return len(self._state.view.servers)

    @property
    def changes(self) -> int:
        """How often the view has changed."""
        return self._view.changes

    def thread(self, partition: int) -> EngineThread:
        """Return the thread of the view: all partitions look into the same one."""
        return self._view.thread

    async def open(self, partition: int) -> Mapping[TopicPartition, int | None]:
        """Nothing to restore; the group's committed offset is where to start."""
        return {}

    async def done_before(self, partition: int) -> Mapping[TopicPartition, int]:
        """Return the call behind the last one that has evidence.

        Offsets that the group has lost, or that somebody has set back, would have calls joined twice.
        """
        calls = TopicPartition(self._topics[Role.CALLS], partition)
        log = TopicPartition(self._topics[Role.EVIDENCE], partition)
        last = await read_last(self._settings, Role.EVIDENCE, log)
        offset = None if last is None else _call_offset(last, calls)
        return {} if offset is None else {calls: offset + 1}

    def close(self, partition: int) -> None:
        """Drop the calls of the partition that were read and never joined."""
        self._waiting = {origin: call for origin, call in self._waiting.items() if origin.partition != partition}

    async def note_ends(self) -> Mapping[TopicPartition, int]:
        """Return where the logs of snapshots and control records end now.

        Partitions that ask at the same time share an answer, provided that nobody had asked for it before.
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
        event = self._waiting.get(record.origin)
        if event is None:
            event = self._state.read(record)
        if isinstance(event, InputError):
            return True
        server = self._state.view.servers.get(event.server_id)
        # Where its records belong, and wherever some have been seen: a producer may partition otherwise.
        numbers = {murmur2_partition(event.server_id.encode(), partitions)}
        if server is not None:
            numbers |= server.partitions
        awaited = {tp.topic for tp in missing if tp.partition in numbers}
        if not awaited:
            return True
        if awaited == {self._topics[Role.SNAPSHOTS]} and self._state.names_known_snapshot(event):
            return True
        self._waiting[record.origin] = event
        return False

    async def wait(self, limit_s: float, *, since: int) -> None:
        """Wait for the registry to come further."""
        await self._view.wait_for_change(limit_s, since=since)

    def process(self, partition: int, records: Sequence[Record]) -> list[Output]:
        """Join the calls."""
        outputs: list[Output] = []
        state, waiting = self._state, self._waiting
        for record in records:
            event = waiting.pop(record.origin, None) if waiting else None
            outputs += processor.process(state, record, None if record.set_aside else event)
        return outputs

    def seal(self, partition: int, positions: Mapping[TopicPartition, int]) -> list[Output]:
        """Nothing goes with the offsets."""
        return []

    def unasked(self, partition: int) -> list[Output]:
        """Nothing is written but for a record."""
        return []


def _call_offset(evidence: Record, calls: TopicPartition) -> int | None:
    """Return the offset of the call that a record of evidence is about; ``None`` where it is of another log."""
    try:
        origin = orjson.loads(evidence.value or b"")["data"]["origin"]
        is_of = (origin["topic"], origin["partition"]) == (calls.topic, calls.partition)
        return int(origin["offset"]) if is_of else None
    except (ValueError, KeyError, TypeError):
        return None
