"""One, two and four join workers on the same calls.

The CPU time of a call is what carries over: on a machine with fewer cores than workers and broker the rate cannot
grow with them.

    python -m bench.bench_workers [--calls N] [--workers N ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import asdict
from pathlib import Path

import orjson

from assay_stream.cli.shared import quiet_client_logs
from assay_stream.config import load_settings
from bench.bench_peers import Bench
from bench.peers.programs import OURS, ROOT
from bench.results import write_line
from deploy.local.kafka import Broker
from tests.support.fleet import Fleet


async def bench(bootstrap: str, arguments: argparse.Namespace) -> None:
    """Measure, and print one line for each number of workers."""
    settings = load_settings(bootstrap_servers=bootstrap, call_partitions=4, group_prefix="bench")
    folder = ROOT / ".run" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    run = Bench(settings, folder, calls=arguments.calls, limit_s=arguments.limit)
    await run.prepare(Fleet(servers=200, calls=arguments.calls, changes=20, seed=11))
    for number, workers in enumerate(arguments.workers):
        found = await run.run(OURS, number, processes=workers)
        line = {"bench": "workers", "workers": workers, **asdict(found)}
        print(orjson.dumps(line).decode(), flush=True)
        write_line(arguments.json, line)


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=400_000)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that workers are measured at most")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--json", type=Path, help="append the result to this file")
    arguments = parser.parse_args()
    quiet_client_logs()
    with Broker() as broker:
        asyncio.run(bench(broker.bootstrap, arguments))


if __name__ == "__main__":
    main()
