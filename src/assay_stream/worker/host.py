"""The process of a worker, a sealer or a forwarder: it runs parts side by side, and ends within a bound.

1. Reach the brokers and check the topics. Where their partition counts do not fit, wait, alive and not ready, until
   they do: a restart changes nothing about them.
2. Build the parts, serve the pages, start Faust where there are agents, then the parts, which reach Kafka by
   themselves.
3. Stop on SIGTERM or SIGINT, when a part fails, or when one is done: parts first, then agents, then pages. Begin again
   where partitions were added.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError
from assay_stream.kafka.broker_watch import BrokerWatch
from assay_stream.kafka.connection import open_admin
from assay_stream.kafka.refusals import explained
from assay_stream.kafka.state_thread import OUT_OF_MEMORY
from assay_stream.kafka.topics import COUNTS_DIFFER, check_topics, inspect_topics
from assay_stream.limits.serving import HTTP_LIMITS
from assay_stream.model.record import Role
from assay_stream.observe.http.serving import serve
from assay_stream.observe.http.tap import Listener
from assay_stream.worker.http import Health, health_pages
from assay_stream.worker.logs import configure_logs, watching_memory
from assay_stream.worker.metrics import Metrics

if TYPE_CHECKING:
    from assay_stream.worker.channel import AgentApp

_log = structlog.get_logger(__name__)

_CUT_SHORT = 3
_STDERR = 2
_TOPICS_LOOK_S = 5.0
_AGAIN = "partitions_added"

PartitionCounts = Mapping[Role, int]


class Part(Protocol):
    """What a host runs."""

    @property
    def ready(self) -> bool:
        """Whether it does its work now."""

    async def run(self) -> None:
        pass

    def stop(self) -> None:
        """Ask it to finish what it has in hand."""


class Host:
    """The parts of one process, their health and their metrics.

    Args:
        deadline: ends the process where stopping takes too long.
        web_port: HTTP port of the pages, ``None`` for no pages.
    """

    def __init__(self, settings: Settings, deadline: Deadline, *, web_port: int | None) -> None:
        self._settings = settings
        self._deadline = deadline
        self._web_port = web_port
        self._stopping = asyncio.Event()
        self.failure: BaseException | None = None
        self.health = Health(stall_limit_s=settings.stall_limit_s)
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.metrics = Metrics(registry)
        producer = settings.producer()
        self.metrics.build_info.labels(producer.version, producer.git).set(1)
        self._app: AgentApp | None = None
        self._parts: list[tuple[str, Part]] = []
        self.is_running = False

    @property
    def app(self) -> AgentApp:
        """What runs agents: started with the host, if it was asked for."""
        if self._app is None:
            from assay_stream.worker.channel import AgentApp  # only stages need Faust

            self._app = AgentApp(self._settings.group_prefix, store="memory://", web_enabled=False)
        return self._app

    def add(
        self,
        name: str,
        part: Part,
        *,
        still_s: Callable[[], float] | None = None,
        note_gauges: Callable[[], None] | None = None,
        is_alternative: bool = False,
    ) -> None:
        """Run a part.

        Args:
            still_s: for how many seconds it has not moved, though it should.
            note_gauges: sets its gauges before metrics are read.
            is_alternative: whether the process is ready as long as any such part is.
        """
        self.health.watch(name, lambda: part.ready, still_s=still_s, is_alternative=is_alternative)
        self._parts.append((name, part))
        if note_gauges is not None:
            self.metrics.on_scrape(note_gauges)

    async def run(self) -> None:
        """Run the parts until told to stop, or until one fails or is done.

        Raises:
            ConfigurationError: ``web_port_taken``.
        """
        loop, end = asyncio.get_running_loop(), asyncio.Event()
        serving = None if self._web_port is None else await self._serve(self._web_port, end)
        # Clients log what ends their own tasks, and go on without them.
        with watching_memory(lambda: self._fail_for_memory(loop)):
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._stopping.set)
            running = []
            try:
                if self._app is not None:
                    await self._app.start()
                for name, part in self._parts:
                    running.append(asyncio.create_task(part.run(), name=name))
                    running[-1].add_done_callback(self._note_end)
                self.is_running = True
                await self._stopping.wait()
            finally:
                self._deadline.start()
                # The later ones may need the earlier.
                for (_, part), task in reversed(list(zip(self._parts, running, strict=False))):
                    part.stop()
                    await asyncio.wait([task])
                if self._app is not None:
                    await self._app.stop()
                end.set()
                if serving is not None:
                    await asyncio.wait([serving])

    def fail(self, error: BaseException) -> None:
        # Our own errors quote nothing; what others say may hold what they were given.
        told = explained(error)
        # First: whatever comes next may fail too, where memory has run out.
        self._deadline.start(None if told is None else str(told))
        self.failure = self.failure or error
        self.health.failed = True
        _log.error("worker_stopping", error=None if told is None else str(told), kind=type(error).__name__)
        self._stopping.set()

    def _fail_for_memory(self, loop: asyncio.AbstractEventLoop) -> None:
        # First: the rest may take memory.
        self._deadline.start(str(OUT_OF_MEMORY))
        loop.call_soon_threadsafe(self.fail, OUT_OF_MEMORY)

    def _note_end(self, running: asyncio.Task[None]) -> None:
        if running.cancelled():
            return
        error = running.exception()
        if error is None:
            self._stopping.set()
        else:
            self.fail(error)

    async def _serve(self, port: int, end: asyncio.Event) -> asyncio.Task[None]:
        """Serve the pages until ``end`` is set."""
        brokers = BrokerWatch(self._settings)
        metrics = self.metrics
        self.add("brokers", brokers, note_gauges=lambda: metrics.brokers_silent_seconds.set(brokers.silent_s))

        def note_ready() -> None:
            for name, is_ready in self.health.stages().items():
                metrics.stage_ready.labels(name).set(is_ready)

        metrics.on_scrape(note_ready)
        pages = health_pages(self.health, metrics.text)
        address, ready = self._settings.web_host, asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(
            serve(pages, Listener(host=address, port=port), HTTP_LIMITS, ready.set_result, end)
        )
        await asyncio.wait((serving, ready), return_when=asyncio.FIRST_COMPLETED)
        if serving.done() and isinstance(failure := serving.exception(), ConfigurationError):
            raise ConfigurationError(
                "web_port_taken",
                f"{failure.message}: choose another ASSAY_STREAM_WEB_PORT (--web-port) for each process of a machine",
            )
        serving.add_done_callback(self._note_pages_end)
        return serving

    def _note_pages_end(self, serving: asyncio.Task[None]) -> None:
        # A process without pages is not watched any more, and looks like one that hangs.
        error = None if serving.cancelled() else serving.exception()
        if error is not None:
            self.fail(error)


Build = Callable[[Host, PartitionCounts], None]


def run_host(
    settings: Settings, needed: AbstractSet[Role], build: Build, *, web_port: int | None, agents: str = ""
) -> None:
    """Run a process to its end.

    Args:
        needed: roles whose topics it reads or writes.
        build: adds the parts to the host; it is given how many partitions the topics have.
        agents: name of the users' agents whose topics it needs, if any.

    Raises:
        AssayStreamError: if it cannot start, or had to stop.
    """
    configure_logs(settings)
    has_ended = False
    while not has_ended:
        deadline = Deadline(settings.stop_limit_s)
        try:
            failure = asyncio.run(_run(settings, needed, build, deadline, web_port, agents))
        finally:
            # A thread that hangs, as in looking up a name, would keep the process alive.
            deadline.settle()
        has_ended = not isinstance(failure, ConfigurationError) or failure.code != _AGAIN
    if failure is not None:
        told = explained(failure)
        if told is None:
            raise RuntimeError("a part of the process failed without a reason of its own") from failure
        raise told from failure


async def _run(
    settings: Settings, needed: AbstractSet[Role], build: Build, deadline: Deadline, web_port: int | None, agents: str
) -> BaseException | None:
    async def count() -> PartitionCounts:
        async with open_admin(settings, waiting=lambda text: _log.warning("waiting_for_brokers", why=text)) as admin:
            return check_topics(await inspect_topics(admin, settings, agents=agents), set(needed), settings)

    host = Host(settings, deadline, web_port=web_port)
    try:
        build(host, await count())
    except ConfigurationError as error:
        if error.code not in COUNTS_DIFFER:
            raise
        host.add("topics", _TopicsAwaited(count, host.health))
    await host.run()
    return host.failure


class _TopicsAwaited:
    """Runs in place of all parts until the partition counts of the topics fit."""

    ready = False

    def __init__(self, count: Callable[[], Awaitable[PartitionCounts]], health: Health) -> None:
        self._count = count
        self._health = health
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        while not self._stopping.is_set():
            try:
                await self._count()
                raise ConfigurationError(_AGAIN, "the topics have grown: the process begins again")
            except ConfigurationError as error:
                if error.code not in COUNTS_DIFFER:
                    raise
                self._health.waiting_for = str(error)
            _log.warning("waiting_for_topics", why=self._health.waiting_for)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _TOPICS_LOOK_S)

    def stop(self) -> None:
        self._stopping.set()


class Deadline:
    """End the process when stopping takes too long. Uncommitted work is repeated by the next owner.

    Its thread is made at once: a process without memory may be unable to start one.

    Args:
        limit_s: how long stopping may take, seconds.
    """

    def __init__(self, limit_s: int) -> None:
        self._limit_s = limit_s
        self._started = threading.Event()
        self._cancelled = threading.Event()
        self._reason: str | None = None
        threading.Thread(target=self._watch, name="deadline", daemon=True).start()

    def start(self, reason: str | None = None) -> None:
        """Start the countdown; later calls change nothing."""
        if not self._started.is_set():
            self._reason = reason
            self._started.set()

    def settle(self) -> None:
        """Note that all is done. Where other threads would keep the process alive, the countdown goes on for them."""
        here = threading.current_thread()
        if any(thread is not here and not thread.daemon for thread in threading.enumerate()):
            self.start()
        else:
            self.cancel()

    def cancel(self) -> None:
        self._cancelled.set()
        self._started.set()

    def _watch(self) -> None:
        self._started.wait()
        if self._cancelled.wait(self._limit_s):
            return
        try:
            _log.error("stop_cut_short", limit_s=self._limit_s)
            if self._reason is not None:
                os.write(_STDERR, f"assay-stream: {self._reason}\n".encode())
        finally:
            # Whatever logging needs may be what is missing.
            os._exit(_CUT_SHORT)
