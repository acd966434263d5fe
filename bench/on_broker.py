"""What the benches on a real broker share: their arguments, the broker, and the measuring of stages."""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from deploy.local.kafka import Broker


class Part(Protocol):
    """What runs until it is stopped: the task of a stage, or what a stage asks."""

    async def run(self) -> None:
        """Run until stopped."""

    def stop(self) -> None:
        """Ask it to stop."""


@dataclass(kw_only=True)
class Count:
    """Calls processed, in place of a Prometheus meter."""

    calls: int = 0


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One run: calls per second, and CPU time of this process per call."""

    calls_per_s: float
    cpu_us: float


async def run_until(parts: Sequence[Part], count: Count, calls: int) -> Measure:
    """Run parts until all calls are processed, and measure from the first ones on."""
    running = [asyncio.create_task(part.run()) for part in parts]
    first = None
    while count.calls < calls:
        for task in running:
            if task.done():
                task.result()
        if first is None and count.calls:
            first = (count.calls, time.perf_counter(), time.process_time())
        await asyncio.sleep(0.01)
    if first is None:
        raise AssertionError("too few calls to measure anything")
    wall_s, cpu_s = time.perf_counter() - first[1], time.process_time() - first[2]
    for part in parts:
        part.stop()
    await asyncio.gather(*running)
    measured = calls - first[0]
    return Measure(calls_per_s=measured / wall_s, cpu_us=cpu_s / measured * 1e6)


def on_broker(bench: Callable[[str, int, int], Awaitable[None]], description: str | None, *, rounds: int = 2) -> None:
    """Parse the arguments and run a bench on a broker of its own.

    Args:
        bench: gets the broker's address, the calls and the rounds.
        description: for `--help`.
        rounds: unless the arguments say otherwise.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--calls", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=rounds)
    arguments = parser.parse_args()
    gc.set_threshold(50_000, 50, 100)  # as the worker does

    async def run(bootstrap: str) -> None:
        await bench(bootstrap, arguments.calls, arguments.rounds)

    with Broker() as broker:
        asyncio.run(run(broker.bootstrap))
