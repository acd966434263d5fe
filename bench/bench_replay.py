"""How fast a replay of files is and its evidence is verified, at two lengths of the same kind of history.

Each is the command itself, from its start to its end. The replay may use one core: what is told is calls per
second of its CPU time and of the clock, and its largest resident set. ``verify`` holds the replay's evidence
against the archive, once with one process on one core and once with a process for each core. The archive is made
first, by the command's own writer.

    python -m bench.bench_replay [--calls N ...] [--suffix .zst] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

from assay_stream.files.archive import event_timestamp_ms
from assay_stream.files.compressed import write_archive
from assay_stream.files.record_line import record_line
from assay_stream.model.partition import murmur2_partition
from assay_stream.model.record import TOPIC_NAMES, Origin, Record, Role
from tests.support.fleet import Fleet

CALL_PARTITIONS = 8
SNAPSHOT_PARTITIONS = 4


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One run: clock and CPU seconds, and the largest resident set in bytes."""

    wall_s: float
    cpu_s: float
    rss_bytes: int


def records(calls: int) -> Iterator[Record]:
    """A fleet's history as it stands in Kafka: calls spread over their partitions."""
    offsets: Counter[tuple[Role, int]] = Counter()
    fleet = Fleet(servers=10, observers=2, calls=calls, changes=50, seed=11)
    for role, key, value in fleet.history():
        is_call = role is Role.CALLS
        spread = value[-40:] if is_call else key
        partition = murmur2_partition(spread, CALL_PARTITIONS if is_call else SNAPSHOT_PARTITIONS)
        place = Origin(topic=TOPIC_NAMES[role], partition=partition, offset=offsets[role, partition])
        offsets[role, partition] += 1
        timestamp_ms = event_timestamp_ms(orjson.loads(value)["time"]) or 0
        yield Record(role=role, origin=place, key=key, value=value, timestamp_ms=timestamp_ms)


def make_archive(path: Path, calls: int) -> int:
    """Write the archive; returns the bytes of its lines."""
    size = 0
    with write_archive(path) as archive:
        for record in records(calls):
            line = record_line(record)
            size += len(line) + 1
            archive.write(line + b"\n")
    return size


def run(folder: Path, *arguments: str, cores: int = 1) -> Measure:
    """Run the command in a child process that has some cores."""
    started = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
        with (folder / "out.txt").open("wb") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        os.execv(sys.executable, [sys.executable, "-m", "assay_stream", *arguments])  # noqa: S606
    _, status, usage = os.wait4(pid, 0)
    told = (folder / "out.txt").read_text()
    assert status == 0, f"{arguments[0]} ended with {os.waitstatus_to_exitcode(status)}: {told}"
    return Measure(
        wall_s=time.perf_counter() - started, cpu_s=usage.ru_utime + usage.ru_stime, rss_bytes=usage.ru_maxrss * 1_024
    )


def bench(calls: int, suffix: str, folder: Path) -> None:
    """Measure one length, and print the result."""
    archive = folder / f"{calls}.ndjson{suffix}"
    size = make_archive(archive, calls)
    output = folder / str(calls)
    measure = run(folder, "replay", "--input", str(archive), "--output", str(output))
    evidence = output / "evidence.ndjson"
    assert sum(1 for _ in evidence.open("rb")) == calls
    print(
        f"{calls:,} calls ({size / 1e6:,.0f} MB of lines, {archive.stat().st_size / 1e6:,.0f} MB file): "
        f"{calls / measure.cpu_s:,.0f} calls/s of CPU, {calls / measure.wall_s:,.0f} calls/s by the clock, "
        f"{measure.rss_bytes / 1e6:,.0f} MB RSS at most",
        flush=True,
    )
    cores = len(os.sched_getaffinity(0))
    for processes in sorted({1, cores}):
        options = ("--processes", str(processes))
        verified = run(
            folder, "verify", "--evidence", str(evidence), "--input", str(archive), *options, cores=processes
        )
        print(
            f"  verified by {processes} processes: {calls / verified.wall_s:,.0f} records/s by the clock, "
            f"{calls / verified.cpu_s:,.0f} records/s of CPU",
            flush=True,
        )
    for path in (archive, *output.iterdir()):
        path.unlink()


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, nargs="*", default=[100_000, 2_000_000])
    parser.add_argument("--suffix", choices=["", ".gz", ".zst"], default="")
    parser.add_argument("--folder", type=Path, default=None, help="Where to put the archives; some gigabytes.")
    arguments = parser.parse_args()
    print(f"one core of {os.cpu_count()}, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for calls in arguments.calls:
            bench(calls, arguments.suffix, Path(folder))


if __name__ == "__main__":
    main()
