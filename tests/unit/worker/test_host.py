"""The process that hosts stages, a sealer or a forwarder: its pages, its ends, and its bounds."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import AsyncMock

import aiohttp
import pytest
from aiokafka.errors import KafkaConnectionError
from structlog.testing import capture_logs

from assay_stream import __version__
from assay_stream.config import Settings, load_settings
from assay_stream.errors import AssayStreamError, ConfigurationError, IntegrityError, OperatingError
from assay_stream.kafka.part import Part
from assay_stream.kafka.runner import Runner
from assay_stream.kafka.stage import Topology
from assay_stream.kafka.topics import STAGES, AccessRole, TopicState, topic_names, topic_table
from assay_stream.model.record import Role
from assay_stream.worker import host as module
from assay_stream.worker.host import Deadline, Host, PartitionCounts, run_host
from assay_stream.worker.telemetry import Health, PrometheusStage, index_page
from assay_stream.worker.worker import add_stages, join_stage
from tests.support.deployment import free_port
from tests.support.errors import raises_code


class Done(Part):
    is_ready = True

    def __init__(self, error: BaseException | None = None, *, ends: bool = False) -> None:
        super().__init__()
        self._error = error
        if ends or error is not None:
            self.stop()

    async def run(self) -> None:
        await self.stopping.wait()
        if self._error is not None:
            raise self._error


def listens(port: int | None) -> bool:
    """Whether a connection is accepted there; where there is no port, nothing has to."""
    with socket.socket() as probe:
        return port is None or probe.connect_ex(("127.0.0.1", port)) == 0


@asynccontextmanager
async def hosted(part: Done, *, web_port: int | None = None) -> AsyncIterator[Host]:
    settings = Settings(bootstrap_servers=f"127.0.0.1:{free_port()}", stall_limit_s=60)
    deadline = Deadline(60)
    host = Host(settings, deadline, web_port=web_port)

    async def begin() -> bool:
        host.add("seal", part)
        return True

    running = asyncio.create_task(host.run_parts(begin))
    try:
        while not (host.is_running and listens(web_port)) and not running.done():
            await asyncio.sleep(0.01)
        yield host
    finally:
        part.stop()
        try:
            await asyncio.wait_for(running, 20)
        finally:
            deadline.cancel()


async def test_the_pages_are_served_until_it_ends() -> None:
    """Brokers that do not answer make it unready, and nothing else; a part that hangs is named."""
    part, port = Done(), free_port()
    url = f"http://127.0.0.1:{port}"
    async with hosted(part, web_port=port) as host, aiohttp.ClientSession() as client:
        metrics = PrometheusStage(host.metrics, "seal")
        host.metrics.on_scrape(lambda: metrics.measure("state_entries", 7))
        metrics.done(3, {"checkpoint": 1})
        assert await (await client.get(f"{url}/healthz")).json() == {"ok": True, "stuck": []}
        ready = await client.get(f"{url}/readyz")
        assert (ready.status, (await ready.json())["stages"]) == (503, {"seal": True, "brokers": False})
        index = await client.get(f"{url}/")
        assert index.headers["content-type"].startswith("text/html")
        text = await index.text()
        assert "<td>seal<td>ready" in text
        assert "<td>brokers<td>not ready" in text
        for path in re.findall(r'href="([^"]+)"', text):
            assert (await client.get(url + path)).status in (200, 503)
        page = await client.get(f"{url}/metrics")
        text = await page.text()
        assert 'assay_stream_build_info{git="' in text
        assert page.headers["content-type"].startswith("text/plain")
        for line in (
            'assay_stream_state_entries{stage="seal"} 7.0',
            'assay_stream_records_read_total{stage="seal"} 3.0',
            'assay_stream_outputs_total{stage="seal",what="checkpoint"} 1.0',
            'assay_stream_stage_ready{stage="brokers"} 0.0',
        ):
            assert line in text
        assert float(re.findall(r"^assay_stream_brokers_silent_seconds (\S+)", text, re.MULTILINE)[0]) > 0
        part.moved_s = time.monotonic() - 61
        answer = await client.get(f"{url}/healthz")
        assert (answer.status, (await answer.json())["stuck"]) == (503, ["seal"])
    async with aiohttp.ClientSession() as client:
        with pytest.raises(aiohttp.ClientConnectionError):
            await client.get(f"{url}/healthz")


async def test_a_port_that_is_taken_is_named() -> None:
    """With the setting to change, before anything starts."""
    port = free_port()
    async with hosted(Done(), web_port=port):
        with raises_code("web_port_taken", kind=ConfigurationError, match="--web-port"):
            async with hosted(Done(), web_port=port):
                raise AssertionError("the port is taken")


async def test_pages_that_fail_end_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, not when it is stopped: nobody could see whether it works."""
    error = OSError("no more")

    async def serve(
        _app: object, _listener: object, _limits: object, ready: Callable[[int], object], *_: object
    ) -> None:
        ready(0)
        await asyncio.sleep(0.05)
        raise error

    monkeypatch.setattr(module, "serve", serve)
    async with asyncio.timeout(20), hosted(Done(), web_port=free_port()) as host:
        pass
    assert host.failure is error


async def test_a_part_that_is_done_ends_the_process() -> None:
    async with asyncio.timeout(20), hosted(Done(ends=True)) as host:
        pass
    assert host.failure is None


async def test_a_part_that_fails_ends_the_process_with_its_error() -> None:
    """Which says so on its pages meanwhile."""
    error = OperatingError("brokers_failing", "why")
    async with asyncio.timeout(20), hosted(Done(error)) as host:
        pass
    assert host.failure is error
    assert host.health.liveness()[0] == 503


class Cancelled(Done):
    async def run(self) -> None:
        raise asyncio.CancelledError


async def test_a_part_that_is_cancelled_ends_the_process() -> None:
    """Nobody cancels parts: what a client passed on must not leave a process that looks alive and does nothing."""
    async with asyncio.timeout(20), hosted(Cancelled()) as host:
        pass
    assert isinstance(host.failure, asyncio.CancelledError)
    assert host.health.liveness()[0] == 503


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_process(number: signal.Signals) -> None:
    """Its parts finish what they have in hand, and the log says who ended it, and that it ended well."""
    part = Done()
    with capture_logs() as lines:
        async with hosted(part):
            os.kill(os.getpid(), number)
            await asyncio.wait_for(part.stopping.wait(), 10)
    assert [(line["event"], line.get("signal")) for line in lines] == [("told_to_stop", number.name), ("stopped", None)]


async def test_the_setting_reaches_the_join() -> None:
    """ASSAY_STREAM_CALL_PROFILE is what the join holds every call to."""
    for profile in ("assay", "handshake"):
        deadline = Deadline(60)
        host = Host(load_settings(call_profile=profile), deadline, web_port=None)
        topology = Topology(load_settings(call_profile=profile), dict.fromkeys(Role, 1))
        assert join_stage(host, topology)._view.need(0).call_profile == profile
        deadline.cancel()


async def test_alerts_give_way_to_the_other_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Runner, "has_work", True)
    deadline = Deadline(60)
    host = Host(load_settings(), deadline, web_port=None)
    add_stages(host, Topology(load_settings(), dict.fromkeys(Role, 1)), frozenset(STAGES))
    gives_way = {name: part.gives_way for name, part in host.health.parts if isinstance(part, Runner)}
    assert gives_way == {name: name == "alerts" for name in STAGES}
    deadline.cancel()


def test_a_call_topic_that_grows_alone_does_not_end_the_process(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It stays alive and not ready, says which topics must grow and how, and goes on by itself when they have."""
    port = free_port()
    settings = Settings(bootstrap_servers=f"127.0.0.1:{free_port()}", web_port=port, call_partitions=8)
    looks: list[dict[Role, int]] = []
    steps = [{}, *[{Role.CALLS: 12}] * 3, *[{Role.CALLS: 12, Role.EVIDENCE: 12}] * 2]
    pages: list[tuple[int, str]] = []
    counted: list[int] = []

    async def inspect(_admin: object, _settings: Settings, *, agents: str = "") -> list[TopicState]:
        looks.append(steps[len(looks)])
        if len(looks) == 4:
            while not listens(port):
                await asyncio.sleep(0.01)
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
                for path in ("/healthz", "/readyz"):
                    async with client.get(path) as page:
                        pages.append((page.status, await page.text()))
        return [
            TopicState(spec=spec, partitions=looks[-1].get(spec.role, spec.partitions), differing={})
            for spec in topic_table(settings)
        ]

    def build(host: Host, counts: PartitionCounts) -> None:
        counted.append(counts[Role.CALLS])
        added = ConfigurationError("partitions_added", "more than before")
        host.add("join", Done(added) if len(counted) == 1 else Done(ends=True))

    with_topics(monkeypatch, inspect)
    monkeypatch.setattr(module, "_AWAITED_LOOK_S", 0.01)
    run_host(settings, {Role.CALLS, Role.EVIDENCE}, [AccessRole.JOIN], build, web_port=port)
    assert counted == [8, 12]
    assert [status for status, _ in pages] == [200, 503]
    command = f"--alter --topic {topic_names(settings)[Role.EVIDENCE]} --partitions 12"
    assert command in json.loads(pages[1][1])["waiting_for"]
    assert command in "".join(capfd.readouterr())


def test_brokers_that_go_away_while_a_part_starts_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """They had answered when the topics were looked at. Each start is logged, with what starts."""
    settings = Settings(bootstrap_servers=f"127.0.0.1:{free_port()}")
    parts = [Done(KafkaConnectionError()), Done(ends=True)]
    with_topics(monkeypatch)

    def build(host: Host, _counts: PartitionCounts) -> None:
        host.add("join", parts.pop(0))

    with capture_logs() as lines:
        run_host(settings, {Role.CALLS}, [AccessRole.JOIN], build, web_port=None)
    assert not parts
    starts = [(line["version"], line["parts"]) for line in lines if line["event"] == "starting"]
    assert starts == [(__version__, ["join"])] * 2


class FailsAtItsEnd(Done):
    """Told to stop, it finds that it cannot go on."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._failure = error

    async def run(self) -> None:
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGTERM)
        await super().run()
        raise self._failure


@pytest.mark.parametrize("error", [KafkaConnectionError(), IntegrityError("unknown_finding", "of a later release")])
def test_a_process_that_is_told_to_stop_does_not_begin_again(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """However its parts fail meanwhile: brokers may go away together with it."""
    parts = [FailsAtItsEnd(error), Done(ends=True)]
    with_topics(monkeypatch)

    def build(host: Host, _counts: PartitionCounts) -> None:
        host.add("join", parts.pop(0))

    settings = Settings(bootstrap_servers=f"127.0.0.1:{free_port()}")
    with pytest.raises(AssayStreamError):
        run_host(settings, {Role.CALLS}, [AccessRole.JOIN], build, web_port=None)
    assert len(parts) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_waits_for_brokers_ends_when_told_to(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """At once, and without an error: the first process of a container gets no signal that it does not handle."""

    async def never(_admin: object, _settings: Settings, *, agents: str = "") -> list[TopicState]:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), number)
        await asyncio.sleep(20)
        raise AssertionError("it went on waiting")

    def build(_host: Host, _counts: PartitionCounts) -> None:
        raise AssertionError("it was told to stop")

    with_topics(monkeypatch, never)
    before = signal.signal(number, lambda *_: None)  # the default would end the tests
    try:
        run_host(Settings(), {Role.CALLS}, [AccessRole.JOIN], build, web_port=None)
    finally:
        signal.signal(number, before)


async def as_specified(_admin: object, settings: Settings, *, agents: str = "") -> list[TopicState]:
    return [TopicState(spec=spec, partitions=spec.partitions, differing={}) for spec in topic_table(settings)]


def with_topics(monkeypatch: pytest.MonkeyPatch, inspect: Callable[..., object] = as_specified) -> None:
    monkeypatch.setattr(module, "inspect_topics", inspect)
    monkeypatch.setattr(module, "require_rights", AsyncMock())
    monkeypatch.setattr("assay_stream.kafka.connection.start_admin", an_admin)
    monkeypatch.setattr(module, "configure_logs", lambda _settings: None)


async def an_admin(_settings: Settings, *, waiting: object) -> AsyncMock:
    return AsyncMock()


STUCK = """
import asyncio
from assay_stream.config import load_settings
from assay_stream.kafka.part import Part
from assay_stream.worker.host import Deadline, Host

class Stuck(Part):
    async def run(self):
        print("ready", flush=True)
        await asyncio.sleep(60)

async def main():
    host = Host(load_settings(), Deadline(1), web_port=None)

    async def begin():
        host.add("stuck", Stuck())
        return True

    await host.run_parts(begin)

asyncio.run(main())
"""


def test_a_part_that_does_not_end_is_cut_short() -> None:
    """With exit code 3, once the time is up."""
    with subprocess.Popen([sys.executable, "-c", STUCK], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 3


def test_a_deadline_that_is_called_off_leaves_no_thread() -> None:
    before = threading.active_count()
    for starts in (False, True):
        deadline = Deadline(60)
        if starts:
            deadline.start()
        deadline.cancel()
    until_s = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < until_s:
        time.sleep(0.01)
    assert threading.active_count() <= before


LEFT_BEHIND = """
import os, sys, threading
from assay_stream.worker.host import Deadline

children = []
for wanted in ("thread", "start thread", "start", ""):
    if (child := os.fork()) == 0:
        deadline = Deadline(1)
        if "start" in wanted:
            deadline.start()
        if "thread" in wanted:
            threading.Thread(target=threading.Event().wait, args=(30,)).start()
        deadline.settle()
        break
    children.append(child)
else:
    print(*(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""


def test_a_thread_that_is_left_behind_does_not_keep_the_process() -> None:
    """Once all is done the deadline is off, unless another thread would keep the process alive."""
    done = subprocess.run([sys.executable, "-c", LEFT_BEHIND], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "3 3 0 0"


def test_a_worker_makes_no_folder(tmp_path: Path) -> None:
    """Nothing of a worker stands on disk."""
    script = STUCK.replace('print("ready", flush=True)\n        await asyncio.sleep(60)', "pass")
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=False, timeout=60)
    assert done.returncode == 0
    assert list(tmp_path.iterdir()) == []


def a_process(**still_s: float) -> Health:
    health = Health(stall_limit_s=60)
    for name, seconds in still_s.items():
        part = Done()
        part.moved_s = time.monotonic() - seconds
        health.watch(name, part)
    return health


def test_a_stage_that_moves_is_alive_and_ready() -> None:
    health = a_process(join=59.0)
    assert health.liveness() == (200, {"ok": True, "stuck": []})
    assert health.readiness() == (200, {"ready": True, "stages": {"join": True}})


def test_a_stage_that_hangs_is_neither_and_is_named() -> None:
    """Though it says itself that it is ready; the others are as they are."""
    health = a_process(join=61.0, registry=1.0)
    assert health.liveness() == (503, {"ok": False, "stuck": ["join"]})
    assert health.readiness() == (503, {"ready": False, "stages": {"join": False, "registry": True}})


def test_a_stage_that_is_not_ready_is_alive() -> None:
    """Whoever restores is not restarted for it."""
    health = a_process(alerts=5.0)
    health.parts[0][1].is_ready = False
    assert health.liveness()[0] == 200
    assert health.readiness() == (503, {"ready": False, "stages": {"alerts": False}})


def test_of_alternatives_one_is_enough() -> None:
    """One receiver that is down is named, and leaves the process ready; all of them, or what is needed, do not."""
    up = {"soc": False, "siem": True, "brokers": True}
    parts, health = {name: Done() for name in up}, Health()
    for name, part in parts.items():
        part.is_ready = up[name]
        health.watch(name, part, is_alternative=name != "brokers")
    assert health.readiness() == (200, {"ready": True, "stages": up})
    parts["siem"].is_ready = False
    assert health.readiness() == (503, {"ready": False, "stages": up | {"siem": False}})
    parts["siem"].is_ready, parts["brokers"].is_ready = True, False
    assert health.readiness() == (503, {"ready": False, "stages": up | {"brokers": False}})


def test_a_failure_is_seen_on_both_pages() -> None:
    """Also where every stage would be ready."""
    health = a_process(join=0.0)
    health.failed = True
    assert (health.liveness()[0], health.readiness()[0]) == (503, 503)


def test_the_first_page_says_what_runs_and_links_to_the_others() -> None:
    """Names are escaped, though operators and not strangers choose them."""
    page = index_page(a_process(join=0.0, **{"<b>": 61.0}), "1.2")
    assert "assay-stream 1.2" in page
    assert "<td>join<td>ready" in page
    assert "<td>&lt;b&gt;<td>not ready" in page
    assert all(f'href="/{name}"' in page for name in ("readyz", "healthz", "metrics"))
