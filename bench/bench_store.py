"""How fast the store fills beside the join, in one run: both read the same broker, one after the other, round by round.

    BENCH_STORE_FILLED=1000000 python -m bench.bench_store [--calls N] [--rounds N]

Before the rounds the store takes in a million records of a made-up fleet, or as many as the variable says. In each
round the join then writes evidence of some calls, and the store takes that evidence in from its topic. What counts is
the ratio of their rates, by the clock and by processor time, and how much it differs between rounds.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from assay_stream.config import Settings, load_settings
from assay_stream.kafka.part import StageMetrics
from assay_stream.model.record import Role
from assay_stream.readmodel import schema
from assay_stream.readmodel.filling import Filler, fill as fill_from
from assay_stream.worker.storing import StoreFilling
from bench.bench_join import run_join, run_registry, with_topics
from bench.bench_readmodel import batches, listed, peak_mib
from bench.on_broker import Measure, on_broker
from bench.publishing import publish
from tests.support.fleet import Fleet

FILLED = int(os.environ.get("BENCH_STORE_FILLED", "1000000"))


class Timed(StageMetrics):
    """Takes the time between the first batch of evidence and the last."""

    def __init__(self) -> None:
        self._marks: list[tuple[int, float, float]] = []

    def batch(self, records: int, labels: Mapping[str, int], *, seconds: float) -> None:
        if labels.get(f"filled:{Role.EVIDENCE.value}", 0):
            self._marks.append((records, time.perf_counter(), time.process_time()))

    def rate(self) -> Measure:
        """Return the rate from the end of the first batch on."""
        (_, wall_s, cpu_s), (_, end_s, end_cpu_s) = self._marks[0], self._marks[-1]
        records = sum(records for records, _, _ in self._marks[1:])
        return Measure(calls_per_s=records / (end_s - wall_s), cpu_us=(end_cpu_s - cpu_s) / records * 1e6)


async def fill(settings: Settings, filler: Filler) -> Measure:
    """Take in what the topics have."""
    timed = Timed()
    await StoreFilling(settings, filler, once=True, metrics=timed).run()
    return timed.rate()


async def bench(bootstrap: str, calls: int, rounds: int) -> None:
    """Measure, and print the result."""
    settings = load_settings(
        bootstrap_servers=bootstrap, call_partitions=4, poll_timeout_ms=200, group_prefix="bench", store_days=36_500
    )
    counts = await with_topics(settings)
    folder = Path(tempfile.mkdtemp(prefix="assay-store-"))
    try:
        with schema.writing(folder) as connection:
            filler = Filler(connection)
            started_s = time.process_time()
            fill_from(connection, listed())
            filler.refresh()
            for batch in batches(FILLED):
                filler.take(batch)
            print(f"before: {FILLED:,} records, {FILLED / (time.process_time() - started_s):,.0f}/s with making them")
            ratios = []
            for number in range(rounds):
                await publish(settings, Fleet(servers=200, calls=calls, changes=100, seed=11))
                await run_registry(settings, counts)
                join = await run_join(settings, counts, calls)
                store = await fill(settings, filler)
                ratios.append((store.calls_per_s / join.calls_per_s, join.cpu_us / store.cpu_us))
                print(
                    f"round {number + 1}: join {join.calls_per_s:,.0f} calls/s at {join.cpu_us:.1f} us CPU; store "
                    f"{store.calls_per_s:,.0f} records/s at {store.cpu_us:.1f} us CPU; ratio {ratios[-1][0]:.2f} by "
                    f"the clock, {ratios[-1][1]:.2f} by CPU; load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )
            for index, what in enumerate(("by the clock", "by CPU")):
                found = [ratio[index] for ratio in ratios]
                print(
                    f"store to join {what}: median {statistics.median(found):.2f}, {min(found):.2f} to "
                    f"{max(found):.2f} (asked: 0.50)"
                )
            size = (folder / schema.FILE).stat().st_size
            print(f"peak memory, with the join, {peak_mib():,.0f} MiB; file {size / 2**20:,.0f} MiB")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    on_broker(bench, __doc__, rounds=3)
