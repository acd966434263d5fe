"""Our join beside the same join written with other frameworks: same broker, same records, one run.

Each program runs as a process of its own, one after the other, in as many rounds as asked for. How far it has come
is read from the broker; the CPU time is its own process's. Evidence of those that join is compared with ours, byte
by byte, on a sample.

    python -m bench.bench_peers [--calls N] [--rounds N] [--only NAME ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import time
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from assay_stream import __version__
from assay_stream.cli.shared import quiet_client_logs
from assay_stream.config import Settings, load_settings
from assay_stream.errors import ConfigurationError
from assay_stream.kafka.connection import start_admin
from assay_stream.kafka.topics import apply_topics, check_topics, inspect_topics, topic_names
from assay_stream.model.envelope import Producer
from assay_stream.model.record import Role
from bench.bench_join import ROLES, run_registry
from bench.peers.bindings import publish_bindings
from bench.peers.compare import Comparison, compare, read_sample
from bench.peers.environment import Environment
from bench.peers.measure import Measure, Window, committed_by, measure, written_to
from bench.peers.programs import OURS, PEERS_PYTHON, PROGRAMS, ROOT, Program, build_kafka_streams
from bench.publishing import publish
from bench.results import write_line
from deploy.local.kafka import Broker
from tests.support.deployment import free_port
from tests.support.fleet import Fleet

_BINDINGS_TOPIC = "bench.bindings"
_SAMPLE_PER_PARTITION = 5_000
_TOPICS_LIMIT_S = 30.0


class Bench:
    """All programs on one broker.

    Args:
        settings: names the broker; what our worker runs with.
        folder: for logs and the programs' own files.
        calls: how many calls there are.
        limit_s: how long a program is measured at most.
    """

    def __init__(self, settings: Settings, folder: Path, *, calls: int, limit_s: float) -> None:
        self._settings = settings
        self._folder = folder
        self._calls = calls
        self._limit_s = limit_s
        self._topics = topic_names(settings)

    async def prepare(self, fleet: Fleet) -> int:
        """Publish the fleet's history and what the registry finds in it; returns the bytes of a call."""
        admin = await start_admin(self._settings)
        await apply_topics(admin, self._settings)
        counts = await self._partition_counts(admin)
        await admin.close()
        size = await publish(self._settings, fleet)
        await run_registry(self._settings, counts, Producer(version=__version__))
        await publish_bindings(self._settings, _BINDINGS_TOPIC)
        return size

    async def _partition_counts(self, admin: AIOKafkaAdminClient) -> dict[Role, int]:
        """Return how many partitions each topic has, once the broker tells of all that were just made."""
        deadline_s = time.monotonic() + _TOPICS_LIMIT_S
        while True:
            try:
                return check_topics(await inspect_topics(admin, self._settings), ROLES | {Role.DEFINITIONS})
            except ConfigurationError:
                if time.monotonic() > deadline_s:
                    raise
                await asyncio.sleep(0.5)

    async def run(self, program: Program, number: int, *, processes: int = 1) -> Measure:
        """Run one program once over all calls."""
        environment = self._environment(program, number)
        admin = await start_admin(self._settings)
        consumer = AIOKafkaConsumer(bootstrap_servers=self._settings.bootstrap_servers)
        await consumer.start()
        try:
            if program is not OURS:
                await self._create(admin, environment.evidence_topic)
            progress = (
                committed_by(admin, environment.group, environment.calls_topic)
                if program.transactional
                else written_to(consumer, environment.evidence_topic, self._settings.call_partitions)
            )
            log = self._folder / f"{environment.group}.log"
            variables = [self._variables(environment, process) for process in range(processes)]
            warm_up = min(program.warm_up_calls, self._calls // 3)
            window = Window(calls=self._calls, warm_up_calls=warm_up, limit_s=self._limit_s)
            return await measure(program.command, variables, log, progress, window)
        finally:
            await consumer.stop()
            await admin.close()

    async def compare(self, program: Program, number: int) -> Comparison:
        """Compare the evidence of one run with ours."""
        ours, theirs = [
            await read_sample(
                self._settings.bootstrap_servers,
                self._environment(which, number).evidence_topic,
                self._settings.call_partitions,
                per_partition=_SAMPLE_PER_PARTITION,
            )
            for which in (OURS, program)
        ]
        return compare(ours, theirs)

    def _environment(self, program: Program, number: int) -> Environment:
        name = f"bench-{program.name}-{number}"
        # Our stages name their groups themselves.
        group = name + {"assay-stream": "-join", "raw-aiokafka": "-raw"}.get(program.name, "")
        return Environment(
            bootstrap=self._settings.bootstrap_servers,
            calls_topic=self._topics[Role.CALLS],
            bindings_topic=_BINDINGS_TOPIC,
            evidence_topic=self._topics[Role.EVIDENCE] if program is OURS else f"{name}.evidence",
            group=group,
            state_dir=str(self._folder / name),
            version=__version__,
        )

    def _variables(self, environment: Environment, process: int) -> dict[str, str]:
        ours = {
            "ASSAY_STREAM_BOOTSTRAP_SERVERS": environment.bootstrap,
            "ASSAY_STREAM_GROUP_PREFIX": environment.group.removesuffix("-join"),
            "ASSAY_STREAM_CALL_PARTITIONS": str(self._settings.call_partitions),
            "ASSAY_STREAM_WEB_PORT": str(free_port()),
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        }
        return dict(os.environ) | ours | environment.variables()

    async def _create(self, admin: AIOKafkaAdminClient, topic: str) -> None:
        # As our own evidence topic is made.
        await admin.create_topics([NewTopic(topic, self._settings.call_partitions, 1)])


async def bench(bootstrap: str, arguments: argparse.Namespace, programs: list[Program]) -> None:
    """Measure all programs, and print the result."""
    settings = load_settings(bootstrap_servers=bootstrap, call_partitions=4, group_prefix="bench")
    folder = ROOT / ".run" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    run = Bench(settings, folder, calls=arguments.calls, limit_s=arguments.limit)
    size = await run.prepare(Fleet(servers=200, calls=arguments.calls, changes=20, seed=11))
    print(
        f"{arguments.calls} calls of {size} bytes, {settings.call_partitions} partitions, {os.cpu_count()} cores "
        f"shared with the broker, Python {platform.python_version()}"
    )
    measures: dict[str, list[Measure]] = defaultdict(list)
    for number in range(arguments.rounds):
        for program in programs:
            one = await run.run(program, number)
            measures[program.name].append(one)
            print(
                f"round {number + 1}: {program.name:14} {one.calls_per_s:9,.0f} calls/s "
                f"{one.cpu_us:7.1f} us CPU {one.memory_mib:6.0f} MiB",
                flush=True,
            )
            write_line(arguments.json, {"bench": "peers", "program": program.name, "round": number, **asdict(one)})
    report(measures)
    for program in programs:
        if program.joins and program is not OURS:
            found = await run.compare(program, 0)
            print(f"evidence of {program.name} beside ours: {found}")
            if found.different or not found.same:
                raise AssertionError(f"{program.name} does not write what we write: its figures compare nothing")


def report(measures: dict[str, list[Measure]]) -> None:
    """Print the medians of all rounds, as a table, beside ours."""
    medians = {
        name: (statistics.median(one.calls_per_s for one in runs), statistics.median(one.cpu_us for one in runs))
        for name, runs in measures.items()
    }
    rate, cpu_us = medians[OURS.name]
    print("| program | calls/s | µs CPU per call | our rate / its rate | its CPU / our CPU |")
    print("|---|---|---|---|---|")
    for name, (its_rate, its_cpu_us) in sorted(medians.items(), key=lambda item: item[1][1]):
        print(f"| {name} | {its_rate:,.0f} | {its_cpu_us:.1f} | {rate / its_rate:.2f} | {its_cpu_us / cpu_us:.2f} |")


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=600_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds that a program is measured at most")
    parser.add_argument("--only", nargs="*", choices=[program.name for program in PROGRAMS])
    parser.add_argument("--json", type=Path, help="append each measure to this file, one JSON object a line")
    arguments = parser.parse_args()
    names = arguments.only or [program.name for program in PROGRAMS]
    programs = [program for program in PROGRAMS if program is OURS or program.name in names]
    if not PEERS_PYTHON.exists():
        raise SystemExit("the peers are not installed: make bench-peers does that")
    if any(program.name == "kafka-streams" for program in programs):
        build_kafka_streams()
    quiet_client_logs()
    with Broker() as broker:
        asyncio.run(bench(broker.bootstrap, arguments, programs))


if __name__ == "__main__":
    main()
