"""The join on Kafka: calls in, evidence out, once what was observed before them is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiokafka import TopicPartition

from assay_stream.core import engine
from assay_stream.core.engine import EngineState
from assay_stream.core.record import Output, Record, Role
from assay_stream.stream.view import BindingView


class JoinStage:
    """Looks calls up in the view. It keeps no state of its own, so any worker may take any partition.

    A call is ready once the registry has applied every snapshot and control record that stood in the logs
    when the call was read. A call that names a known snapshot needs the control records only.

    Args:
        state: the engine state that the view feeds.
        view: the view of the binding topic.
        control_topic: name of the control topic.
    """

    name = "join"
    input_roles = (Role.CALLS,)

    def __init__(self, state: EngineState, view: BindingView, *, control_topic: str) -> None:
        self._state = state
        self._view = view
        self._control_topic = control_topic

    @property
    def entries(self) -> int:
        """How many servers the view holds."""
        return len(self._state.view.servers)

    async def open(self, partition: int) -> Mapping[TopicPartition, int | None]:
        """Nothing to restore; the group's committed offset is where to start."""
        return {}

    def close(self, partition: int) -> None:
        """Nothing to drop."""

    async def note_ends(self) -> Mapping[TopicPartition, int]:
        """Return where the logs of snapshots and control records end now."""
        return await self._view.input_ends()

    def admit(self, records: Sequence[Record], ends: Mapping[TopicPartition, int]) -> int:
        """Return how many leading calls are ready, so that the order of a partition is kept."""
        if self._view.covers(ends):
            return len(records)
        control_ends = {tp: end for tp, end in ends.items() if tp.topic == self._control_topic}
        early = self._view.covers(control_ends)
        for index, record in enumerate(records):
            if not record.hold_expired and not (early and engine.ready_early(self._state, record)):
                return index
        return len(records)

    async def wait(self, limit_s: float) -> None:
        """Wait for the registry to come further."""
        await self._view.wait_for_change(limit_s)

    def process(self, partition: int, records: Sequence[Record]) -> list[Output]:
        """Join the calls."""
        outputs: list[Output] = []
        state = self._state
        for record in records:
            outputs += engine.step(state, record)[1]
        return outputs

    def seal(self, partition: int, positions: Mapping[TopicPartition, int]) -> list[Output]:
        """Nothing goes with the offsets."""
        return []

    def unasked(self, partition: int) -> list[Output]:
        """Nothing is written but for a record."""
        return []
