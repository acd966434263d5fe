"""What the optional extension saves: plain calls through the join's engine with it, beside the same without it.

python -m bench.bench_native [--calls N] [--rounds N]

Rounds of both take turns in one process. Processor time, of the median round, and the spread of the ratio.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from assay_stream.join import Join, process
from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.model.evidence import Producer
from assay_stream.model.plain_call import NATIVE_CALLS, read_native, read_plain
from assay_stream.model.record import Origin, Record, Role
from bench.synthetic import calls, facts

Read = Callable[[bytes, Limits], Any]


def main() -> None:
    """Measure both, after a check that they write the same."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    if not NATIVE_CALLS:
        sys.exit("the extension is not installed: run make native")
    gc.set_threshold(50_000, 50, 100)  # as the worker does
    join = Join(producer=Producer(version="bench"))
    for key, value in facts(100, 2):
        process(join, Record(Role.BINDINGS, Origin("bindings", 0, 0), key, value))
    records = [
        Record(Role.CALLS, Origin("calls", 0, offset), None, value)
        for offset, value in enumerate(calls(100, 2, options.calls))
    ]
    if any(read_native(record.value or b"", DEFAULT_LIMITS) is None for record in records):
        sys.exit("the extension leaves these calls to Python")
    if [_evidence(join, record, read_native) for record in records] != [
        _evidence(join, record, read_plain) for record in records
    ]:
        sys.exit("the two differ")
    rounds = [[_us(join, records, read) for read in (read_native, read_plain)] for _ in range(options.rounds)]
    ratios = sorted(native_us / python_us for native_us, python_us in rounds)
    native_us, python_us = (statistics.median(column) for column in zip(*rounds, strict=True))
    print(
        f"a plain call of {len(records[0].value or b'')} bytes, read and written as evidence: "
        f"{native_us:.1f} us with the extension, {python_us:.1f} us without; "
        f"ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f} in {len(ratios)} rounds)"
    )


def _evidence(join: Join, record: Record, read: Read) -> bytes | None:
    return process(join, record, read(record.value or b"", DEFAULT_LIMITS))[0].value


def _us(join: Join, records: list[Record], read: Read) -> float:
    began_s = time.process_time()
    for record in records:
        process(join, record, read(record.value or b"", DEFAULT_LIMITS))
    return (time.process_time() - began_s) / len(records) * 1e6


if __name__ == "__main__":
    main()
