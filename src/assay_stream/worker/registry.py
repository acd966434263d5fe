"""The registry on Kafka: snapshots and control records in, facts, definitions and findings out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiokafka import TopicPartition

from assay_stream.config import Settings
from assay_stream.kafka.state_thread import EngineThread
from assay_stream.kafka.transport import read_to_end
from assay_stream.model.envelope import Producer
from assay_stream.model.record import Output, Record, Role
from assay_stream.registry import processor
from assay_stream.registry.ledger import progress
from assay_stream.registry.processor import Registry


class RegistryStage:
    """One state per partition, restored from the partition's own log of facts.

    Args:
        settings: the operator's settings.
        topics: topic name of every role.
        partitions: how many partitions the snapshot topic has.
        producer: who writes.
    """

    name = "registry"
    input_roles = (Role.CONTROL, Role.SNAPSHOTS)
    piece_records = 1
    changes = 0

    def __init__(self, settings: Settings, *, topics: Mapping[Role, str], partitions: int, producer: Producer) -> None:
        self._settings = settings
        self._topics = topics
        self._partitions = partitions
        self._producer = producer
        self._states: dict[int, Registry] = {}
        self._threads: dict[int, EngineThread] = {}
        """One for each partition: a list that takes long must not hold up the others."""

    @property
    def entries(self) -> int:
        """How many servers its state holds."""
        return sum(len(state.bindings.servers) for state in self._states.values())

    async def open(self, partition: int) -> Mapping[TopicPartition, int | None]:
        """Restore the partition's state; its start positions are the progress that it last recorded.

        Without that record it starts from the beginning, whatever the group committed: offsets without the
        state they led to would leave servers unknown for good.
        """
        state = Registry(producer=self._producer, limits=self._settings.limits(), partitions=self._partitions)
        log = TopicPartition(self._topics[Role.BINDINGS], partition)
        async for record in read_to_end(self._settings, Role.BINDINGS, log):
            state.bindings.take(record)
        self._states[partition] = state
        self._threads[partition] = EngineThread(f"registry-{partition}")
        known = state.bindings.progress
        inputs = [self._topics[role] for role in self.input_roles]
        return {TopicPartition(topic, partition): known.get((topic, partition)) for topic in inputs}

    def close(self, partition: int) -> None:
        """Drop the partition's state."""
        self._states.pop(partition, None)
        if (thread := self._threads.pop(partition, None)) is not None:
            thread.close()

    def thread(self, partition: int) -> EngineThread:
        """Return the partition's own thread."""
        return self._threads[partition]

    async def done_before(self, partition: int) -> Mapping[TopicPartition, int]:
        """Its progress says it all: see ``open``."""
        return {}

    async def note_ends(self) -> Mapping[TopicPartition, int]:
        """Nothing comes before the registry."""
        return {}

    def admit(self, records: Sequence[Record], ends: Mapping[TopicPartition, int]) -> int:
        """Everything can be processed at once."""
        return len(records)

    async def wait(self, limit_s: float, *, since: int) -> None:
        """Nothing is ever held."""
        raise AssertionError("the registry holds nothing")

    def process(self, partition: int, records: Sequence[Record]) -> list[Output]:
        """Step the records through the partition's state."""
        state = self._states[partition]
        outputs: list[Output] = []
        for record in records:
            outputs += processor.process(state, record)
        return outputs

    def seal(self, partition: int, positions: Mapping[TopicPartition, int]) -> list[Output]:
        """Return the progress records that make what was applied visible to every join worker."""
        return [
            progress(topic=tp.topic, partition=tp.partition, position=position) for tp, position in positions.items()
        ]

    def unasked(self, partition: int) -> list[Output]:
        """Nothing is written but for a record."""
        return []
