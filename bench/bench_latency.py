"""How long from a call published to its evidence readable (read committed), at parts of the join's maximum rate.

First the maximum is measured over a backlog; then calls are published at a tenth and at half of it, and their
evidence is read, for each of some settings. Registry and join run in one worker; lists of tools keep coming, so
that calls wait for the registry as they do in life.

    python -m bench.bench_latency [--shares N ...] [--seconds N] [--polls MS ...] [--batches N ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import orjson
from aiokafka import AIOKafkaProducer

from assay_stream.cli.shared import quiet_client_logs
from assay_stream.config import Settings, load_settings
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import Role
from bench.bench_peers import Bench
from bench.peers.programs import OURS, PEERS_PYTHON, ROOT
from bench.results import write_line
from deploy.local.kafka import Broker
from tests.support.deployment import Deployment
from tests.support.fleet import START, Fleet, a_listing

_SERVERS = 200
_WARM_UP_S = 15.0
"""Until the broker has compiled what it runs."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is published while latency is measured.

    Args:
        calls_per_s: calls.
        snapshots_per_s: lists of tools, repeated as they were.
        seconds: for how long, after the warm-up.
    """

    calls_per_s: float
    snapshots_per_s: float
    seconds: float


async def run_load(bootstrap: str, settings: Settings, load: Load) -> list[int]:
    """Publish and read; returns the latencies in microseconds, sorted."""
    topics = topic_names(settings)
    seconds = load.seconds + _WARM_UP_S
    client = [str(PEERS_PYTHON), "-m", "bench.latency_client"]
    environment = dict(os.environ) | {"PYTHONPATH": str(ROOT)}
    reader = subprocess.Popen(
        [*client, "read", bootstrap, topics[Role.EVIDENCE], str(seconds + 3)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    if reader.stderr is None or reader.stdout is None:
        raise AssertionError("the reader was started with pipes")
    await asyncio.to_thread(reader.stderr.readline)
    started_us = time.time_ns() // 1_000
    publisher = subprocess.Popen(
        [*client, "publish", bootstrap, topics[Role.CALLS], str(seconds), str(load.calls_per_s), str(_SERVERS)],
        env=environment,
        stdout=subprocess.PIPE,
    )
    lists = asyncio.create_task(_publish_lists(bootstrap, topics[Role.SNAPSHOTS], load.snapshots_per_s))
    written = await asyncio.to_thread(reader.stdout.read)
    lists.cancel()
    with suppress(asyncio.CancelledError):
        await lists
    sent, _ = await asyncio.to_thread(publisher.communicate)
    reader.wait()
    found = orjson.loads(written)
    if len(found) < int(sent):
        print(f"  {int(sent) - len(found)} of {int(sent)} calls had no evidence in time: the rate is too high")
    since_us = started_us + _WARM_UP_S * 1_000_000
    return sorted(latency_us for sent_us, latency_us in found if sent_us >= since_us)


async def _publish_lists(bootstrap: str, topic: str, per_s: float) -> None:
    if not per_s:
        return
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        number = 10**6
        while True:
            at = START + timedelta(days=1, microseconds=number)
            _, key, value = a_listing(number % _SERVERS, number % 2, 0, number, at)
            await producer.send(topic, key=key, value=value)
            number += 1
            await asyncio.sleep(1 / per_s)
    finally:
        await producer.stop()


def percentiles_ms(latencies_us: list[int]) -> dict[str, float]:
    """Return what is reported of sorted latencies.

    Args:
        latencies_us: sorted, microseconds.
    """
    last = len(latencies_us) - 1
    return {f"p{part * 100:g}_ms": latencies_us[round(part * last)] / 1_000 for part in (0.5, 0.9, 0.99, 0.999)}


async def bench(bootstrap: str, arguments: argparse.Namespace) -> None:
    """Measure the maximum, then the latencies, and print them."""
    settings = load_settings(bootstrap_servers=bootstrap, call_partitions=4, group_prefix="bench-assay-stream-0")
    folder = ROOT / ".run" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    run = Bench(settings, folder, calls=arguments.calls, limit_s=60.0)
    await run.prepare(Fleet(servers=_SERVERS, calls=arguments.calls, changes=0, seed=11))
    maximum = await run.run(OURS, 0)
    print(f"maximum {maximum.calls_per_s:,.0f} calls/s at {maximum.cpu_us:.1f} us CPU")
    for share, poll_timeout_ms, batch_records_max, snapshots_per_s in product(
        arguments.shares, arguments.polls, arguments.batches, arguments.snapshots
    ):
        rate = maximum.calls_per_s * share
        chosen: dict[str, Any] = {"poll_timeout_ms": poll_timeout_ms, "batch_records_max": batch_records_max}
        load = Load(calls_per_s=rate, snapshots_per_s=snapshots_per_s, seconds=arguments.seconds)
        latencies_us = await _with_worker(settings.model_copy(update=chosen), load)
        line = {**chosen, "snapshots_per_s": snapshots_per_s, "calls_per_s": rate}
        line |= percentiles_ms(latencies_us)
        print(orjson.dumps(line).decode(), flush=True)
        write_line(arguments.json, {"bench": "latency", "maximum": maximum.calls_per_s, **line})


async def _with_worker(settings: Settings, load: Load) -> list[int]:
    """Start a worker where the last one stopped, and measure."""
    deployment = Deployment(settings.bootstrap_servers, "bench-latency")
    deployment.env = {
        "ASSAY_STREAM_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
        "ASSAY_STREAM_GROUP_PREFIX": settings.group_prefix,
        "ASSAY_STREAM_CALL_PARTITIONS": str(settings.call_partitions),
        "ASSAY_STREAM_POLL_TIMEOUT_MS": str(settings.poll_timeout_ms),
        "ASSAY_STREAM_BATCH_RECORDS_MAX": str(settings.batch_records_max),
    }
    worker = deployment.start_worker("--role", "join", "--role", "registry")
    try:
        await worker.wait_ready()
        return await run_load(settings.bootstrap_servers, settings, load)
    finally:
        worker.terminate()


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=300_000, help="backlog over which the maximum is measured")
    parser.add_argument("--shares", type=float, nargs="*", default=[0.1, 0.5], help="of the maximum rate")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long each setting is measured")
    parser.add_argument("--polls", type=int, nargs="*", default=[100], help="poll_timeout_ms")
    parser.add_argument("--batches", type=int, nargs="*", default=[10_000], help="batch_records_max")
    parser.add_argument("--snapshots", type=float, nargs="*", default=[0.0, 2.0], help="lists of tools per second")
    parser.add_argument("--json", type=Path, help="append the result to this file")
    arguments = parser.parse_args()
    if not PEERS_PYTHON.exists():
        raise SystemExit("the clients are not installed: make bench-peers does that")
    quiet_client_logs()
    with Broker() as broker:
        asyncio.run(bench(broker.bootstrap, arguments))


if __name__ == "__main__":
    main()
