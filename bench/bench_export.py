"""How much memory an export takes: the peak of a process of its own, for a small and for a large archive.

    python -m bench.bench_export [--small N] [--large N]

Ends with exit code 1 where the large one takes more than a quarter over the small one and 32 MiB.
"""

from __future__ import annotations

import argparse
import gzip
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.exports import evidence

EXPORTS = {
    "assay-bundle": ("--split", "100000", "--output", "bundle.tar.gz", "--force"),
    "parquet": ("--output", "datasets", "--force"),
    "timesketch": ("--output", "timeline.csv", "--force"),
}
ROOM_BYTES = 32 * 1024 * 1024


def an_archive(path: Path, records: int) -> None:
    """An archive of so many records, in gzip."""
    with gzip.open(path, "wb", compresslevel=1) as file:
        for number in range(records):
            second = number * 7_919 % 86_400  # arrives out of order
            at = f"2026-03-01T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"
            file.write(evidence(number, time=at, data={"tool_call_id": f"call-{number}"}) + b"\n")


def peak_bytes(name: str, archive: Path, folder: Path) -> tuple[int, float]:
    """Peak memory of the command, and how long it took, in seconds."""
    command = [sys.executable, "-m", "assay_stream", "export", name, "--input", str(archive), *EXPORTS[name]]
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{name} ended with {process.returncode}")
    return usage.ru_maxrss * 1_024, time.perf_counter() - began


def main() -> int:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--small", type=int, default=10_000)
    options.add_argument("--large", type=int, default=200_000)
    sizes = options.parse_args()
    grown = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        archives = {records: folder / f"{records}.ndjson.gz" for records in (sizes.small, sizes.large)}
        for records, path in archives.items():
            an_archive(path, records)
        for export in EXPORTS:
            peaks = []
            for records, path in archives.items():
                peak, seconds = peak_bytes(export, path, folder)
                peaks.append(peak)
                print(f"{export:<13} {records:>8,} records  {peak / 2**20:7.1f} MiB  {seconds:6.1f} s")
            grown += peaks[1] > peaks[0] * 1.25 + ROOM_BYTES
    return 1 if grown else 0


if __name__ == "__main__":
    raise SystemExit(main())
