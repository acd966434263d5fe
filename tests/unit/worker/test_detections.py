"""Users' agents without a broker: their stages on the in-memory cluster, killed, failing and waiting."""

from __future__ import annotations

import asyncio
import gc
import re
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import accumulate
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from assay_stream.agents import Agent, AgentSet, Detection, Event, Memory
from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError
from assay_stream.kafka.partition import Batch
from assay_stream.kafka.runner import Runner
from assay_stream.kafka.stage import Stage, Topology
from assay_stream.kafka.topics import topic_names
from assay_stream.model.finding import decode_finding
from assay_stream.model.record import Output, Role
from assay_stream.worker import detections
from assay_stream.worker.detections import Pace, UpstreamStages, add_agents, preceding_stages, process, stages_of
from assay_stream.worker.host import Deadline, Host
from tests.support.agents import a_set, evidence
from tests.support.errors import raises_code
from tests.support.memory_cluster import MemoryCluster

NAME = "tests"
TOPICS = topic_names(Settings(), agents=NAME)
PARTITIONS = 2
COUNTS = dict.fromkeys(Role, PARTITIONS)
ACTORS = 3
CALLS = 24


class KilledError(BaseException):
    """What ends a process without another word."""


def actor_of(event: Event[Any]) -> str:
    name: str = event.value["data"]["actor"]["agent_id"]
    return name


def numbering() -> AgentSet:
    """An agent that numbers the calls of an actor: what is lost, doubled, reordered or of a lost state shows."""
    agent = Agent("numbering", title="A call has a number")

    @agent.evidence(key=actor_of)
    def on_call(_: Event[Any], memory: Memory) -> Iterable[Detection]:
        memory.state["count"] = memory.state.get("count", 0) + 1
        yield Detection(tool_name=f"call {memory.state['count']}")

    @agent.findings(key=lambda _: None)
    def on_finding(_: Event[Any], __: Memory) -> None:
        """Reads what it has no use for, so that it waits for it."""

    return a_set(agent)


def calls(count: int = CALLS) -> list[Output]:
    """Evidence of calls a second apart, by some actors, in partitions in turn; pairs are out of order."""
    numbers = [number ^ 1 for number in range(count)]
    return [evidence(number, number, partition=number % PARTITIONS, actor=actor(number % ACTORS)) for number in numbers]


def actor(number: int) -> dict[str, str]:
    return {"kind": "agent", "agent_id": f"a{number}"}


@pytest.fixture(autouse=True)
def never_waits(no_pauses: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detections, "_INTERVAL_S", 0.0)


@pytest.fixture
def cluster() -> MemoryCluster:
    cluster = MemoryCluster(dict.fromkeys(TOPICS.values(), PARTITIONS))
    publish(cluster, calls())
    return cluster


def publish(cluster: MemoryCluster, outputs: Iterable[Output]) -> None:
    for output in outputs:
        cluster.append(TOPICS[output.role], output.partition or 0, output.key, output.value)


@asynccontextmanager
async def running(
    cluster: MemoryCluster, agents: AgentSet, *, only: Callable[[Stage[Any]], bool] = lambda _: True
) -> AsyncIterator[list[asyncio.Task[None]]]:
    # What is there before is not looked through below: that would take several times as long as the test.
    gc.freeze()
    settings = Settings(poll_timeout_ms=5, batch_records_max=6)
    topology = Topology(settings, COUNTS, clients=cluster, agents=NAME)
    preceding = preceding_stages(agents, NAME, topology)
    stages = stages_of(agents, NAME, preceding, topology)

    async def agent(batch: Batch[Any]) -> None:
        await batch.process(process)

    parts: list[Runner | UpstreamStages] = [] if preceding is None else [preceding]
    parts += [Runner(stage, agent) for stage in filter(only, stages)]
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    tasks = [asyncio.create_task(part.run()) for part in parts]
    try:
        yield tasks
    finally:
        for part in parts:
            part.stop()
        await asyncio.wait(tasks, timeout=5)
    gc.collect()
    assert unheard == [], "asyncio logs this as an error"


async def run_until(
    condition: Callable[[], bool], cluster: MemoryCluster, agents: AgentSet | None = None, **options: Any
) -> None:
    async with running(cluster, agents or numbering(), **options) as tasks, asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.002)
            for task in tasks:
                if task.done():
                    task.result()


def written(cluster: MemoryCluster) -> list[bytes]:
    values = [each.value or b"" for each in cluster.read(TOPICS[Role.FINDINGS])]
    return sorted(value for value in values if b'"detection"' in value)


def check_exactly_once(cluster: MemoryCluster) -> None:
    """Every call was found once, and the state has counted it once: those of an actor have the numbers from one on."""
    findings = [decode_finding(each) for each in without_last(written(cluster))]
    assert sorted(finding.origin.offset for finding in findings) == list(range(CALLS))
    numbers = defaultdict[str, list[str]](list)
    for finding in findings:
        assert finding.detection is not None
        numbers[finding.detection.key[0]].append(finding.tool_name or "")
    share = sorted(f"call {number + 1}" for number in range(CALLS // ACTORS))
    assert {actor: sorted(each) for actor, each in numbers.items()} == {f"a{n}": share for n in range(ACTORS)}


def is_done(cluster: MemoryCluster) -> bool:
    return len(written(cluster)) >= CALLS


async def finish(cluster: MemoryCluster) -> None:
    await run_until(lambda: is_done(cluster), cluster)
    publish(cluster, [evidence(CALLS, CALLS + 3_600, actor={"kind": "agent", "agent_id": "last"})])
    await run_until(lambda: any(b'"last"' in each for each in written(cluster)), cluster)


def without_last(findings: list[bytes]) -> list[bytes]:
    return [each for each in findings if b'"last"' not in each]


async def test_every_call_counts_once(cluster: MemoryCluster) -> None:
    """Though records of one actor stand in two partitions and out of order."""
    await finish(cluster)
    check_exactly_once(cluster)


REQUESTS = 60
"""Of a producer, that may fail: those that open all partitions of all stages, and some batches."""


@pytest.mark.parametrize("at_request", range(1, REQUESTS, 2))
async def test_agents_that_are_killed_lose_and_double_nothing(cluster: MemoryCluster, at_request: int) -> None:
    """At whichever request one of their stages dies."""
    asked = cluster.fail_at(at_request, KilledError())
    with pytest.raises(KilledError):
        await run_until(lambda: False, cluster)
    assert len(asked) >= at_request
    cluster.before = lambda _: None
    await finish(cluster)
    check_exactly_once(cluster)


@pytest.mark.parametrize("at_request", range(2, REQUESTS, 2))
async def test_a_request_that_fails_loses_and_doubles_nothing(cluster: MemoryCluster, at_request: int) -> None:
    """The transaction is undone, and the batch done again."""
    cluster.fail_at(at_request, KafkaError("the broker is away"))
    await finish(cluster)
    check_exactly_once(cluster)


async def test_two_processes_share_the_work(cluster: MemoryCluster) -> None:
    """The second takes its partitions over while the first works."""
    async with running(cluster, numbering()), asyncio.timeout(10):
        while not written(cluster):
            await asyncio.sleep(0.001)
        await finish(cluster)
    check_exactly_once(cluster)


def offsets(cluster: MemoryCluster, stage: str, role: Role) -> int:
    committed = cluster.committed(f"assay-stream-{stage}")
    return sum(committed.get(TopicPartition(TOPICS[role], number), (0, ""))[0] for number in range(PARTITIONS))


async def test_evidence_goes_behind_what_follows_from_the_same_calls(cluster: MemoryCluster) -> None:
    """So an agent knows an alert before the call that comes after it."""
    publish(cluster, [Output(Role.FINDINGS, b"", b'{"kind":"tick","time_us":1}', partition=0)])

    async with running(cluster, numbering(), only=lambda stage: stage.name != f"agents-{NAME}-findings"):
        await asyncio.sleep(0.2)
    assert offsets(cluster, f"agents-{NAME}-evidence", Role.EVIDENCE) == 0
    await finish(cluster)
    check_exactly_once(cluster)


async def test_a_partition_does_not_run_ahead_of_one_with_more_records() -> None:
    """Otherwise a window over calls of both would have forgotten those of one before the other's come."""
    agent, seconds = Agent("counting", title="Counts"), list[int]()
    agent.evidence(key=lambda _: "all")(lambda event, _: seconds.append(event.time_us // 1_000_000))
    cluster = MemoryCluster(dict.fromkeys(TOPICS.values(), PARTITIONS))
    publish(cluster, [evidence(number, number * 600, partition=0) for number in range(60)])
    publish(cluster, [evidence(number, number * 120, partition=1) for number in range(300)])
    async with running(cluster, a_set(agent)), asyncio.timeout(20):
        while len(seconds) < 360:
            await asyncio.sleep(0.001)
    lead = max(latest - second for latest, second in zip(accumulate(seconds, max), seconds, strict=True))
    assert lead <= 60, "a limit, of the ten hours that each partition has"


def breaking(what: str) -> AgentSet:
    agent = Agent("breaking", title="It breaks")

    def key(event: Event[Any]) -> str:
        if what == "key":
            raise KeyError(actor_of(event))
        return "all"

    @agent.evidence(key=key)
    def on_call(event: Event[Any], memory: Memory) -> Any:
        memory.state["count"] = memory.state.get("count", 0) + 1
        if memory.state["count"] == 10:
            if what == "raise":
                raise ValueError(actor_of(event))
            if what == "exit":
                raise SystemExit(0)
            return ["junk"] if what == "junk" else None
        return ()

    return a_set(agent)


@pytest.mark.parametrize(
    ("what", "code"),
    [("raise", "agent_raised"), ("key", "agent_raised"), ("junk", "agent_bad_output"), ("exit", "agent_raised")],
)
async def test_an_agent_that_breaks_stops_with_its_name(cluster: MemoryCluster, what: str, code: str) -> None:
    """It quotes no record, and nothing of its batch is committed."""
    with raises_code(code, kind=ConfigurationError, match=r"agent 'breaking': ") as stopped:
        await run_until(lambda: False, cluster, breaking(what))
    assert not re.search(r"\ba[012]\b", str(stopped.value))
    assert written(cluster) == []


@pytest.mark.parametrize("at_call", [2, 3, 7, 11])
async def test_a_mended_agent_counts_no_call_of_the_broken_batch_twice(cluster: MemoryCluster, at_call: int) -> None:
    """The state of the calls before the one that it raised on is not kept either."""
    agent, left = numbering().agents["numbering"], at_call
    handle = agent.inputs[Role.EVIDENCE].handle

    def broken(event: Event[Any], memory: Memory) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            raise ValueError
        return handle(event, memory)

    agent.inputs[Role.EVIDENCE] = agent.inputs[Role.EVIDENCE]._replace(handle=broken)
    with raises_code("agent_raised", kind=ConfigurationError):
        await run_until(lambda: False, cluster, a_set(agent))
    await finish(cluster)
    check_exactly_once(cluster)


@pytest.fixture(autouse=True)
def no_fault(cluster: MemoryCluster) -> Iterator[None]:
    yield
    cluster.before = lambda _: None


async def test_a_host_runs_every_stage() -> None:
    """One for each input and the one behind them, beside what follows the stages upstream."""
    deadline = Deadline(60)
    try:
        host = Host(Settings(), deadline, web_port=None)
        add_agents(host, Topology(Settings(), COUNTS, agents=NAME), numbering(), NAME)
    finally:
        deadline.cancel()
    assert [name for name, _ in host.health.parts] == [
        "preceding",
        "agents-tests-evidence",
        "agents-tests-findings",
        "agents-tests",
    ]


def test_a_record_dated_far_ahead_holds_its_partition_for_some_seconds_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """One wrong clock must not stop a partition for as long as others have records."""
    pace, day_us = Pace(), 24 * 3_600 * 1_000_000
    assert pace.admit(0, [0, 1, 2]) == 3
    assert pace.admit(1, [day_us, 3, day_us]) == 0
    monkeypatch.setattr(detections, "_HOLD_LIMIT_S", 0.0)
    assert pace.admit(1, [day_us, 3, day_us]) == 2
    monkeypatch.undo()
    assert pace.admit(1, [day_us]) == 0
    pace.leave(0)
    assert pace.admit(1, [day_us]) == 1


@pytest.mark.parametrize("skew_s", [-120, 120])
def test_a_wrong_clock_of_steady_calls_does_not_hold_other_partitions(
    monkeypatch: pytest.MonkeyPatch, skew_s: int
) -> None:
    """They go no faster than time does, so nobody catches up: each record of the one ahead would wait for seconds."""
    now_s, pace, admitted = 0.0, Pace(), 0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    waiting = list[int]()
    for turn in range(1_200):
        now_s = turn / 10
        now_us = int(now_s * 1_000_000)
        pace.admit(0, [now_us + min(skew_s, 0) * 1_000_000])
        waiting.append(now_us + max(skew_s, 0) * 1_000_000)
        count = pace.admit(1, waiting)
        admitted += count
        del waiting[:count]
    assert len(waiting) < 100, "of 1,200, and a hold of some seconds"
