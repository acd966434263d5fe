"""How long a worker takes to be ready, against the state it has to read.

The state of a worker is the binding topic: a start after a crash reads what a first start reads, and waits for the
session of the worker that crashed, which is left out here: each worker stops before the next one starts. Each size gets
topics of its own; the binding topic is written directly.

    python -m bench.bench_start [--servers N ...] [--observers N] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path
from typing import Any

import orjson
import psutil

from assay_stream.cli.shared import quiet_client_logs
from assay_stream.model.record import Role, murmur2_partition
from bench.publishing import send
from bench.results import write_line
from bench.synthetic import facts
from deploy.local.kafka import Broker
from tests.support.deployment import Deployment

_READY_LIMIT_S = 600.0
_PRODUCTION = {"ASSAY_STREAM_SESSION_TIMEOUT_MS": "10000"}
"""The default again, in place of what tests run with."""


async def fill(deployment: Deployment, servers: int, observers: int) -> int:
    """Write the binding topic of a fleet; returns the number of facts."""
    topic, partitions = deployment.topics[Role.BINDINGS], deployment.settings.input_partitions
    records = (
        {"topic": topic, "key": key, "value": value, "partition": murmur2_partition(_server_in(key), partitions)}
        for key, value in facts(servers, observers)
    )
    return await send(deployment.bootstrap, records)


def _server_in(key: bytes) -> bytes:
    return str(orjson.loads(key)[1]).encode()


async def one_start(deployment: Deployment, role: str) -> dict[str, Any]:
    """Start a worker of one role, wait until it is ready, and stop it."""
    started_s = time.monotonic()
    worker = deployment.start_worker("--role", role)
    try:
        while (await asyncio.to_thread(worker.get, "/readyz"))[0] != 200:
            if time.monotonic() - started_s > _READY_LIMIT_S or worker.process.poll() is not None:
                raise AssertionError(f"the worker does not become ready:\n{worker.tail()}")
            await asyncio.sleep(0.1)
        ready_s = time.monotonic() - started_s
        process = psutil.Process(worker.process.pid)
        times = process.cpu_times()
        found = {
            "role": role,
            "ready_s": ready_s,
            "cpu_s": times.user + times.system,
            "memory_mib": process.memory_info().rss / 2**20,
        }
        await asyncio.to_thread(worker.terminate)
        return found
    finally:
        worker.kill()


async def bench(bootstrap: str, arguments: argparse.Namespace) -> None:
    """Measure, and print one line for each size and role."""
    for servers in arguments.servers:
        deployment = Deployment(bootstrap, f"start-{servers}", env=_PRODUCTION)
        await deployment.apply_topics()
        count = await fill(deployment, servers, arguments.observers)
        for role in ("join", "registry"):
            line = {"bench": "start", "servers": servers, "facts": count, **await one_start(deployment, role)}
            print(orjson.dumps(line).decode(), flush=True)
            write_line(arguments.json, line)


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, nargs="*", default=[10, 1_000, 10_000, 100_000])
    parser.add_argument("--observers", type=int, default=2, help="of each server")
    parser.add_argument("--json", type=Path, help="append the result to this file")
    arguments = parser.parse_args()
    quiet_client_logs()
    with Broker() as broker:
        asyncio.run(bench(broker.bootstrap, arguments))


if __name__ == "__main__":
    main()
