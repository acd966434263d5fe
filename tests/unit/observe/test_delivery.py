"""What the client needs of Kafka."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import KafkaTimeoutError, MessageSizeTooLargeError

from assay_stream.kafka.publishing import disconnect, is_too_large, kafka_producer, send_all
from assay_stream.model.record import TOPIC_NAMES, Role, murmur2_partition
from tests.support.producers import FakeProducer, Sent
from tests.unit.observe.test_events import a_call


def test_aiokafkas_errors_of_size_are_known_by_name() -> None:
    """So that nothing of it is imported before it is needed."""
    assert is_too_large(MessageSizeTooLargeError())
    assert not is_too_large(KafkaTimeoutError())


async def test_the_producer_partitions_as_the_worker_expects() -> None:
    producer = kafka_producer({"bootstrap_servers": "127.0.0.1:9"})
    try:
        partitioner = producer._partitioner
        for key in (b"the-server", b"a", b"", "Zürich".encode()):
            assert partitioner(key, list(range(7)), list(range(7))) == murmur2_partition(key, 7)
    finally:
        await producer.stop()


class StuckProducer(FakeProducer):
    def __init__(self) -> None:
        super().__init__(Sent())
        self.client = self
        self.closed = False

    async def stop(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        self.closed = True


async def test_a_producer_that_cannot_stop_is_let_go_in_time_with_its_connections() -> None:
    stuck = StuckProducer()
    async with asyncio.timeout(5):
        await disconnect(stuck)
    assert stuck.closed


ROOT = Path(__file__).resolve().parents[3]

BEGIN = """
import asyncio, os, sys, threading, time
from datetime import UTC, datetime
from assay_stream.observe import ObservationPublisher, Vantage, call_event

def a_call():
    who, what = Vantage(server_id="s", observer_id="o"), {"tool_name": "echo", "tool_call_id": "c"}
    at = {"event_id": "e", "observed_at": datetime.now(UTC)}
    return call_event(who, decision="allow", reason_code="forwarded", **what, **at)

class Producer:
    async def start(self):
        # As aiokafka does: a name is looked up in asyncio's thread pool.
        await asyncio.get_running_loop().getaddrinfo("localhost", 1)
        await asyncio.sleep(0.2)
        if "absent" in sys.argv:
            raise OSError("no broker")

    async def stop(self):
        pass

    async def send(self, topic, **record):
        os.write(1, f"{os.getpid()} {topic}\\n".encode())
        future = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

publisher = ObservationPublisher({}, producer_factory=Producer)
"""


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BEGIN + script, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def delivered(done: subprocess.CompletedProcess[str]) -> int:
    assert "Traceback" not in done.stderr, done.stderr
    return len(done.stdout.splitlines())


class SpreadingProducer(FakeProducer):
    """Eight partitions of calls, two of everything else, unless told otherwise; notes where records go."""

    def __init__(self, calls: int = 8) -> None:
        super().__init__(Sent())
        self.calls = calls
        self.partitions: list[int | None] = []

    async def partitions_for(self, topic: str, /) -> set[int]:
        return set(range(self.calls if topic == TOPIC_NAMES[Role.CALLS] else 2))

    async def send(self, topic: str, **record: Any) -> Awaitable[Any]:
        assert topic == TOPIC_NAMES[Role.CALLS]
        self.partitions.append(record.get("partition"))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future


@pytest.mark.parametrize(("spread", "wanted"), [(2, 2), (4, 4), (99, 4)])
async def test_calls_of_a_hot_server_are_spread_over_its_own_partitions(spread: int, wanted: int) -> None:
    """All of them are equal modulo the partitions of the bindings; the same call goes to the same again."""
    producer, calls = SpreadingProducer(), [a_call(tool_name=f"tool-{number}") for number in range(60)]
    await send_all(producer, TOPIC_NAMES, [*calls, *calls], call_spread=spread)
    chosen = producer.partitions
    assert chosen[:60] == chosen[60:]
    assert len(set(chosen)) == wanted
    assert {(number or 0) % 2 for number in chosen} == {murmur2_partition(calls[0].key, 2)}


@pytest.mark.parametrize(("spread", "partitions"), [(1, 8), (4, 7), (4, 2)])
async def test_calls_are_spread_only_where_asked_and_where_the_counts_fit(spread: int, partitions: int) -> None:
    """Otherwise the key alone names the partition."""
    producer = SpreadingProducer(partitions)
    await send_all(
        producer, TOPIC_NAMES, [a_call(tool_name=f"tool-{number}") for number in range(9)], call_spread=spread
    )
    assert set(producer.partitions) == {None}


ENDINGS = {
    "the script just ends": ("for _ in range(3): publisher.publish(a_call())", 0, 3),
    "an exit code": ("publisher.publish(a_call())\nsys.exit(3)", 3, 1),
    "an exit": ("publisher.publish(a_call())\nraise SystemExit(3)", 3, 1),
    "a thread that outlives the script": ("threading.Thread(target=lambda: publisher.publish(a_call())).start()", 0, 1),
    "closed twice": (
        "publisher.publish(a_call())\npublisher.close(timeout_ms=5_000)\npublisher.close()\n"
        "assert publisher.stats.delivered == 1 and not publisher.stats.queued\n"
        "assert not publisher.publish(a_call())",
        0,
        1,
    ),
}


@pytest.mark.parametrize("how", ENDINGS)
def test_what_was_published_is_delivered_however_a_script_ends(how: str) -> None:
    """No connection stands yet when the last line is done, and the exit code is the script's."""
    script, code, count = ENDINGS[how]
    done = run("publisher.start()\n" + script)
    assert (done.returncode, delivered(done)) == (code, count), done.stderr


def test_an_uncaught_error_does_not_lose_what_came_before() -> None:
    """The observation of the call that crashed the proxy is what one wants to have."""
    done = run("publisher.start()\npublisher.publish(a_call())\nraise ValueError('x')")
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 1


def test_an_absent_broker_does_not_hold_an_exit_up_for_long() -> None:
    """The process ends within the limit and the time to let go, and says what is lost."""
    last_line = "print(time.monotonic(), file=sys.stderr, flush=True)"
    done = run(f"publisher.start()\npublisher.publish(a_call())\n{last_line}", "absent")
    ended_s = time.monotonic()
    assert delivered(done) == 0
    assert "1 observation could not be delivered" in done.stderr
    assert ended_s - float(done.stderr.split(maxsplit=1)[0]) < 15


def test_a_publisher_never_started_says_what_it_dropped() -> None:
    done = run("publisher.publish(a_call())")
    assert delivered(done) == 0
    assert "1 observation could not be delivered" in done.stderr


def test_a_context_delivers_at_its_end() -> None:
    done = run("with publisher:\n    publisher.publish(a_call())\nassert publisher.stats.delivered == 1")
    assert (done.returncode, delivered(done)) == (0, 1), done.stderr


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork here")
def test_a_forked_child_delivers_its_own_and_no_copy() -> None:
    """One observation before the fork, one by each side after it: three in all, each once."""
    done = run(
        "publisher.start()\npublisher.publish(a_call())\nchild = os.fork()\npublisher.publish(a_call())\n"
        "if child: os.waitpid(child, 0)"
    )
    assert delivered(done) == 3
    by_process = [line.split()[0] for line in done.stdout.splitlines()]
    assert sorted(map(by_process.count, set(by_process))) == [1, 2]


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork here")
def test_a_fork_in_the_middle_of_a_lookup_leaves_the_child_able_to_look_up() -> None:
    """The C library looks names up under a lock, which a child would inherit held."""
    done = run(
        "import socket\nheld, real, begun = threading.Lock(), socket.getaddrinfo, threading.Event()\n"
        "def slow(*args, **more):\n"
        "    with held:\n        begun.set()\n        time.sleep(0.3)\n        return real(*args, **more)\n"
        "socket.getaddrinfo = slow\n"
        "publisher.start()\npublisher.publish(a_call())\nbegun.wait()\nchild = os.fork()\npublisher.publish(a_call())\n"
        "if child: os.waitpid(child, 0)"
    )
    assert delivered(done) == 3, done.stderr


def test_a_lookup_that_never_ends_does_not_hold_an_exit_up_for_long() -> None:
    done = run(
        "import socket\nsocket.getaddrinfo = lambda *args, **more: time.sleep(600)\n"
        "publisher.start()\npublisher.publish(a_call())\nprint(time.monotonic(), file=sys.stderr, flush=True)"
    )
    assert time.monotonic() - float(done.stderr.split(maxsplit=1)[0]) < 15
    assert "1 observation could not be delivered" in done.stderr
