"""A deployment under test: its topics, its workers as real processes, and what its logs hold."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Self

from aiokafka import AIOKafkaProducer, TopicPartition

from assay_stream.config import Settings, load_settings
from assay_stream.kafka.connection import open_admin, reading_consumer, record_of
from assay_stream.kafka.topics import apply_topics, topic_names, topic_table
from assay_stream.model.finding import Tick
from assay_stream.model.record import Headers, Record, Role
from deploy.local.kafka import free_ports

_READY_LIMIT_S = 120.0
_CENSUS = (Role.SNAPSHOTS, Role.CALLS, Role.BINDINGS, Role.EVIDENCE, Role.FINDINGS, Role.ALERTS, Role.REJECTED)
"""Where records are counted when others were waited for in vain."""


def free_port() -> int:
    """A loopback port that nobody listens on, nor is given to a client meanwhile."""
    return free_ports(1)[0]


@dataclass
class Worker:
    process: subprocess.Popen[bytes]
    web_port: int
    log: Path

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of one of the worker's pages; status 0 while it does not listen."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.web_port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name: str, **labels: str) -> float | None:
        """Return a sample of its metrics, ``None`` where there is none."""
        wanted = ",".join(f'{label}="{value}"' for label, value in labels.items())
        sample = re.escape(f"{name}{{{wanted}}}" if labels else name)
        found = re.search(rf"^{sample} (\S+)$", self.get("/metrics")[1], re.MULTILINE)
        return float(found[1]) if found else None

    async def wait_ready(self) -> None:
        deadline = time.monotonic() + _READY_LIMIT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"the worker ended with {self.process.returncode}:\n{self.tail()}")
            if (await asyncio.to_thread(self.get, "/readyz"))[0] == 200:
                return
            await asyncio.sleep(0.1)
        said = [self.get(page) for page in ("/readyz", "/healthz")]
        raise AssertionError(f"the worker is not ready after {_READY_LIMIT_S} s, {said}:\n{self.tail()}")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def terminate(self, limit_s: float = 30) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(limit_s)

    def reason(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return next((line for line in reversed(lines) if line.startswith("assay-stream: ")), "it does not say")

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-4_000:]


@cache
def _settings_of(env: tuple[tuple[str, str], ...]) -> Settings:
    """Two milliseconds each time, and asked for with every record that is sent."""
    return load_settings(**{name.removeprefix("ASSAY_STREAM_").lower(): value for name, value in env})


@dataclass
class Deployment:
    bootstrap: str
    name: str
    env: dict[str, str] = field(default_factory=dict)
    workers: list[Worker] = field(default_factory=list)
    program: tuple[str, ...] = ("-m", "assay_stream")
    python: str = sys.executable

    def __post_init__(self) -> None:
        self.env = {
            "ASSAY_STREAM_BOOTSTRAP_SERVERS": self.bootstrap,
            "ASSAY_STREAM_TOPIC_PREFIX": f"{self.name}.",
            "ASSAY_STREAM_GROUP_PREFIX": f"assay-stream-{self.name}",
            "ASSAY_STREAM_INPUT_PARTITIONS": "2",
            "ASSAY_STREAM_CALL_PARTITIONS": "4",
            "ASSAY_STREAM_SESSION_TIMEOUT_MS": "1500",
            # The fleet's records are of a day long ago: the clock would have every alert due at once.
            "ASSAY_STREAM_ALERT_TICK_S": "0",
            **self.env,
        }

    @property
    def settings(self) -> Settings:
        return _settings_of(tuple(self.env.items()))

    @property
    def topics(self) -> dict[Role, str]:
        return topic_names(self.settings)

    def folder(self) -> Path:
        """Return where logs go; test processes number their deployments alike."""
        folder = Path(".run/tests", os.environ.get("PYTEST_XDIST_WORKER", ""), self.name)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    async def apply_topics(self, *, agents: str = "") -> None:
        async with open_admin(self.settings) as admin:
            await apply_topics(admin, self.settings, agents=agents)

    def run(self, *arguments: object, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        return self._run(("-m", "assay_stream"), arguments, env, stdin)

    def run_own(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the program that its workers run."""
        return self._run(self.program, arguments, {})

    def _run(
        self, program: Sequence[str], arguments: Sequence[object], env: dict[str, str], stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.python, *program, *map(str, arguments)],
            env=os.environ | self.env | env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    async def output_of(self, *arguments: object, **env: str) -> str:
        done = await asyncio.to_thread(self.run, *arguments, COLUMNS="100", **env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start_worker(self, *arguments: str, **env: str) -> Worker:
        return self.start("worker", *arguments, **env)

    async def ready_worker(self, *arguments: str, **env: str) -> Worker:
        worker = self.start_worker(*arguments, **env)
        await worker.wait_ready()
        return worker

    def start(self, *arguments: str, **env: str) -> Worker:
        """Start a command that works until it is ended, and serves pages on its health."""
        port = free_port()
        log = self.folder() / f"{arguments[0]}-{len(self.workers)}.log"
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [self.python, *self.program, *arguments, "--web-port", str(port)],
                env=os.environ | self.env | env,
                stdout=stderr,
                stderr=stderr,
            )
        worker = Worker(process=process, web_port=port, log=log)
        self.workers.append(worker)
        return worker

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_workers()

    def stop_workers(self) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.kill()

    async def send(self, role: Role, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Publish records (key, value) to a role's topic, acknowledged."""
        await self.send_with_headers(role, ((key, value, ()) for key, value in records))

    async def put(self, *published: tuple[Role, bytes, bytes]) -> None:
        """Publish records to the topics of their roles, in this order."""
        for role, some in groupby(published, key=itemgetter(0)):
            await self.send(role, [(key, value) for _, key, value in some])

    async def publish(self, history: Iterable[tuple[Role, bytes, bytes]]) -> int:
        """Publish lists, and then the calls that rest on them; return how many calls."""
        published = sorted(history, key=lambda each: each[0] is Role.CALLS)
        await self.put(*published)
        return sum(role is Role.CALLS for role, _, _ in published)

    async def send_with_headers(
        self, role: Role, records: Iterable[tuple[bytes | None, bytes | None, Headers]], *, transactional: bool = False
    ) -> None:
        """Publish records (key, value, headers) to a role's topic, acknowledged; in a transaction as stages do."""
        async with (
            AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                acks="all",
                max_request_size=16 * 1024 * 1024,
                max_batch_size=512 * 1024,
                linger_ms=5,
                transactional_id=f"{self.name}-test" if transactional else None,
            ) as producer,
            producer.transaction() if transactional else nullcontext(),
        ):
            deliveries = [
                await producer.send(self.topics[role], key=key, value=value, headers=list(headers))
                for key, value, headers in records
            ]
            await asyncio.gather(*deliveries)

    async def read(self, role: Role, *, settled: bool = False, partitions_added: int = 0) -> list[Record]:
        """Every committed record of a role's topic, partition by partition.

        Args:
            settled: wait for transactions that are still open. A group's offsets can be seen before the records
                that were committed with them: their partitions get their markers one after the other.
            partitions_added: beyond those that the settings name.
        """
        async with self._reading(role, partitions_added) as read:
            return await read(settled)

    @asynccontextmanager
    async def _reading(
        self, role: Role, partitions_added: int = 0
    ) -> AsyncIterator[Callable[[bool], Awaitable[list[Record]]]]:
        """Give what reads every committed record there is, again and again: it reads on where it was."""
        settings = self.settings
        count = partitions_added + next(spec.partitions for spec in topic_table(settings) if spec.role is role)
        partitions = [TopicPartition(self.topics[role], number) for number in range(count)]
        consumer = reading_consumer(settings)
        consumer.assign(partitions)
        found: dict[TopicPartition, list[Record]] = {partition: [] for partition in partitions}

        async def read(settled: bool) -> list[Record]:
            ends = await (self._ends(partitions) if settled else consumer.end_offsets(partitions))
            while behind := [each for each in partitions if await consumer.position(each) < ends[each]]:
                for partition, messages in (await consumer.getmany(*behind, timeout_ms=20)).items():
                    found[partition].extend(record_of(role, one) for one in messages)
            return [record for partition in partitions for record in found[partition]]

        # By a with statement, one whose start is given up would stay open, as for a topic that is not there yet.
        try:
            await consumer.start()
            await consumer.seek_to_beginning(*partitions)
            yield read
        finally:
            await consumer.stop()

    async def _ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        async with reading_consumer(self.settings, isolation_level="read_uncommitted") as consumer:
            ends: dict[TopicPartition, int] = await consumer.end_offsets(list(partitions))
            return ends

    async def tick(self, time_us: int) -> None:
        partitions = self.settings.input_partitions
        async with AIOKafkaProducer(bootstrap_servers=self.bootstrap, acks="all") as producer:
            for number in range(partitions):
                value = Tick(time_us=time_us).encode()
                await producer.send_and_wait(self.topics[Role.FINDINGS], key=b"", value=value, partition=number)

    async def wait_until_written(self, role: Role, count: int, *, limit_s: float = 60.0) -> None:
        """Wait until a role's topic has grown to some offsets, without reading it: quick, and exact enough."""
        settings = self.settings
        many = role in (Role.CALLS, Role.EVIDENCE, Role.CHECKPOINTS)
        numbers = range(settings.call_partitions if many else settings.input_partitions)
        partitions = [TopicPartition(self.topics[role], number) for number in numbers]
        async with reading_consumer(settings) as consumer:
            async with asyncio.timeout(limit_s):
                while sum((await consumer.end_offsets(partitions)).values()) < count:
                    await asyncio.sleep(0.02)

    async def wait_for(
        self, role: Role, enough: Callable[[list[Record]], bool], *, limit_s: float = 60.0
    ) -> list[Record]:
        deadline = time.monotonic() + limit_s
        async with self._reading(role) as read:
            while not enough(records := await read(False)):
                for worker in self.workers:
                    if worker.process.poll() not in (None, -9, 0):
                        raise AssertionError(f"a worker ended with {worker.process.returncode}:\n{worker.tail()}")
                if time.monotonic() > deadline:
                    there = {each.value: len(await self.read(each)) for each in _CENSUS}
                    tails = "\n".join(worker.tail() for worker in self.workers)
                    raise AssertionError(f"{role}: {len(records)} records after {limit_s} s, of {there}\n{tails}")
                await asyncio.sleep(0.1)
            return records


def payload(record: Record) -> dict[str, object]:
    data = json.loads(record.value or b"{}")["data"]
    assert isinstance(data, dict)
    return data


async def waits_for(worker: Worker, code: str) -> str:
    """Wait until a worker is alive, not ready, and says that it waits for this; return why."""
    async with asyncio.timeout(60):
        while True:
            assert worker.process.poll() is None, worker.tail()
            ready, body = await asyncio.to_thread(worker.get, "/readyz")
            why = str(json.loads(body).get("waiting_for", "")) if ready == 503 else ""
            if why.startswith(code):
                assert (await asyncio.to_thread(worker.get, "/healthz"))[0] == 200
                return why
            await asyncio.sleep(0.1)
