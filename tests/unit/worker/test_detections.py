"""Users' agents without a broker: their stages on the in-memory cluster, killed, failing and waiting."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from assay_stream.agents import Agent, AgentSet, Detection, Event, Memory, agent_set
from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError
from assay_stream.kafka import runner as module
from assay_stream.kafka import upstream
from assay_stream.kafka.partition import Batch
from assay_stream.kafka.runner import Runner
from assay_stream.kafka.stage import Stage
from assay_stream.kafka.topics import topic_names
from assay_stream.kafka.upstream import UpstreamStages
from assay_stream.model.record import Output, Role
from assay_stream.worker import detections
from assay_stream.worker.agent_stages import process
from assay_stream.worker.detections import add_agents, stages_of, upstream_of
from assay_stream.worker.host import Deadline, Host
from tests.support.agents import a_set, evidence, found
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
    """Who made a call."""
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
    """Who makes a call."""
    return {"kind": "agent", "agent_id": f"a{number}"}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once."""
    monkeypatch.setattr(module, "_REOPENING_PAUSE_S", 0.0)
    monkeypatch.setattr(module, "_LOOK_S", 0.005)
    monkeypatch.setattr(upstream, "_INTERVAL_S", 0.0)


@pytest.fixture
def cluster() -> MemoryCluster:
    """The evidence of some calls."""
    cluster = MemoryCluster(dict.fromkeys(TOPICS.values(), PARTITIONS))
    publish(cluster, calls())
    return cluster


def publish(cluster: MemoryCluster, outputs: Iterable[Output]) -> None:
    """Append what stages wrote."""
    for output in outputs:
        cluster.append(TOPICS[output.role], output.partition or 0, output.key, output.value)


@asynccontextmanager
async def running(
    cluster: MemoryCluster, agents: AgentSet, *, only: Callable[[Stage[Any]], bool] = lambda _: True
) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Run the stages of agents, or some of them."""
    settings = Settings(poll_timeout_ms=5, batch_records_max=6)
    upstream = upstream_of(
        agents, NAME, clients=cluster, topics=TOPICS, counts=COUNTS, group_prefix=settings.group_prefix
    )
    stages = stages_of(agents, NAME, upstream, clients=cluster, topics=TOPICS, counts=COUNTS)

    async def agent(batch: Batch[Any]) -> None:
        await batch.process(process)

    parts: list[Runner | UpstreamStages] = [*upstream.values()]
    for stage in filter(only, stages):
        task = Runner(settings, stage, agent, topics=TOPICS, partition_counts=COUNTS, clients=cluster)
        parts.append(task)
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
    """Run agents until something is so; raise what one of the stages raised."""
    async with running(cluster, agents or numbering(), **options) as tasks, asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.002)
            for task in tasks:
                if task.done():
                    task.result()


def written(cluster: MemoryCluster) -> list[bytes]:
    """The findings of agents, in order of their place."""
    values = [each.value or b"" for each in cluster.read(TOPICS[Role.FINDINGS])]
    return sorted(value for value in values if b'"detection"' in value)


def replayed(agents: AgentSet | None = None) -> list[bytes]:
    """The findings of a replay over the same evidence."""
    return sorted(finding.encode() for finding in found(agents or numbering(), calls()))


def is_done(cluster: MemoryCluster) -> bool:
    """Whether there are as many findings as there are to be, or more."""
    return len(written(cluster)) >= CALLS


async def finish(cluster: MemoryCluster) -> None:
    """Let healthy agents do what is left, and look for what comes twice."""
    await run_until(lambda: is_done(cluster), cluster)
    publish(cluster, [evidence(CALLS, CALLS + 3_600, actor={"kind": "agent", "agent_id": "last"})])
    await run_until(lambda: any(b'"last"' in each for each in written(cluster)), cluster)


def without_last(findings: list[bytes]) -> list[bytes]:
    """Findings but for the one about the record that ``finish`` adds."""
    return [each for each in findings if b'"last"' not in each]


async def test_live_findings_are_those_of_a_replay(cluster: MemoryCluster) -> None:
    """Byte for byte, though records of one actor stand in two partitions and out of order."""
    await finish(cluster)
    assert without_last(written(cluster)) == replayed()
    assert len(replayed()) == CALLS


@pytest.fixture(params=range(1, 60))
def at_request(request: pytest.FixtureRequest) -> int:
    """Which request of a producer fails: those that open all partitions of all stages, and some batches."""
    number: int = request.param
    return number


def fail(cluster: MemoryCluster, at_request: int, error: BaseException) -> list[str]:
    """Let one request fail; returns the list of what is asked for."""
    asked: list[str] = []

    def before(request: str) -> None:
        asked.append(request)
        if len(asked) == at_request:
            raise error

    cluster.before = before
    return asked


async def test_agents_that_are_killed_lose_and_double_nothing(cluster: MemoryCluster, at_request: int) -> None:
    """At whichever request one of their stages dies."""
    asked = fail(cluster, at_request, KilledError())
    with pytest.raises(KilledError):
        await run_until(lambda: False, cluster)
    assert len(asked) >= at_request
    cluster.before = lambda _: None
    await finish(cluster)
    assert without_last(written(cluster)) == replayed()


async def test_a_request_that_fails_loses_and_doubles_nothing(cluster: MemoryCluster, at_request: int) -> None:
    """The transaction is undone, and the batch done again."""
    fail(cluster, at_request, KafkaError("the broker is away"))
    await finish(cluster)
    assert without_last(written(cluster)) == replayed()


async def test_two_processes_share_the_work(cluster: MemoryCluster) -> None:
    """The second takes its partitions over while the first works."""
    async with running(cluster, numbering()), asyncio.timeout(10):
        while not written(cluster):
            await asyncio.sleep(0.001)
        await finish(cluster)
    assert without_last(written(cluster)) == replayed()


def offsets(cluster: MemoryCluster, stage: str, role: Role) -> int:
    """How many offsets of a topic a stage has committed."""
    committed = cluster.committed(f"assay-stream-{stage}")
    return sum(committed.get(TopicPartition(TOPICS[role], number), (0, ""))[0] for number in range(PARTITIONS))


async def join_first_call(cluster: MemoryCluster) -> None:
    """Commit that the join has read a call."""
    join = cluster.producer("join")
    await join.start()
    await join.begin_transaction()
    await join.send_offsets_to_transaction({TopicPartition(TOPICS[Role.CALLS], 0): (1, "")}, "assay-stream-join")
    await join.commit_transaction()


async def test_what_waits_is_read_again_after_a_restart(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is kept in memory alone, so reading goes on from the first record that waits: here, for the join."""
    monkeypatch.setattr(detections, "_UPSTREAM_LIMIT_S", 0.05)  # each batch waits so long for a join that stands still
    cluster.append(TOPICS[Role.CALLS], 0, b"", b"")

    def all_taken_in() -> bool:
        ends = len(cluster.read(TOPICS[Role.AGENT_INPUTS]))
        taken = offsets(cluster, f"agents-{NAME}", Role.AGENT_INPUTS)
        return offsets(cluster, f"agents-{NAME}-evidence", Role.EVIDENCE) == CALLS and taken >= ends > CALLS

    await run_until(all_taken_in, cluster)
    assert written(cluster) == []
    await join_first_call(cluster)
    await finish(cluster)
    assert without_last(written(cluster)) == replayed()


async def test_evidence_goes_behind_what_follows_from_the_same_calls(cluster: MemoryCluster) -> None:
    """Otherwise its event times would not tell that earlier findings have been read."""
    publish(cluster, [Output(Role.FINDINGS, b"", b'{"kind":"tick","time_us":1}', partition=0)])

    async with running(cluster, numbering(), only=lambda stage: stage.name != f"agents-{NAME}-findings"):
        await asyncio.sleep(0.2)
    assert offsets(cluster, f"agents-{NAME}-evidence", Role.EVIDENCE) == 0
    await finish(cluster)
    assert without_last(written(cluster)) == replayed()


async def test_records_wait_for_what_follows_from_calls_before_them(cluster: MemoryCluster) -> None:
    """With the join behind, an earlier call may have evidence later."""
    cluster.append(TOPICS[Role.CALLS], 0, b"", b"")
    async with running(cluster, numbering()):
        await asyncio.sleep(0.3)
        assert written(cluster) == []
        await join_first_call(cluster)
        async with asyncio.timeout(10):
            while not is_done(cluster):
                await asyncio.sleep(0.002)


async def test_with_the_join_far_behind_what_it_has_written_goes_on(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but the last minute of it; the rest when the join has caught up, though nothing else is read then."""
    monkeypatch.setattr(detections, "_UPSTREAM_LIMIT_S", 0.01)
    cluster.append(TOPICS[Role.CALLS], 0, b"", b"")
    publish(cluster, [evidence(CALLS + n, 70, partition=n, actor=actor(0)) for n in range(PARTITIONS)])
    async with running(cluster, numbering()), asyncio.timeout(10):
        while len(written(cluster)) < 10:
            await asyncio.sleep(0.002)
        await asyncio.sleep(0.1)
        assert len(written(cluster)) == 10
        await join_first_call(cluster)
        while len(written(cluster)) < CALLS + PARTITIONS:
            await asyncio.sleep(0.002)


async def test_an_input_does_not_run_ahead_of_one_with_more_records() -> None:
    """Otherwise all that it holds would wait in memory, until the other has come as far in event time."""
    agent, seen = Agent("counting", title="Counts"), set()
    agent.evidence(key=actor_of)(lambda event, _: seen.add(event.origin))
    cluster = MemoryCluster(dict.fromkeys(TOPICS.values(), PARTITIONS))
    publish(cluster, [evidence(number, number * 600, partition=0) for number in range(60)])
    publish(cluster, [evidence(number, number * 120, partition=1) for number in range(300)])
    stages: list[Stage[Any]] = []

    def keep(stage: Stage[Any]) -> bool:
        stages.append(stage)
        return True

    most = 0
    async with running(cluster, a_set(agent), only=keep), asyncio.timeout(20):
        while len(seen) < 360:
            most = max(most, sum(stage.waiting for stage in stages))
            await asyncio.sleep(0.001)
    assert 0 < most < 30


def breaking(what: str) -> AgentSet:
    """An agent that breaks at the tenth call of an actor, or in its key."""
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
    with pytest.raises(ConfigurationError, match=r"agent 'breaking': ") as stopped:
        await run_until(lambda: False, cluster, breaking(what))
    assert stopped.value.code == code
    assert not re.search(r"\ba[012]\b", str(stopped.value))
    assert written(cluster) == []


@pytest.fixture(autouse=True)
def no_fault(cluster: MemoryCluster) -> Iterator[None]:
    """Leave nothing to fail behind."""
    yield
    cluster.before = lambda _: None


def test_other_code_reads_all_definitions_again_and_nothing_else() -> None:
    """What it remembers of them may be something else; records that were handled are not handled twice."""
    agent = Agent("labels", title="Labels")
    agent.evidence(key=actor_of)(lambda _, __: None)
    agent.definitions(lambda definition: definition)

    def names(digest: str) -> set[str]:
        agents = agent_set([agent], digest=digest)
        stages = stages_of(agents, NAME, {"upstream": Any}, clients=Any, topics=TOPICS, counts=COUNTS)  # type: ignore[arg-type,dict-item]
        return {stage.name for stage in stages}

    before, after = names("sha256:" + "a" * 64), names("sha256:" + "b" * 64)
    assert before & after == {f"agents-{NAME}", f"agents-{NAME}-evidence"}
    assert len(before - after) == 1


async def test_a_host_runs_every_stage_and_says_what_came_late() -> None:
    """One for each input and the one behind them, beside what follows the stages upstream."""
    deadline = Deadline(60)
    try:
        host = Host(Settings(), deadline, web_port=None)
        add_agents(Settings(), host, COUNTS, numbering(), NAME)
        text = host.metrics.text().decode()
    finally:
        deadline.cancel()
    names = [service._name for service in host.app.hosted]
    assert names == ["upstream", "preceding", "agents-tests-evidence", "agents-tests-findings", "agents-tests"]
    assert 'assay_stream_agent_records_late{stage="agents-tests"} 0.0' in text
