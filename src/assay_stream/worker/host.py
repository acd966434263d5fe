"""The process of a worker, a sealer or a forwarder: its parts side by side, its pages, and how it ends.

1. Reach the brokers and check the topics. Where no broker answers, the partition counts do not fit, or a later release
   has finalised its format, serve the pages and wait, alive and not ready, until that has changed: a restart changes
   nothing about it.
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
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence, Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector

from assay_stream.config import Settings
from assay_stream.errors import AssayStreamError, ConfigurationError
from assay_stream.kafka.connection import open_admin
from assay_stream.kafka.part import BrokerWatch, Part, is_away
from assay_stream.kafka.ranges import finalised_level
from assay_stream.kafka.refusals import explained
from assay_stream.kafka.stage import OUT_OF_MEMORY
from assay_stream.kafka.topics import COUNTS_DIFFER, AccessRole, Operation, check_topics, inspect_topics, require_rights
from assay_stream.limits import HTTP_LIMITS
from assay_stream.model.record import Role
from assay_stream.model.state_table import UNREADABLE
from assay_stream.observe.http.listener import Listener, serve
from assay_stream.worker.telemetry import Health, Metrics, configure_logs, health_pages, watching_memory

if TYPE_CHECKING:
    from mode import Service  # only stages need Faust

_log = structlog.get_logger(__name__)

_CUT_SHORT = 3
_STDERR = 2
_AWAITED_LOOK_S = 5.0
_BEGINNING_PAUSE_S = 1.0
_AGAIN = "partitions_added"

PartitionCounts = Mapping[Role, int]


class Host(Part):
    """The parts of one process, their health and their metrics. Until these are built, it stands for them.

    Args:
        deadline: ends the process where stopping takes too long.
        web_port: HTTP port of the pages, ``None`` for no pages.
    """

    def __init__(self, settings: Settings, deadline: Deadline, *, web_port: int | None) -> None:
        super().__init__()
        self._settings = settings
        self._deadline = deadline
        self._web_port = web_port
        self.failure: BaseException | None = None
        self.was_told_to_stop = False
        """Whether it ends because of a signal: whatever fails meanwhile, it does not begin again."""
        self.health = Health(stall_limit_s=settings.stall_limit_s)
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.metrics = Metrics(registry)
        self.producer = settings.producer()
        self.metrics.build_info.labels(self.producer.version, self.producer.git).set(1)
        self.format_level = 1  # as finalised
        self.agents: Service | None = None
        """What runs agents: started before the parts, and stopped after them."""
        self.is_running = False
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._serving: asyncio.Task[None] | None = None
        self._end_of_pages = asyncio.Event()

    def add(self, name: str, part: Part, *, is_alternative: bool = False) -> None:
        """Run a part; other arguments are those of ``Health.watch``."""
        self.health.watch(name, part, is_alternative=is_alternative)
        self.metrics.on_scrape(part.note_gauges)

    async def run_parts(self, begin: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        """Run the parts until told to stop, or until one fails or is done.

        Args:
            begin: adds them; returns False if there is nothing to run.

        Raises:
            ConfigurationError: ``web_port_taken``.
        """
        loop = asyncio.get_running_loop()
        # The first process of a container gets no signal that it does not handle.
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told_to_stop, number.name)
        # Clients log what ends their own tasks, and go on without them.
        with watching_memory(lambda: self._fail_for_memory(loop)):
            try:
                if await begin():
                    self.health.parts[:] = [(name, part) for name, part in self.health.parts if part is not self]
                    await self._start(self.agents)
                    self.is_running = True
                    await self.stopping.wait()
            finally:
                self._deadline.start()
                # The later ones may need the earlier.
                for name, part in reversed(self.health.parts):
                    if name in self._tasks:
                        part.stop()
                        await asyncio.wait([self._tasks[name]])
                if self.agents is not None and self.agents.started:
                    await self.agents.stop()
                self._end_of_pages.set()
                if self._serving is not None:
                    await asyncio.wait([self._serving])
                if self._tasks:
                    _log.info("stopped")

    async def _start(self, agents: Service | None = None) -> None:
        """Serve the pages, and run the parts that do not run yet."""
        if self._web_port is not None and self._serving is None:
            self._serving = await self._serve(self._web_port)
        if agents is not None:
            await agents.start()
        for name, part in self.health.parts:
            if part is not self and name not in self._tasks:
                self._tasks[name] = asyncio.create_task(part.run(), name=name)
                self._tasks[name].add_done_callback(self._note_end)

    def _told_to_stop(self, by: str) -> None:
        _log.info("told_to_stop", signal=by)
        self.was_told_to_stop = True
        self._deadline.start()
        self.stop()

    async def wait_to_start(self, why: str) -> None:
        """Say what the process waits for, once in the log and meanwhile on its pages."""
        if self.waiting_for is None:
            self.health.watch("start", self)
        if why != self.waiting_for:
            _log.warning("waiting_to_start", why=why)
        self.waiting_for = why
        await self._start()

    def fail(self, error: BaseException) -> None:
        # Our own errors quote no input; messages of other errors may.
        reason = explained(error)
        # First: if memory has run out, the next steps may fail too.
        self._deadline.start(None if reason is None else str(reason))
        self.failure = self.failure or error
        self.health.failed = True
        _log.error("worker_stopping", error=None if reason is None else str(reason), kind=type(error).__name__)
        self.stop()

    def _fail_for_memory(self, loop: asyncio.AbstractEventLoop) -> None:
        # First: the rest may take memory.
        self._deadline.start(str(OUT_OF_MEMORY))
        loop.call_soon_threadsafe(self.fail, OUT_OF_MEMORY)

    def _note_end(self, running: asyncio.Task[None]) -> None:
        # Nobody cancels parts: a process that went on without one would look alive and do nothing.
        error = asyncio.CancelledError() if running.cancelled() else running.exception()
        if error is None:
            self.stop()
        else:
            self.fail(error)

    async def _serve(self, port: int) -> asyncio.Task[None]:
        brokers, metrics = BrokerWatch(self._settings), self.metrics
        self.add("brokers", brokers)

        def note_health() -> None:
            metrics.brokers_silent_seconds.set(brokers.silent_s)
            for name, is_ready in self.health.stages().items():
                metrics.stage_ready.labels(name).set(is_ready)

        metrics.on_scrape(note_health)
        pages = health_pages(self.health, metrics.text)
        address, ready = self._settings.web_host, asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(
            serve(pages, Listener(host=address, port=port), HTTP_LIMITS, ready.set_result, self._end_of_pages)
        )
        await asyncio.wait((serving, ready), return_when=asyncio.FIRST_COMPLETED)
        if serving.done() and isinstance(failure := serving.exception(), ConfigurationError):
            why = failure.message.partition(". ")[0]  # the rest names the option of other commands
            raise ConfigurationError(
                "web_port_taken",
                f"{why}: choose another ASSAY_STREAM_WEB_PORT (--web-port) for each process of a machine",
            )
        # A process without pages is not watched any more, and looks like one that hangs.
        serving.add_done_callback(self._note_end)
        return serving


Build = Callable[[Host, PartitionCounts], None]
_Count = Callable[[], Coroutine[Any, Any, PartitionCounts]]


def run_host(
    settings: Settings,
    needed: AbstractSet[Role],
    actors: Sequence[AccessRole],
    build: Build,
    *,
    web_port: int | None,
    agents: str = "",
    once: bool = False,
) -> None:
    """Run a process to its end.

    Args:
        needed: roles whose topics it reads or writes.
        actors: whose rights it needs on them.
        build: adds the parts to the host; it is given how many partitions the topics have.
        agents: name of the users' agents whose topics it needs, if any.
        once: whether it does what is there and ends: it waits for nothing, then.

    Raises:
        AssayStreamError: if it cannot start, or had to stop.
    """
    configure_logs(settings)
    has_ended, unreadable = False, None
    while not has_ended:
        deadline = Deadline(settings.stop_limit_s)
        try:
            host = Host(settings, deadline, web_port=web_port)
            count = partial(_count, host, settings, needed, actors, agents)
            asyncio.run(host.run_parts(partial(_begin, host, build, count, once=once, unreadable=unreadable)))
        finally:
            # A thread that hangs, as in looking up a name, would keep the process alive.
            deadline.settle()
        failure, ends = host.failure, once or host.was_told_to_stop
        code = failure.code if isinstance(failure, AssayStreamError) else ""
        unreadable = str(failure) if code in UNREADABLE and not ends else None
        # Brokers can go away between the look at their topics and the start of a part: that is waited for as well.
        was_away = not ends and failure is not None and is_away(failure)
        has_ended = ends or (code != _AGAIN and unreadable is None and not was_away)
        if was_away:
            time.sleep(_BEGINNING_PAUSE_S)
    if failure is not None and code != _AGAIN:
        reason = explained(failure)
        if reason is None:
            raise RuntimeError("a part of the process failed without a reason of its own") from failure
        raise reason from failure


async def _count(
    host: Host, settings: Settings, needed: AbstractSet[Role], actors: Sequence[AccessRole], agents: str
) -> PartitionCounts:
    async with open_admin(settings, waiting=lambda text: _log.warning("waiting_for_brokers", why=text)) as admin:
        await require_rights(admin, settings, actors, needed, agents)
        states = await inspect_topics(admin, settings, agents=agents)
        counts = check_topics(states, set(needed), settings)
    if Role.FORMATS in needed:
        host.format_level = await finalised_level(settings)
    # Last: while something is waited for, this is repeated every few seconds.
    if unchecked := [each.spec.name for each in states if each.spec.role in needed and not each.is_checked]:
        _log.warning("topic_settings_unchecked", topics=unchecked, right=Operation.DESCRIBE_CONFIGS.value)
    return counts


async def _begin(host: Host, build: Build, count: _Count, *, once: bool, unreadable: str | None) -> bool:
    """Add the parts once the topics are as they should be; return False if told to stop before."""
    if unreadable is not None:
        # Out of the consumer group, so that workers that can read it take over. A new start would read it again.
        await host.wait_to_start(unreadable)
        await host.stopping.wait()
    while not host.stopping.is_set():
        try:
            counts = await host.until_stopped(count())
        except AssayStreamError as error:
            # A restart would change nothing about these.
            if once or not (error.code in COUNTS_DIFFER | UNREADABLE or is_away(error)):
                raise
            await host.wait_to_start(str(error))
            await host.pause(_AWAITED_LOOK_S)
            continue
        if counts is not None:
            build(host, counts)
            names = [name for name, part in host.health.parts if part is not host]
            _log.info("starting", version=host.producer.version, commit=host.producer.git, parts=names)
            return True
    return False


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
