"""What a batch task asks of the stage that it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from aiokafka import TopicPartition

from assay_stream.kafka.state_thread import EngineThread
from assay_stream.model.record import Output, Record, Role


class Stage(Protocol):
    """What a task does with its records. All rules are the core's; a stage only connects it.

    What is not ``async`` touches state, and is called in the thread that the state belongs to (``thread``); only
    ``close`` and the properties are called from the loop.
    """

    @property
    def name(self) -> str:
        """Names the stage's consumer group, logs and metrics."""

    @property
    def input_roles(self) -> tuple[Role, ...]:
        """What it reads; within a partition number, in this order."""

    @property
    def entries(self) -> int:
        """How many servers its state holds."""

    @property
    def piece_records(self) -> int:
        """How many records are processed between two looks at the clock."""

    @property
    def changes(self) -> int:
        """Grows whenever more might be admitted."""

    def thread(self, partition: int) -> EngineThread:
        """Return the thread that an open partition's state belongs to."""

    async def open(self, partition: int) -> Mapping[TopicPartition, int | None]:
        """Restore the partition's state, and return start positions that override the group's.

        ``None`` is the beginning of the log.
        """

    async def done_before(self, partition: int) -> Mapping[TopicPartition, int]:
        """Return positions before which all is done, as the stage's outputs say, whatever the group committed."""

    def close(self, partition: int) -> None:
        """Drop the partition's state."""

    async def note_ends(self) -> Mapping[TopicPartition, int]:
        """Return the positions that must be applied before records read up to now can be processed."""

    def admit(self, records: Sequence[Record], ends: Mapping[TopicPartition, int]) -> int:
        """Return how many leading records can be processed now."""

    async def wait(self, limit_s: float, *, since: int) -> None:
        """Wait until ``changes`` is more than it was, or for the limit."""

    def process(self, partition: int, records: Sequence[Record]) -> list[Output]:
        """Step the records."""

    def seal(self, partition: int, positions: Mapping[TopicPartition, int]) -> list[Output]:
        """Return what must be written with these new input positions."""

    def unasked(self, partition: int) -> list[Output]:
        """Return what must be written although nothing was read: time has passed."""
