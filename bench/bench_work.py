"""Work units per microsecond of comparisons by meaning: what one unit stands for on this machine.

    python -m bench.bench_work [--bytes 119000]

A rate below 10 means that a unit takes longer than 0.1 microseconds, and a used-up budget longer than it should.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from typing import Any

import orjson

from assay_stream.drift import compare_definitions
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.work import Work
from tests.support.hostile import PAIRS, Pair


def _honest(_: int) -> Pair:
    text = "Reads the entries of a page of the index, and returns them in the order in which they stand. "
    properties = {f"parameter_{index}": {"type": "string", "description": text} for index in range(5)}
    before: dict[str, Any] = {"name": "t", "description": text * 2, "inputSchema": {"properties": properties}}
    return before, before | {"description": text * 3}


def main() -> None:
    """Compare each pair once for time and once for memory, and print a table."""
    parser = argparse.ArgumentParser(description="What a unit of work stands for.")
    parser.add_argument("--bytes", type=int, default=119_000, help="size of each definition, about")
    size = parser.parse_args().bytes
    print(f"{'pair':26} {'bytes':>10} {'units':>9} {'ms':>8} {'units/us':>9} {'peak MB':>8}")
    for name, build in {"honest": _honest, **PAIRS}.items():
        before, after = (orjson.loads(orjson.dumps(side)) for side in build(size))
        work = Work(DEFAULT_LIMITS.work_units_max)
        start = time.process_time()
        compare_definitions(before, after, work)
        took_us = (time.process_time() - start) * 1e6
        tracemalloc.start()
        compare_definitions(before, after, Work(DEFAULT_LIMITS.work_units_max))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        length = len(orjson.dumps(after))
        rate = work.spent / max(took_us, 1.0)
        print(f"{name:26} {length:>10,} {work.spent:>9,} {took_us / 1e3:>8.1f} {rate:>9.1f} {peak / 1e6:>8.1f}")


if __name__ == "__main__":
    main()
