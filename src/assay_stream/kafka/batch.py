"""A batch: what an agent is given, and where it puts what it writes."""

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from assay_stream.errors import AssayStreamError
from assay_stream.kafka.transport import Gathered
from assay_stream.model.record import Output, Record

State = TypeVar("State")
Step = Callable[[State, Record], Sequence[Output]]
"""Applies one record to a state, in place, and returns what is to be written."""
PieceStep = Callable[[State, Sequence[Record]], Sequence[Output]]
"""Applies some records to a state, one after the other, and returns what is to be written."""


class BatchDropped(Exception):  # noqa: N818 - nothing went wrong: the partition has another owner
    """The batch in hand was taken away; nothing of it will be written."""


class AgentFailed(Exception):  # noqa: N818 - says what happened
    """An agent raised on a batch."""

    def __init__(self, name: str, partition: int, cause: Exception) -> None:
        self.name = name
        self.partition = partition
        self.cause = place_of(cause)
        super().__init__(f"the {name} agent failed: {self.cause}")


def place_of(error: Exception) -> str:
    """Return the class of an error and the line that raised it: its text may quote the record."""
    if isinstance(error, AssayStreamError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return type(error).__name__ + place


class Batch(Generic[State]):
    """Records of one input partition, in order. What is written for them and their offsets is one transaction.

    An agent that is done with a batch asks for the next one. If it does not call ``process``, it is done with all
    records.

    Args:
        state: state of the partition, to be used in ``process`` only.
        piece_records: how many records to process between two looks at the clock.
        limit_s: after this a batch is committed as far as it is done, seconds.
        in_thread: runs a function in the thread of the state.
        on_piece: called there with the first record of each piece.
    """

    def __init__(
        self,
        partition: int,
        records: Sequence[Record],
        state: State,
        *,
        outputs: Gathered,
        piece_records: int,
        limit_s: float,
        in_thread: Callable[..., asyncio.Future[Any]],
        on_piece: Callable[[Record], None],
    ) -> None:
        self.partition = partition
        self.records = records
        self.state = state
        self.outputs = outputs
        self._piece_records = piece_records
        self._limit_s = limit_s
        self._in_thread = in_thread
        self._on_piece = on_piece
        self._processed: int | None = None
        self._working: asyncio.Future[Any] | None = None
        self._dropped = False

    @property
    def done(self) -> int:
        """How many leading records are done; the others come again in the next batch."""
        return len(self.records) if self._processed is None else self._processed

    async def process(self, step: Step[State]) -> None:
        """Apply a step to each record, in the thread of the state, until the time of a batch is over.

        Raises:
            BatchDropped: the partition has another owner by now.
        """

        def in_turn(state: State, piece: Sequence[Record]) -> list[Output]:
            return [output for record in piece for output in step(state, record)]

        await self.process_pieces(in_turn)

    async def process_pieces(self, step: PieceStep[State]) -> None:
        """Apply a step to some records at a time, otherwise as ``process`` does.

        Raises:
            BatchDropped: the partition has another owner by now.
        """
        if self._dropped:
            raise BatchDropped
        self._working = self._in_thread(self._step_all, step)
        await self._working

    def write(self, outputs: Sequence[Output]) -> None:
        self.outputs.add(outputs)

    def drop(self) -> None:
        self._dropped = True
        if self._working is not None and not self._working.done():
            self._working.set_exception(BatchDropped())

    def _step_all(self, step: PieceStep[State]) -> None:
        records, done, until_s = self.records, self._processed or 0, time.monotonic() + self._limit_s
        first = done
        while done < len(records) and (done == first or time.monotonic() < until_s):
            piece = records[done : done + self._piece_records]
            self._on_piece(piece[0])
            self.outputs.add(step(self.state, piece))
            done += len(piece)
        self._processed = done


BatchHandler = Callable[[Batch[Any]], Awaitable[None]]
"""Works on one batch; returns when it is done with it."""
