"""What ``ingest`` takes in batches of 100 on real Kafka, beside publishing directly with the Python publisher.

python -m bench.bench_ingest [--events N] [--rounds N]

The figure that counts is the processor time of the process of ``ingest``, its threads included: events a second of one
core. Elapsed time stands beside it; the broker and the clients share the machine. Each round measures both.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import aiohttp
import psutil

from assay_stream.model.record import Role
from assay_stream.observe.publisher import ObservationPublisher
from deploy.local.kafka import Broker
from tests.support.deployment import Deployment
from tests.support.ingest import BATCH, Address, a_call, batch, ingest_of

BATCH_EVENTS = 100
AT_ONCE = 4
WARM_UP = 2_000


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def through_ingest(address: Address, first: int, events: int) -> tuple[float, float]:
    """Return events a second of elapsed time, and of processor time of the process."""
    process = psutil.Process(address.process.process.pid)
    bodies = [
        batch(*(a_call(number, args_hash="sha256:" + "0" * 64) for number in range(start, start + BATCH_EVENTS)))
        for start in range(first, first + events, BATCH_EVENTS)
    ]
    headers = {"Content-Type": BATCH, "Authorization": f"Bearer {address.ingest.tokens['gw-1']}"}
    async with aiohttp.ClientSession(headers=headers) as session:

        async def client() -> None:
            while bodies:
                async with session.post(address.url, data=bodies.pop()) as response:
                    assert response.status == 202, await response.text()

        before_s, started_s = _cpu_s(process), time.perf_counter()
        await asyncio.gather(*(client() for _ in range(AT_ONCE)))
        return events / (time.perf_counter() - started_s), events / (_cpu_s(process) - before_s)


def directly(deployment: Deployment, first: int, events: int) -> tuple[float, float]:
    """Return the same of the publisher, in this process; what it publishes is made before."""
    made = [a_call(number, args_hash="sha256:" + "0" * 64) for number in range(first, first + events)]
    before_s, started_s = time.process_time(), time.perf_counter()
    with ObservationPublisher({"bootstrap_servers": deployment.bootstrap}, topics=deployment.topics) as publisher:
        for observation in made:
            assert publisher.publish(observation)
        while publisher.stats.queued:
            time.sleep(0.01)
    assert publisher.stats.delivered == events
    return events / (time.perf_counter() - started_s), events / (time.process_time() - before_s)


async def measure(events: int, rounds: int) -> None:
    """Print a line for each round, and the median with its spread."""
    rows = []
    with Broker() as broker, tempfile.TemporaryDirectory() as folder:
        deployment = Deployment(broker.bootstrap, name="bench")
        await deployment.apply_topics()
        with ingest_of(deployment, Path(folder)) as ingest:
            ingest.add_client()
            address = await ingest.start()
            await through_ingest(address, 0, WARM_UP)
            for number in range(1, rounds + 1):
                taken = await through_ingest(address, number * 10_000_000, events)
                published = await asyncio.to_thread(directly, deployment, number * 10_000_000 + 5_000_000, events)
                rows.append((*taken, *published, taken[1] / published[1]))
                print(
                    f"ingest {taken[0]:8,.0f} events/s, {taken[1]:8,.0f} per core; "
                    f"publisher {published[0]:8,.0f} events/s, {published[1]:8,.0f} per core; ratio {rows[-1][4]:.2f}"
                )
        assert len(await deployment.read(Role.CALLS)) == WARM_UP + 2 * rounds * events
    for index, name in ((1, "ingest, events/s per core"), (3, "publisher, events/s per core"), (4, "ratio")):
        values = [row[index] for row in rows]
        print(f"{name}: median {statistics.median(values):,.2f}, {min(values):,.2f} to {max(values):,.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    asyncio.run(measure(arguments.events, arguments.rounds))


if __name__ == "__main__":
    main()
