"""What sealing costs: an archive of evidence read, read and sealed, and read and verified, side by side.

    python -m bench.bench_seal [--records N] [--rounds N]

The records are of the size of real evidence, about 1.3 KB. Ends with exit code 1 where a check does not hold.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from assay_stream.files.lines import record_line
from assay_stream.files.seal_files import FileLogs
from assay_stream.model.checkpoint import Checkpoint, TreeLeaf, encode, leaf_of, sealed
from assay_stream.model.record import Origin, Record, Role
from assay_stream.schemes import tlog
from assay_stream.seal.check import LogName, Report, check
from tests.support.exports import evidence

TOPIC = "assay.tool.decision"
RANGE_RECORDS = 4_096
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
LOG = LogName(TOPIC, 0)


def an_archive(path: Path, records: int) -> int:
    """An archive of so many records; returns its bytes."""
    with path.open("wb") as file:
        for number in range(records):
            value = evidence(number, data={"tool_call_id": f"call-{number}", "padding": "x" * 400})
            record = Record(Role.EVIDENCE, Origin(TOPIC, 0, number), b"server-1", value, (), 1_772_359_205_000)
            file.write(record_line(record) + b"\n")
    return path.stat().st_size


def read(logs: FileLogs) -> None:
    """Only read."""
    for _ in logs.records(LOG):
        pass


def seal(logs: FileLogs) -> list[bytes]:
    """Read, and write a checkpoint over each range."""
    before: Checkpoint | None = None
    leaves: list[TreeLeaf] = []
    values = []

    def close() -> Checkpoint:
        made = sealed(
            before,
            leaves,
            topic=TOPIC,
            partition=0,
            sealed_at="2026-03-01T10:00:00Z",
            key=KEY,
            software="bench",
            partitions=1,
            siblings=(),
            log_name="bench.example",
        )
        values.append(encode(made))
        return made.checkpoint

    for record in logs.records(LOG):
        leaves.append((record.origin.offset, leaf_of(record)))
        if len(leaves) == RANGE_RECORDS:
            before = close()
            leaves = []
    if leaves:
        close()
    return values


def verify(logs: FileLogs, values: list[bytes]) -> Report:
    """Read, and hold against the checkpoints."""
    report = Report(topic=TOPIC, partition=0)
    check(report, enumerate(values), logs.records(LOG), tlog.keys_of([KEY.public_key()]))
    return report


def least_seconds(rounds: int, *steps: Callable[[], object]) -> list[float]:
    """The least time of each step, over rounds in which they take turns."""
    best = [float("inf")] * len(steps)
    for _ in range(rounds):
        for number, step in enumerate(steps):
            began = time.perf_counter()
            step()
            best[number] = min(best[number], time.perf_counter() - began)
    return best


def main() -> int:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--records", type=int, default=50_000)
    options.add_argument("--rounds", type=int, default=3)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "evidence-0.ndjson"
        size = an_archive(path, chosen.records)
        logs = FileLogs([path], Role.EVIDENCE)
        values = seal(logs)
        report = verify(logs, values)
        seconds = least_seconds(chosen.rounds, lambda: read(logs), lambda: seal(logs), lambda: verify(logs, values))
    print(f"{chosen.records:,} records of {size // chosen.records} bytes a line, {len(values)} checkpoints")
    print(f"checkpoints: {sum(map(len, values)) / chosen.records:.1f} bytes a record")
    for what, taken in zip(("read", "read and seal", "read and verify"), seconds, strict=True):
        print(f"{what:<16} {chosen.records / taken:>10,.0f} records/s  {taken / seconds[0]:5.2f} of reading alone")
    return 0 if (report.verified, report.faults_count) == (chosen.records, 0) else 1


if __name__ == "__main__":
    raise SystemExit(main())
