"""The forwarder's loop over a scripted log: what is committed, what is fetched again, what is never skipped."""

# ruff: noqa: ARG002 - the signatures are the client's

from __future__ import annotations

import asyncio
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import CommitFailedError, KafkaConnectionError, KafkaError
from prometheus_client import CollectorRegistry

from assay_stream.alerts.formats import AlertView, render
from assay_stream.config import Settings
from assay_stream.errors import InputError, OperatingError
from assay_stream.forward import forwarder as forward
from assay_stream.forward.forwarder import WAIT_LONGEST_MS, Forwarder
from assay_stream.forward.receivers import DELIVERED, AttemptResult, DeliveryOutcome, Setting, Subscription
from assay_stream.kafka import part
from assay_stream.kafka.connection import FetchedRecord
from assay_stream.kafka.part import UNCOUNTED, StageMetrics, lags_of
from assay_stream.worker.telemetry import Metrics, PrometheusStage
from tests.support.alerts import alert_records, finding_of
from tests.support.errors import raises_code
from tests.support.memory_cluster import until

PLACE = TopicPartition("assay.tool.drift", 0)
DOWN = AttemptResult(outcome=DeliveryOutcome.UNAVAILABLE, code="http_503")
REFUSED = AttemptResult(outcome=DeliveryOutcome.REFUSED, code="http_422")
MARKER = b"the end of a transaction, which no reader is given"


@dataclass
class Log:
    """A consumer and a producer over one partition, in memory. Errors are raised once each, in turn."""

    values: list[bytes | None]
    committed_at: int | None = None
    beginning: int = 0
    commit_errors: list[Exception] = field(default_factory=list)
    write_errors: list[Exception] = field(default_factory=list)
    letters: list[dict[str, Any]] = field(default_factory=list)
    at: int | None = None
    listener: Any = None

    def subscribe(self, topics: list[str], listener: Any) -> None:
        assert topics == [PLACE.topic]
        self.listener = listener

    async def start(self) -> None:
        if self.listener is not None and self.at is None:
            await self.listener.on_partitions_assigned({PLACE})

    async def stop(self) -> None:
        pass

    def last_stable_offset(self, partition: TopicPartition) -> int:
        return len(self.values)

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset({PLACE})

    async def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {PLACE: self.beginning}

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {PLACE: len(self.values)}

    async def committed(self, partition: TopicPartition) -> int | None:
        return self.committed_at

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.at = offset

    async def position(self, partition: TopicPartition) -> int:
        assert self.at is not None
        return self.at

    async def getmany(self, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Any]]:
        await asyncio.sleep(0.001)
        assert self.at is not None
        start, self.at = self.at, len(self.values)
        messages = [
            FetchedRecord(PLACE.topic, 0, n, 0, b"k", self.values[n], ())
            for n in range(start, len(self.values))
            if self.values[n] is not MARKER
        ]
        return {PLACE: messages} if messages else {}

    async def commit(self, offsets: dict[TopicPartition, int]) -> None:
        if self.commit_errors:
            raise self.commit_errors.pop(0)
        self.committed_at = offsets[PLACE]

    async def send(self, topic: str, **letter: Any) -> asyncio.Future[None]:
        if self.write_errors:
            raise self.write_errors.pop(0)
        self.letters.append({"topic": topic} | letter)
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        written.set_result(None)
        return written


class Receiver:
    settings: ClassVar[Mapping[str, Setting]] = {}
    is_for_people: ClassVar[bool] = False
    name = "receiver"

    def __init__(self, *answers: AttemptResult) -> None:
        self.answers = list(answers)
        self.taken: list[str] = []

    def write(self, alert: dict[str, Any]) -> str:
        return render(alert, "ocsf")

    async def send(self, view: AlertView, body: str) -> AttemptResult:
        await asyncio.sleep(0)
        answer = self.answers.pop(0) if self.answers else DELIVERED
        if answer is DELIVERED:
            self.taken.append(view.fact("mcp_tool_name"))
        return answer

    async def close(self) -> None:
        pass


def alerts(*tools: str) -> list[bytes | None]:
    return [alert.value for alert in alert_records(*(finding_of(tool) for tool in tools))]


def subscribed(receiver: Receiver, **more: Any) -> Subscription:
    return Subscription(name="forward", receiver=receiver, group="g", **more)


@asynccontextmanager
async def forwarding(
    log: Log, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, metrics: StageMetrics = UNCOUNTED, **more: Any
) -> AsyncIterator[Forwarder]:
    monkeypatch.setattr(forward, "reading_consumer", lambda *_, **__: log)
    monkeypatch.setattr(forward, "writing_producer", lambda *_, **__: log)
    monkeypatch.setattr(part, "_PAUSE_S", 0.001)
    monkeypatch.setattr(forward, "WAIT_LONGEST_MS", 1)
    made = Forwarder(Settings(), subscribed(receiver, **more), metrics=metrics)
    running = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        made.stop()
        with suppress(OperatingError):
            await asyncio.wait_for(running, 5)


@pytest.mark.parametrize(
    ("committed_at", "from_now", "taken"),
    [(None, False, ["a", "b", "c"]), (2, False, ["c"]), (2, True, ["c"]), (1, True, ["b", "c"])],
)
async def test_a_group_begins_with_the_oldest_alert_and_goes_on_where_it_was(
    committed_at: int | None, from_now: bool, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In order, once each, and committed. Starting at the end is for the first time only: an outage skips nothing."""
    log, receiver = Log(alerts("a", "b", "c"), committed_at=committed_at), Receiver()
    async with forwarding(log, receiver, monkeypatch, from_now=from_now):
        await until(lambda: log.committed_at == 3)
    assert receiver.taken == taken


async def test_the_markers_of_transactions_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are no alerts: at rest nothing is behind, neither for the group nor on the page of metrics."""
    log, receiver = Log([*alerts("a", "b"), MARKER, *alerts("c"), MARKER, MARKER]), Receiver()
    async with forwarding(log, receiver, monkeypatch) as forwarder:
        await until(lambda: log.committed_at == 6)
        assert lags_of(forwarder._consumer, forwarder._next) == {("assay.tool.drift", 0): 0}
    assert receiver.taken == ["a", "b", "c"]


async def test_alerts_that_expired_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic begins behind the committed offset: what is gone does not pass in silence."""
    log, receiver = Log(alerts("a", "b", "c"), committed_at=0, beginning=2), Receiver()
    async with forwarding(log, receiver, monkeypatch) as forwarder:
        await until(lambda: log.committed_at == 3)
    assert forwarder.counts["expired"] == 2


async def test_a_receiver_that_is_down_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many attempts at one alert; what was before it is committed meanwhile, what is behind it waits."""
    log = Log(alerts("a", "b", "c"))
    receiver = Receiver(DELIVERED, *[DOWN] * 50)
    async with forwarding(log, receiver, monkeypatch) as forwarder:
        await until(lambda: forwarder.counts["unavailable"] >= 5)
        assert (log.committed_at, receiver.taken) == (1, ["a"])
        await until(lambda: log.committed_at == 3)
    assert (receiver.taken, forwarder.counts["unavailable"]) == (["a", "b", "c"], 50)


async def test_a_receiver_with_a_mistake_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plug-in that raises, or that answers nothing, does not end the process that serves the others."""

    class Mistaken(Receiver):
        mistakes = 3

        def write(self, alert: dict[str, Any]) -> str:
            self.mistakes -= 1
            return alert["nothing" if self.mistakes == 2 else "message"]  # type: ignore[no-any-return]

        async def send(self, view: AlertView, body: str) -> AttemptResult:
            if self.mistakes == 1:
                raise ConnectionError
            return None if self.mistakes == 0 else await super().send(view, body)  # type: ignore[return-value]

    log, receiver = Log(alerts("a", "b")), Mistaken()
    async with forwarding(log, receiver, monkeypatch) as forwarder:
        await until(lambda: log.committed_at == 2)
    assert receiver.taken == ["a", "b"]
    assert forwarder.counts["unavailable"] == 3


async def test_what_is_refused_is_buried_and_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands in the dead letters before its offset is committed."""
    log, receiver = Log([*alerts("a"), b"no alert", None, *alerts("b")]), Receiver(REFUSED)
    async with forwarding(log, receiver, monkeypatch):
        await until(lambda: log.committed_at == 4)
    assert [letter["value"] for letter in log.letters] == [log.values[0], b"no alert", None]
    assert {letter["topic"] for letter in log.letters} == {"assay.alert.dead"}
    assert receiver.taken == ["b"]


async def test_a_dead_letter_that_cannot_be_written_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The alert is not passed, and neither is what was fetched with it."""
    log = Log([*alerts("a"), b"no alert", *alerts("b")], write_errors=[KafkaConnectionError()] * 3)
    receiver = Receiver()
    async with forwarding(log, receiver, monkeypatch):
        await until(lambda: log.committed_at == 3)
    assert (len(log.letters), receiver.taken) == (1, ["a", "b"])


async def test_a_commit_that_fails_skips_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delivered is delivered; what was fetched is not lost, and the next commit covers both."""
    log = Log(alerts("a", "b"), commit_errors=[CommitFailedError()] * 2)
    receiver = Receiver()
    async with forwarding(log, receiver, monkeypatch):
        await until(lambda: log.committed_at == 2)
    assert receiver.taken == ["a", "b"]


async def test_a_coordinator_that_never_answers_does_not_stall_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client asks until it gets an answer, however long the brokers are away."""
    log, receiver, answers = Log(alerts("a")), Receiver(), asyncio.Event()
    commit = log.commit

    async def answered(offsets: dict[TopicPartition, int]) -> None:
        await answers.wait()
        await commit(offsets)

    monkeypatch.setattr(log, "commit", answered)
    monkeypatch.setattr(forward, "_GROUP_LIMIT_S", 0.01)
    async with forwarding(log, receiver, monkeypatch) as forwarder:
        await until(lambda: forwarder.failures > 2)
        assert not forwarder.ready
        answers.set()
        await until(lambda: log.committed_at == 1)
    assert receiver.taken == ["a"]


async def test_a_partition_that_went_to_somebody_else_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebalance while an alert is under way: that alert is not committed, and is delivered again."""
    moved: list[asyncio.Task[None]] = []

    def move() -> None:
        if not moved:
            moved.append(asyncio.create_task(rebalance()))

    async def rebalance() -> None:
        await log.listener.on_partitions_revoked({PLACE})
        assert log.committed_at is None
        await log.listener.on_partitions_assigned({PLACE})

    log, receiver = Log(alerts("a", "b")), Receiver()
    original = receiver.send

    async def slow(view: AlertView, body: str) -> AttemptResult:
        answer = await original(view, body)
        move()
        await asyncio.sleep(0.02)
        return answer

    receiver.send = slow  # type: ignore[method-assign]
    async with forwarding(log, receiver, monkeypatch):
        await until(lambda: log.committed_at == 2)
    assert receiver.taken == ["a", "a", "b"]


async def test_whoever_lost_the_alert_that_waited_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another member waits for the receiver from then on; this one may not get an alert for days."""
    log, receiver = Log(alerts("a")), Receiver(*[DOWN] * 10_000)
    async with forwarding(log, receiver, monkeypatch) as forwarder:
        await until(lambda: forwarder.is_waiting)
        assert not forwarder.ready
        monkeypatch.setattr(log, "assignment", frozenset)
        log.values.clear()
        await log.listener.on_partitions_revoked({PLACE})
        log.at = 0
        await until(lambda: forwarder.ready)


async def test_an_alert_that_cannot_be_written_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is buried, also if the receiver was down before."""

    class Strict(Receiver):
        def write(self, alert: dict[str, Any]) -> str:
            if not self.answers:
                raise InputError("not_an_alert", "no format takes it")
            return super().write(alert)

    log = Log(alerts("a"))
    async with forwarding(log, Strict(DOWN), monkeypatch) as forwarder:
        await until(lambda: log.committed_at == 1)
        assert (len(log.letters), forwarder.is_waiting) == (1, False)


async def test_alerts_that_expired_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if no alert comes that would move the group on, and brokers fail meanwhile."""
    log = Log([None, None], committed_at=0, beginning=2)
    placed: list[int] = []
    seek, fetch, failures = log.seek, log.getmany, [KafkaConnectionError(), KafkaConnectionError()]

    def placing(partition: TopicPartition, offset: int) -> None:
        placed.append(offset)
        seek(partition, offset)

    monkeypatch.setattr(log, "seek", placing)

    async def failing(timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Any]]:
        if failures:
            raise failures.pop()
        return await fetch(timeout_ms, max_records)

    monkeypatch.setattr(log, "getmany", failing)
    async with forwarding(log, Receiver(), monkeypatch) as forwarder:
        await until(lambda: log.committed_at == 2)
    assert len(placed) == 3
    assert forwarder.counts["expired"] == 2


async def test_brokers_that_go_on_failing_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """After ten failures in a row, so that whoever watches the process sees it."""
    log = Log(alerts("a"), commit_errors=[KafkaError() for _ in range(50)])
    monkeypatch.setattr(forward, "reading_consumer", lambda *_, **__: log)
    monkeypatch.setattr(forward, "writing_producer", lambda *_, **__: log)
    monkeypatch.setattr(part, "_PAUSE_S", 0.0)
    forwarder = Forwarder(Settings(), subscribed(Receiver()))
    with raises_code("brokers_failing", kind=OperatingError):
        await asyncio.wait_for(forwarder.run(), 5)


async def test_a_stop_gives_the_attempt_in_hand_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """An alert that is taken while the stop is asked for is committed."""
    log = Log(alerts("a", "b"))
    receiver = Receiver()
    async with forwarding(log, receiver, monkeypatch) as forwarder:
        original = receiver.send

        async def slow(view: AlertView, body: str) -> AttemptResult:
            forwarder.stop()
            await asyncio.sleep(0.05)
            return await original(view, body)

        receiver.send = slow  # type: ignore[method-assign]
        await until(lambda: log.committed_at is not None)
    assert (receiver.taken, log.committed_at) == (["a"], 1)


async def test_what_becomes_of_alerts_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the names of the metrics' labels, and how far behind it is."""
    registry = CollectorRegistry()
    metrics = PrometheusStage(Metrics(registry), "forward")
    log, receiver = Log(alerts("a", "b", "c"), committed_at=0, beginning=1), Receiver(DOWN, REFUSED)

    def value(name: str, **labels: str) -> float | None:
        sample: float | None = registry.get_sample_value(f"assay_stream_{name}", {"stage": "forward", **labels})
        return sample

    async with forwarding(log, receiver, monkeypatch, metrics=metrics) as forwarder:
        assert value("outputs_total", what="dead_letter") == 0, "to Prometheus, from nothing to 1 is no increase"
        await until(lambda: log.committed_at == 3)
        forwarder.note_gauges()
    attempts = [value("outputs_total", what=f"attempt:{what}") for what in ("delivered", "unavailable", "refused")]
    assert attempts == [1, 1, 1]
    assert value("outputs_total", what="dead_letter") == 1
    assert (value("records_read_total"), value("input_expired_total")) == (2, 1)
    assert value("lag_records", topic=PLACE.topic, partition="0") == 0


async def test_what_a_receiver_does_not_want_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not sent, is counted, and its offset is committed with the others."""
    log, receiver = Log(alerts("a", "b", "c")), Receiver()
    wants = lambda view: view.fact("mcp_tool_name") != "b"  # noqa: E731 - one line says it
    async with forwarding(log, receiver, monkeypatch, wants=wants) as forwarder:
        await until(lambda: log.committed_at == 3)
    assert receiver.taken == ["a", "c"]
    assert forwarder.counts["not_wanted"] == 1


async def test_a_new_receiver_can_start_with_the_next_alert(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there already is passed over, and the place is committed before anything arrives."""
    log, receiver = Log(alerts("a", "b")), Receiver()
    async with forwarding(log, receiver, monkeypatch, from_now=True):
        await until(lambda: log.committed_at == 2)
        log.values += alerts("c")
        await until(lambda: log.committed_at == 3)
    assert receiver.taken == ["c"]


async def test_where_a_new_receiver_starts_is_kept_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash in the first fetch moves it past no alert."""
    log, hung = Log(alerts("a", "b")), asyncio.Event()

    async def never(**how: Any) -> dict[TopicPartition, list[Any]]:
        await hung.wait()
        return {}

    monkeypatch.setattr(log, "getmany", never)
    async with forwarding(log, Receiver(), monkeypatch, from_now=True):
        await until(lambda: log.committed_at == 2)
        hung.set()


async def test_a_wait_that_was_asked_for_is_no_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """A health check would end the process, and the next one would ask the receiver again at once."""
    asked = AttemptResult(outcome=DeliveryOutcome.UNAVAILABLE, code="http_429", retry_after_ms=60_000)
    async with forwarding(Log(alerts("a")), Receiver(asked), monkeypatch) as forwarder:
        await until(lambda: forwarder.is_waiting)
        await asyncio.sleep(0.05)
        assert forwarder.still_s == 0.0


class TimelessSelector(selectors.DefaultSelector):
    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing is left that could happen"
        self.now_s += timeout
        return super().select(0)


def in_no_time(run: Callable[[Callable[[], float]], Coroutine[Any, Any, None]]) -> None:
    selector = TimelessSelector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now_s  # type: ignore[method-assign]
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(run(loop.time))


def test_a_receiver_that_is_down_for_an_hour_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, on a clock of its own: 125 attempts, one fetch in hand, and all in order within half a minute after.

    The waits are 0.5, 1, 2, 4, 8 and 16 s, then 30 s each: the 126th attempt, at 3,601.5 s, is the first after it.
    """
    outage_s, tools = 3_600.0, [f"tool-{n}" for n in range(360)]
    log, fetches, attempts = Log([], beginning=0), list[int](), list[float]()

    async def bounded(timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Any]]:
        await asyncio.sleep(timeout_ms / 1_000)
        assert log.at is not None
        start, log.at = log.at, min(len(log.values), log.at + max_records)
        fetches.append(log.at - start)
        messages = [FetchedRecord(PLACE.topic, 0, n, 0, b"k", log.values[n], ()) for n in range(start, log.at)]
        return {PLACE: messages} if messages else {}

    async def hour(clock: Callable[[], float]) -> None:
        class Away(Receiver):
            async def send(self, view: AlertView, body: str) -> AttemptResult:
                attempts.append(clock())
                self.answers = [DOWN] if clock() < outage_s else []
                return await super().send(view, body)

        receiver = Away()
        monkeypatch.setattr(forward, "time", SimpleNamespace(monotonic=clock))
        monkeypatch.setattr(forward, "reading_consumer", lambda *_, **__: log)
        monkeypatch.setattr(forward, "writing_producer", lambda *_, **__: log)
        monkeypatch.setattr(log, "getmany", bounded)
        forwarder = Forwarder(Settings(), subscribed(receiver))
        running = asyncio.create_task(forwarder.run())
        written = alerts(*tools)
        log.values += written[:1]
        for alert in written[1:]:
            # One every ten seconds, while nobody takes any.
            await asyncio.sleep(10)
            log.values.append(alert)
        assert (receiver.taken, log.committed_at, sum(fetches)) == ([], None, 1), "what waits stays in Kafka"
        async with asyncio.timeout(outage_s):
            while log.committed_at != len(tools):
                await asyncio.sleep(0.1)
        forwarder.stop()
        await running
        assert receiver.taken == tools
        assert forwarder.counts["unavailable"] == 125

    in_no_time(hour)
    waited = [attempt for attempt in attempts if attempt < outage_s]
    assert len(waited) == 125
    assert 0 <= attempts[125] - outage_s <= WAIT_LONGEST_MS / 1_000
    assert max(fetches) <= 100
    assert attempts[-1] - attempts[125] < 10, "and then without a wait between them"
