"""A worker that some records make die, hang or run out of memory.

Runs as ``python -m tests.support.faulty_worker worker``. Stands for defects that nobody knows of yet:
what known hostile input costs is bounded by budgets. A record's key says what happens while a stage works on it.
"""

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from assay_stream import join as joining
from assay_stream.cli import main
from assay_stream.model.record import Output, Record
from assay_stream.registry import processor as registering

SLOW_S = 8.0
FINISH_VARIABLE = "ASSAY_TEST_FINISH_FILE"
"""Names a file: once it is there, the record that takes long may be done."""
TAKES_LONG = "takes-long: begun"
"""What the worker's log says when work on that record begins."""
_ROOM_BYTES = 256 * 1_024 * 1_024
_KEPT: list[bytes] = []


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang() -> None:
    while True:
        sum(range(1_000))


def spin(seconds: float) -> None:
    """Pure Python, which shares the interpreter with nobody who does not ask for it."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        sum(range(1_000))


def take_long() -> None:
    """Longer than a session, and until the test has seen what it came for."""
    finish = Path(os.environ[FINISH_VARIABLE])
    print(TAKES_LONG, file=sys.stderr, flush=True)
    spin(SLOW_S)
    while not finish.exists():
        spin(0.1)


def exhaust() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + _ROOM_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    while True:
        _KEPT.append(bytes(1_000))


FAULTS: dict[bytes, Callable[[], None]] = {b"ends": die, b"hangs": hang, b"takes-long": take_long, b"exhausts": exhaust}


def meet_fault(record: Record) -> None:
    """Do what a record's key names, unless the record is set aside."""
    fault = FAULTS.get(record.key or b"")
    if fault is not None and not record.set_aside:
        fault()


def faulty(process: Callable[..., list[Output]]) -> Callable[..., list[Output]]:
    """A processor that meets a fault first, where the record's key names one."""

    def processed(state: object, record: Record, *given: object) -> list[Output]:
        meet_fault(record)
        return process(state, record, *given)

    return processed


def faulty_calls(process: Callable[..., list[list[Output]]]) -> Callable[..., list[list[Output]]]:
    """As ``faulty``, of the processor that is given some calls at a time, each with what was read of it."""

    def processed(state: object, calls: list[tuple[Record, object]]) -> list[list[Output]]:
        for record, _ in calls:
            meet_fault(record)
        return process(state, calls)

    return processed


if __name__ == "__main__":
    registering.process = faulty(registering.process)
    joining.process_calls = faulty_calls(joining.process_calls)
    main()
