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
from collections.abc import Mapping, Sequence
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
from assay_stream.model.plain_call import NATIVE_CALLS
from assay_stream.model.record import Role
from bench.bench_join import ROLES, run_registry
from bench.peers.bindings import publish_bindings
from bench.peers.compare import Comparison, Sample, compare, read_sample
from bench.peers.environment import Environment
from bench.peers.measure import Measure, Stalled, Window, committed_by, measure, written_to
from bench.peers.programs import OURS, PEERS_PYTHON, PROGRAMS, ROOT, Program, build_kafka_streams
from bench.publishing import publish
from bench.results import Row, write_line
from bench.rounds import QuietCheck, compared
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
        self._record_bytes = 0

    async def prepare(self, fleet: Fleet) -> int:
        """Publish the fleet's history and what the registry finds in it; returns the bytes of a call."""
        admin = await start_admin(self._settings)
        await apply_topics(admin, self._settings)
        counts = await self._partition_counts(admin)
        await admin.close()
        size = await publish(self._settings, fleet)
        await run_registry(self._settings, counts)
        await publish_bindings(self._settings, _BINDINGS_TOPIC)
        return size

    async def _partition_counts(self, admin: AIOKafkaAdminClient) -> dict[Role, int]:
        """Return how many partitions each topic has, once the broker tells of all that were just made."""
        deadline_s = time.monotonic() + _TOPICS_LIMIT_S
        while True:
            try:
                states = await inspect_topics(admin, self._settings)
                return check_topics(states, ROLES | {Role.DEFINITIONS}, self._settings)
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
            if program is OURS:
                await self._empty_evidence(admin)
            else:
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
            found = await measure(program.command, variables, log, progress, window)
            if program is OURS and not self._record_bytes:
                self._record_bytes = await self._evidence_bytes()
            if program is not OURS and (number or not program.joins):
                # Gigabytes that nobody reads any more: the evidence of the first round is compared.
                await admin.delete_topics([environment.evidence_topic])
            return found
        finally:
            await consumer.stop()
            await admin.close()

    async def _evidence_bytes(self) -> int:
        """Return how long a record of evidence is on average."""
        found = await self._sample(self._topics[Role.EVIDENCE])
        return round(statistics.fmean(len(value) for _, value in found.values()))

    async def compare(self, program: Program, number: int) -> Comparison:
        """Compare the evidence of one run with ours."""
        ours, theirs = [
            await self._sample(self._environment(which, number).evidence_topic) for which in (OURS, program)
        ]
        return compare(ours, theirs)

    async def _sample(self, topic: str) -> Sample:
        return await read_sample(
            self._settings.bootstrap_servers, topic, self._settings.call_partitions, per_partition=_SAMPLE_PER_PARTITION
        )

    def _environment(self, program: Program, number: int) -> Environment:
        name = f"bench-{program.name}-{number}"
        # Our stages name their groups themselves.
        group = name + ("-join" if program is OURS else "-raw" if program.name.startswith("raw-aiokafka") else "")
        return Environment(
            bootstrap=self._settings.bootstrap_servers,
            calls_topic=self._topics[Role.CALLS],
            bindings_topic=_BINDINGS_TOPIC,
            evidence_topic=self._topics[Role.EVIDENCE] if program is OURS else f"{name}.evidence",
            group=group,
            state_dir=str(self._folder / name),
            version=__version__,
            record_bytes=self._record_bytes if program.fills_up else 0,
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

    async def _empty_evidence(self, admin: AIOKafkaAdminClient) -> None:
        """Make the topics of evidence and of progress anew: our join goes on behind the last call that it joined."""
        topics = {self._topics[Role.EVIDENCE], self._topics[Role.JOIN_PROGRESS]}
        await admin.delete_topics(sorted(topics))
        deadline_s = time.monotonic() + _TOPICS_LIMIT_S
        while topics.intersection(await admin.list_topics()):
            if time.monotonic() > deadline_s:
                raise AssertionError(f"the broker does not delete {' and '.join(sorted(topics))}")
            await asyncio.sleep(0.2)
        await apply_topics(admin, self._settings)
        await self._partition_counts(admin)

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
        f"shared with the broker, Python {platform.python_version()}, "
        f"{'with' if NATIVE_CALLS else 'without'} the extension"
    )
    rows: dict[str, list[Row]] = defaultdict(list)
    check, stalled = QuietCheck(), dict[str, str]()
    for number in range(arguments.rounds):
        for program in programs:
            if program.name in stalled:
                continue
            busy = check.look()
            try:
                one = await run.run(program, number)
            except Stalled as error:
                if program is OURS:
                    raise
                stalled[program.name] = str(error)
                print(f"round {number + 1}: {program.name} is left out from here on: {error}", flush=True)
                continue
            row = {"bench": "peers", "program": program.name, "round": number, "busy": busy, **asdict(one)}
            rows[program.name].append(row)
            write_line(arguments.json, row)
            print(
                f"round {number + 1}: {program.name:20} {one.calls_per_s:9,.0f} calls/s "
                f"{one.cpu_us:7.1f} us CPU {one.memory_mib:6.0f} MiB",
                flush=True,
            )
    print(check)
    report(rows)
    for program in programs:
        if program.joins and program is not OURS and rows[program.name]:
            found = await run.compare(program, 0)
            print(f"evidence of {program.name} beside ours: {found}")
            if found.different:
                raise AssertionError(f"{program.name} does not write what we write: its figures compare nothing")
            if not found.same:
                print(f"{program.name} was too slow for a sample that both have written: its bytes are not compared")


def report(rows: Mapping[str, Sequence[Row]]) -> None:
    """Print every program beside ours, ratios with their intervals."""
    for name, beside in compared(rows, OURS.name).items():
        print(f"{name:20} rate beside ours {beside.rate or '-'}, CPU beside ours {beside.cpu or '-'}")


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=600_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=15.0, help="seconds that a program is measured at most")
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
