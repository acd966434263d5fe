"""Record processing in a thread, so that heartbeats and HTTP pages keep working.

Python switches threads every few milliseconds, so a record that costs seconds delays the event loop by
milliseconds. A state belongs to one thread alone.
"""

import asyncio
import queue
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from assay_stream.errors import OperatingError

Result = TypeVar("Result")

OUT_OF_MEMORY = OperatingError(
    "out_of_memory",
    "the process is out of memory. Give it more, or more workers: docs/capacity.md says what a fleet "
    "takes. A record that needs too much by itself is set aside after some attempts",
)
"""Created in advance: there is no memory to create it later."""


class StateThread:
    """Run calls sequentially in a daemon thread."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._moved_s: float | None = None
        threading.Thread(target=self._work, name=name, daemon=True).start()

    @property
    def busy_s(self) -> float:
        """Seconds spent on the current item; 0 when idle."""
        moved_s = self._moved_s
        return 0.0 if moved_s is None else time.monotonic() - moved_s

    def note_progress(self) -> None:
        """Mark the start of the next item; call it in the thread."""
        self._moved_s = time.monotonic()

    def run(self, function: Callable[..., Result], *arguments: object) -> asyncio.Future[Result]:
        """Run a function in the thread, and return the future of its result.

        If the future is cancelled or set first, the function keeps running and its result is dropped.

        Raises:
            OperatingError: ``out_of_memory`` in place of ``MemoryError``.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Result] = loop.create_future()

        def call() -> None:
            try:
                result = function(*arguments)
            except MemoryError as error:
                # What the frames hold is what fills the memory.
                traceback.clear_frames(error.__traceback__)
                _hand_over(loop, answer.set_exception, answer, OUT_OF_MEMORY)
            except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
                _hand_over(loop, answer.set_exception, answer, error)
            else:
                _hand_over(loop, answer.set_result, answer, result)

        self._calls.put(call)
        return answer

    def close(self) -> None:
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            self.note_progress()
            call()
            self._moved_s = None
            # The last call holds a whole batch.
            del call


def _hand_over(
    loop: asyncio.AbstractEventLoop, give: Callable[[Any], None], answer: asyncio.Future[Any], what: object
) -> None:
    def settle() -> None:
        if not answer.done():
            give(what)

    # A loop that is closed has nobody who waits.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(settle)
