"""What a batch task asks of the stage that it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from aiokafka import TopicPartition

from assay_stream.core.record import Output, Record, Role


class Stage(Protocol):
    """What a task does with its records. All rules are the core's; a stage only connects it."""

    @property
    def name(self) -> str:
        """Names the stage's consumer group, logs and metrics."""

    @property
    def input_roles(self) -> tuple[Role, ...]:
        """What it reads; within a partition number, in this order."""

    @property
    def entries(self) -> int:
        """How many servers its state holds."""

    async def open(self, partition: int) -> Mapping[TopicPartition, int | None]:
        """Restore the partition's state, and return start positions that override the group's.

        ``None`` is the beginning of the log.
        """

    def close(self, partition: int) -> None:
        """Drop the partition's state."""

    async def note_ends(self) -> Mapping[TopicPartition, int]:
        """Return the positions that must be applied before records read up to now can be processed."""

    def admit(self, records: Sequence[Record], ends: Mapping[TopicPartition, int]) -> int:
        """Return how many leading records can be processed now."""

    async def wait(self, limit_s: float) -> None:
        """Wait until more might be admitted, or for the limit."""

    def process(self, partition: int, records: Sequence[Record]) -> list[Output]:
        """Step the records."""

    def seal(self, partition: int, positions: Mapping[TopicPartition, int]) -> list[Output]:
        """Return what must be written with these new input positions."""

    def unasked(self, partition: int) -> list[Output]:
        """Return what must be written although nothing was read: time has passed."""
