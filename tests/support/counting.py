"""Work counted instead of timed: the same on a busy machine as on a quiet one."""

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Counted:
    calls = 0


@contextmanager
def counting_calls() -> Iterator[Counted]:
    """Count the calls of this thread: of Python, of C, and each turn of a generator or coroutine.

    A loop in C is one call, however long it is: see ``passes``. Python collects no garbage meanwhile: what it would
    close then was left behind by whatever ran before.
    """
    counted = Counted()

    def note(_frame: FrameType, event: str, _what: object) -> None:
        counted.calls += event in ("call", "c_call")

    before, collects = sys.getprofile(), gc.isenabled()
    gc.disable()
    sys.setprofile(note)
    try:
        yield counted
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()


def counted_calls(function: Callable[[], object]) -> int:
    with counting_calls() as counted:
        function()
    return counted.calls


class Allocated:
    """Bytes that Python allocated within a block: the most at any time, and what was left at its end."""

    peak_bytes = 0
    kept_bytes = 0


@contextmanager
def allocating() -> Iterator[Allocated]:
    allocated = Allocated()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield allocated
        after, allocated.peak_bytes = tracemalloc.get_traced_memory()
        allocated.kept_bytes = after - before
    finally:
        tracemalloc.stop()


def passes(function: Callable[[str], object], text: str, *, rounds: int = 3) -> float:
    """Return what a function costs for a text, in plain loops over the same text: for work that C does in one call.

    Both are measured in processor time, in turns, and the least of each counts, so that other work on the machine
    changes little. Hold it against a bound that is a small multiple of what is normal.
    """
    costs_s, loops_s = [], []
    for _ in range(rounds):
        costs_s.append(_cpu_s(function, text))
        loops_s.append(min(_cpu_s(_walk, text) for _ in range(3)))
    return min(costs_s) / min(loops_s)


def _cpu_s(function: Callable[[str], object], text: str) -> float:
    started_s = time.process_time()
    function(text)
    return time.process_time() - started_s


def _walk(text: str) -> None:
    for _ in text:
        pass
