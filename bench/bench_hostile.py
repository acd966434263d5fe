"""What hostile input costs: CPU and memory of the step that reads it, in a process of its own with limits.

Each class of input (``tests/support/hostile_lists.py``) is read by a fresh registry, its last list in a measured
step; beside it stand the SHA-256 of the same bytes and their decoding and fingerprints, which are linear. The row
``archive`` is one compressed line of 400 MiB, through ``replay`` and ``verify``.

    python -m bench.bench_hostile [--rounds N] [--against PATH] [--only TEXT]

``--against`` names another checkout, whose ``src`` is measured on the same input, for figures before and after.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from bench.results import write_line
from tests.support.hostile_lists import CLASSES

MEMORY_BYTES_MAX = 4 * 1024**3
CPU_S_MAX = 60
ARCHIVE_MIB = 400
ARCHIVE_COMMANDS = ("replay", "verify")
_MIB = 1024 * 1024
_HASH_ROUNDS = 10
_START_MS = 1_772_323_200_000


def records_of(name: str) -> list[bytes]:
    """Return the values of the snapshot records of a class.

    Args:
        name: one of ``CLASSES``.
    """
    return [
        orjson.dumps(
            {
                "specversion": "1.0",
                "type": "mcp.tools.list.observed",
                "source": "urn:assay-stream:observer:bench",
                "id": f"list-{number}",
                "time": f"2026-03-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z",
                "data": {
                    "server_id": "hostile",
                    "observer_id": observer,
                    "snapshot_id": f"snapshot-{number}",
                    "server_scoped": True,
                    "completeness": "complete",
                    "tools": tools,
                },
            }
        )
        for number, (observer, tools) in enumerate(CLASSES[name][1]())
    ]


def measured_part(name: str, values: list[bytes]) -> int:
    """Return how many of the records stand before those that are measured: of many observers all are."""
    return 0 if "observers" in name else len(values) - 1


def step(name: str) -> dict[str, float]:
    """Return what the registry's step costs for the records of a class; runs in the measured process."""
    from assay_stream.model.evidence import Producer
    from assay_stream.model.record import Origin, Record, Role
    from tests.support import engine
    from tests.support.engine import EngineState

    state = EngineState(producer=Producer(version="bench"))
    values = records_of(name)
    first = measured_part(name, values)
    records = [
        Record(
            role=Role.SNAPSHOTS,
            origin=Origin(topic="mcp.tools.list", partition=0, offset=number),
            key=b"hostile",
            value=value,
            timestamp_ms=_START_MS + number * 1_000,
        )
        for number, value in enumerate(values)
    ]
    for record in records[:first]:
        engine.process(state, record)
    before_mb, started_s = resident_mb("VmRSS"), time.process_time()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # VmHWM begins anew
    for record in records[first:]:
        engine.process(state, record)
    return {"cpu_s": time.process_time() - started_s, "peak_mb": resident_mb("VmHWM") - before_mb}


def linear(name: str) -> dict[str, float]:
    """Return what decoding and fingerprints cost, and SHA-256; runs in the measured process."""
    from assay_stream.canonical.decode import decode_json
    from assay_stream.schemes.fingerprint import fingerprint

    values = records_of(name)
    values = values[measured_part(name, values) :]
    hashed_s = []
    for _ in range(_HASH_ROUNDS):
        started_s = time.perf_counter()
        for value in values:
            sha256(value).digest()
        hashed_s.append(time.perf_counter() - started_s)
    started_s = time.process_time()
    for value in values:
        for tool in decode_json(value)["data"]["tools"]:
            fingerprint(tool, server_id="hostile")
    linear_s = time.process_time() - started_s
    return {"bytes": sum(map(len, values)), "sha256_s": min(hashed_s), "linear_s": linear_s}


def resident_mb(field: str) -> float:
    """Return a line of ``/proc/self/status`` in MB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024


def limited(arguments: list[str], source: Path) -> tuple[int, str, float, float]:
    """Run Python within the limits; return its exit code and output, and its CPU seconds and peak memory in MB.

    Args:
        arguments: of the interpreter.
        source: the folder that ``assay_stream`` is imported from.
    """

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S_MAX, CPU_S_MAX))

    environment = os.environ | {"PYTHONPATH": str(source)}
    process = subprocess.Popen(
        [sys.executable, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=limit,
    )
    assert process.stdout is not None
    output = process.stdout.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    return process.returncode, output, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def stopped(code: int) -> str:
    """Say which limit ended a process, by its exit code."""
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"stopped at {CPU_S_MAX} s"
    return f"stopped at {MEMORY_BYTES_MAX // 1024**3} GB"


def measure(name: str, source: Path, rounds: int) -> dict[str, Any]:
    """Return the best figures of some rounds for one class.

    Args:
        name: one of ``CLASSES``.
        source: the folder that ``assay_stream`` is imported from.
        rounds: how many.
    """
    best: dict[str, Any] = {"class": name, "row": CLASSES[name][0]}
    for _ in range(rounds):
        for part in ("linear", "step"):
            code, output, _, _ = limited(["-m", "bench.bench_hostile", "--child", part, name], source)
            if code != 0:
                return best | {"stopped": stopped(code)}
            found = json.loads(output)
            best |= {key: min(value, best.get(key, value)) for key, value in found.items()}
    return best


def measure_archive(source: Path, rounds: int) -> list[dict[str, Any]]:
    """Return the best figures of ``replay`` and ``verify`` on one compressed line of 400 MiB."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bomb = folder / "bomb.ndjson.gz"
        with gzip.open(bomb, "wb", 9) as file:
            for _ in range(ARCHIVE_MIB):
                file.write(b"x" * _MIB)
            file.write(b"\n")
        (folder / "none.ndjson").touch()
        commands: dict[str, list[str]] = {
            "replay": ["replay", "--input", str(bomb), "--output"],
            "verify": ["verify", "--input", str(folder / "none.ndjson"), "--evidence", str(bomb)],
        }
        _, _, _, normal_mb = limited(["-m", "assay_stream", "verify", "--help"], source)
        rows = []
        for command in ARCHIVE_COMMANDS:
            best: dict[str, Any] = {"class": f"one line of {ARCHIVE_MIB} MiB, {command}", "row": "archive"}
            best |= {"bytes": ARCHIVE_MIB * _MIB, "compressed_bytes": bomb.stat().st_size}
            best |= {"sha256_s": _sha256_s(ARCHIVE_MIB)}
            for number in range(rounds):
                arguments = [*commands[command], *([str(folder / f"{number}")] if command == "replay" else [])]
                code, _, cpu_s, peak_mb = limited(["-m", "assay_stream", *arguments], source)
                if code < 0:
                    best["stopped"] = stopped(code)
                    break
                found = {"cpu_s": cpu_s, "peak_mb": peak_mb - normal_mb}
                best |= {key: min(value, best.get(key, value)) for key, value in found.items()}
            rows.append(best)
        return rows


def _sha256_s(mebibytes: int) -> float:
    piece, digest, started_s = b"x" * _MIB, sha256(), time.process_time()
    for _ in range(mebibytes):
        digest.update(piece)
    return time.process_time() - started_s


def cells(row: dict[str, Any]) -> list[str]:
    """Return the cells of one class."""
    spent = [row["stopped"], ""] if "stopped" in row else [f"{row['cpu_s']:.2f} s", f"{row['peak_mb']:.0f} MB"]
    linear_s = f"{row['linear_s'] * 1e3:.1f} ms" if "linear_s" in row else ""
    return [
        row["row"],
        row["class"],
        f"{row.get('bytes', 0) / 1024:,.0f} KiB",
        *spent,
        f"{row.get('sha256_s', 0.0) * 1e3:.2f} ms",
        linear_s,
    ]


def main() -> None:
    """Measure every class, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", type=Path, help="another checkout, whose src is measured instead")
    parser.add_argument("--only", default="", help="only classes whose name or row holds this text")
    parser.add_argument("--json", type=Path, help="append the results to this file")
    parser.add_argument("--child", nargs=2, metavar=("PART", "CLASS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        part, name = arguments.child
        print(json.dumps({"step": step, "linear": linear}[part](name)))
        return
    source = (arguments.against or Path(__file__).resolve().parents[1]).resolve() / "src"
    print(f"| row | class | input | CPU | memory | SHA-256 | decoding and fingerprints |\n|{'---|' * 7}")
    names = [name for name, (row, _) in CLASSES.items() if arguments.only in f"{row} {name}"]
    for name in names:
        show(measure(name, source, arguments.rounds), arguments.json)
    if arguments.only in "archive":
        for row in measure_archive(source, arguments.rounds):
            show(row, arguments.json)


def show(row: dict[str, Any], file: Path | None) -> None:
    """Print one class, and append it to a file if one is given."""
    print("| " + " | ".join(cells(row)) + " |", flush=True)
    write_line(file, {"bench": "hostile"} | row)


if __name__ == "__main__":
    main()
