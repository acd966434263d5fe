"""How fast a replay of files is and its evidence is verified, beside what any reader of the lines has to do.

Each is the command itself, from its start to its end, in interleaved rounds. The baseline decodes each line with
orjson, hashes it with SHA-256 and writes it with orjson again. Each has one core; ``verify`` checks the replay's
evidence against the archive. The archive is made first, by the command's own writer.

    python -m bench.bench_replay [--calls N ...] [--rounds N] [--suffix .zst] [--folder FOLDER] [--json FILE]
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

from assay_stream.files.archive import write_archive
from assay_stream.files.lines import record_line
from assay_stream.model.record import TOPIC_NAMES, Origin, Record, Role, murmur2_partition
from assay_stream.text.times import time_ms_in
from bench.results import Row, write_line
from bench.rounds import QuietCheck, compared
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
    for number, (role, key, value) in enumerate(fleet.history()):
        partition = murmur2_partition(key, SNAPSHOT_PARTITIONS)
        if role is Role.CALLS:
            partition += number % (CALL_PARTITIONS // SNAPSHOT_PARTITIONS) * SNAPSHOT_PARTITIONS
        place = Origin(topic=TOPIC_NAMES[role], partition=partition, offset=offsets[role, partition])
        offsets[role, partition] += 1
        timestamp_ms = time_ms_in(orjson.loads(value)["time"]) or 0
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


def run(folder: Path, *arguments: str) -> Measure:
    """Run a program of this Python in a child process that has one core."""
    started = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
        with (folder / "out.txt").open("wb") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606
    _, status, usage = os.wait4(pid, 0)
    told = (folder / "out.txt").read_text()
    assert status == 0, f"{arguments} ended with {os.waitstatus_to_exitcode(status)}: {told}"
    return Measure(
        wall_s=time.perf_counter() - started, cpu_s=usage.ru_utime + usage.ru_stime, rss_bytes=usage.ru_maxrss * 1_024
    )


_BASELINE = """
import hashlib, orjson, sys
with open(sys.argv[1], "rb") as lines, open(sys.argv[2], "wb") as out:
    for line in lines:
        read = orjson.loads(line)
        hashlib.sha256(line).digest()
        out.write(orjson.dumps(read) + b"\\n")
"""


def bench(calls: int, arguments: argparse.Namespace, folder: Path) -> None:
    """Measure one length, and print the result."""
    archive, output, copy = folder / f"{calls}.ndjson{arguments.suffix}", folder / str(calls), folder / "copy"
    size = make_archive(archive, calls)
    print(f"{calls:,} calls, {size / 1e6:,.0f} MB of lines, {archive.stat().st_size / 1e6:,.0f} MB file", flush=True)
    evidence = output / "evidence.ndjson"
    module = ("-m", "assay_stream")
    programs: dict[str, tuple[str, ...]] = {
        "replay": (*module, "replay", "--input", str(archive), "--output", str(output), "--force"),
        "verify": (*module, "verify", "--evidence", str(evidence), "--input", str(archive)),
    }
    if not arguments.suffix:
        programs = {"baseline": ("-c", _BASELINE, str(archive), str(copy)), **programs}
    rows: dict[str, list[Row]] = {name: [] for name in programs}
    check = QuietCheck()
    for number in range(arguments.rounds):
        busy = check.look()
        for name, command in programs.items():
            one = run(folder, *command)
            row: Row = {"bench": "replay", "program": name, "round": number, "calls": calls, "busy": busy}
            row |= {"calls_per_s": calls / one.wall_s, "cpu_us": one.cpu_s / calls * 1e6}
            row["memory_mib"] = one.rss_bytes / 2**20
            rows[name].append(row)
            write_line(arguments.json, row)
            print(
                f"round {number + 1}: {name:24} {row['calls_per_s']:9,.0f} calls/s by the clock "
                f"{row['cpu_us']:6.1f} us CPU {row['memory_mib']:6.0f} MiB",
                flush=True,
            )
        assert sum(1 for _ in evidence.open("rb")) == calls
    print(check)
    if "baseline" in rows:
        for name, beside in compared(rows, "baseline").items():
            print(f"{name:24} rate beside the baseline {beside.rate or '-'}, CPU {beside.cpu or '-'}")
    for path in (archive, copy, *output.iterdir()):
        path.unlink(missing_ok=True)


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, nargs="*", default=[1_000_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--suffix", choices=["", ".gz", ".zst"], default="")
    parser.add_argument("--folder", type=Path, default=None, help="Where to put the archives; some gigabytes.")
    parser.add_argument("--json", type=Path, help="append each measure to this file, one JSON object a line")
    arguments = parser.parse_args()
    print(f"one core of {os.cpu_count()}, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for calls in arguments.calls:
            bench(calls, arguments, Path(folder))


if __name__ == "__main__":
    main()
