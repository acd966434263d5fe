"""The process of a worker, a sealer or a forwarder: its parts side by side, its pages, and how it ends.

1. Reach the brokers and check the topics. Where no broker answers, the partition counts do not fit, or a later release
   has finalised its format, wait, alive and not ready, until that has changed: a restart changes nothing about it.
2. Build the parts, serve the pages, start Faust where there are agents, then the parts, which reach Kafka by
   themselves.
3. Stop on SIGTERM or SIGINT, when a part fails, or when one is done: parts first, then agents, then pages. Begin again
   where partitions were added.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector

from assay_stream import __version__
from assay_stream.config import Settings
from assay_stream.errors import AssayStreamError, ConfigurationError
from assay_stream.kafka.connection import open_admin
from assay_stream.kafka.finalizing import finalised_level
from assay_stream.kafka.part import BrokerWatch, Part, is_away
from assay_stream.kafka.refusals import explained
from assay_stream.kafka.stage import OUT_OF_MEMORY
from assay_stream.kafka.topics import COUNTS_DIFFER, AccessRole, Operation, check_topics, inspect_topics, require_rights
from assay_stream.limits import HTTP_LIMITS
from assay_stream.model.record import Role
from assay_stream.model.state_table import UNREADABLE
from assay_stream.observe.http.tap import Listener, serve
from assay_stream.worker.logs import configure_logs, watching_memory
from assay_stream.worker.metrics import Metrics

if TYPE_CHECKING:
    from assay_stream.worker.worker import AgentApp


HttpPage = tuple[int, dict[str, Any]]
"""An HTTP status, and the body."""


class Health:
    """What the stages of a process report.

    Args:
        stall_limit_s: how long a stage may not move before it counts as hung, seconds.
    """

    def __init__(self, *, stall_limit_s: float = math.inf) -> None:
        self.failed = False
        self._stall_limit_s = stall_limit_s
        self.parts: list[tuple[str, Part]] = []
        self._alternatives: set[str] = set()

    def watch(self, name: str, part: Part, *, is_alternative: bool = False) -> None:
        """Watch a stage.

        Args:
            is_alternative: whether the process is ready as long as any such stage is.
        """
        self.parts.append((name, part))
        if is_alternative:
            self._alternatives.add(name)

    def liveness(self) -> HttpPage:
        stuck = self._stuck()
        is_ok = not self.failed and not stuck
        return (200 if is_ok else 503), {"ok": is_ok, "stuck": stuck}

    def readiness(self) -> HttpPage:
        stages = self.stages()
        needed = all(is_ready for name, is_ready in stages.items() if name not in self._alternatives)
        any_of = not self._alternatives or any(stages[name] for name in self._alternatives)
        is_ready = needed and any_of and not self.failed
        waiting_for = next(filter(None, (part.waiting_for for _, part in self.parts)), None)
        why = {} if waiting_for is None else {"waiting_for": waiting_for}
        return (200 if is_ready else 503), {"ready": is_ready, "stages": stages, **why}

    def stages(self) -> dict[str, bool]:
        stuck = self._stuck()
        return {name: part.ready and name not in stuck for name, part in self.parts}

    def _stuck(self) -> list[str]:
        return [name for name, part in self.parts if part.still_s > self._stall_limit_s]


_PAGES = {
    "/readyz": "ready: 200 while every stage does its work, 503 otherwise",
    "/healthz": "alive: 503 once something failed or hangs, and the process should be restarted",
    "/metrics": "metrics, for Prometheus",
}


def index_page(health: Health, version: str) -> str:
    """Return the page that says what this process is: plain HTML, of nothing that a stranger chose."""
    stages = "".join(
        f"<tr><td>{escape(name)}<td>{'ready' if is_ready else 'not ready'}"
        for name, is_ready in health.stages().items()
    )
    links = "".join(f'<li><a href="{path}">{path}</a> {escape(text)}' for path, text in _PAGES.items())
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>assay-stream</title>'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">'
        "<style>body{font:1rem/1.5 system-ui;margin:2rem;max-width:40rem}td{padding-right:2rem}</style>"
        f"<h1>assay-stream {escape(version)}</h1>"
        "<p>A process of assay-stream, which records which tool definition each MCP tool call used. It runs:</p>"
        f"<table><thead><tr><th align=left>part<th align=left>now<tbody>{stages}</table>"
        f"<p>Its pages:</p><ul>{links}</ul>"
        "<p>In a terminal: <code>assay-stream alerts list</code>, <code>assay-stream --help</code>.</p></html>"
    )


async def _nothing() -> dict[str, Any]:
    return {}


def health_pages(
    health: Health, metrics: Callable[[], bytes], *, look: Callable[[], Awaitable[dict[str, Any]]] = _nothing
) -> web.Application:
    """Return the pages, for aiohttp to serve.

    Args:
        metrics: the text of ``/metrics``.
        look: asked before every page but ``/healthz``; what it returns stands in ``/readyz`` too.
    """

    async def index(_: web.Request) -> web.Response:
        await look()
        return web.Response(text=index_page(health, __version__), content_type="text/html")

    async def healthz(_: web.Request) -> web.Response:
        status, body = health.liveness()
        return web.json_response(body, status=status)

    async def readyz(_: web.Request) -> web.Response:
        more = await look()
        status, body = health.readiness()
        return web.json_response({**body, **more}, status=status)

    async def text(_: web.Request) -> web.Response:
        await look()
        return web.Response(body=metrics(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    for path, page in {"/": index, "/healthz": healthz, "/readyz": readyz, "/metrics": text}.items():
        app.router.add_get(path, page)
    return app


_log = structlog.get_logger(__name__)

_CUT_SHORT = 3
_STDERR = 2
_AWAITED_LOOK_S = 5.0
_BEGINNING_PAUSE_S = 1.0
_AGAIN = "partitions_added"

PartitionCounts = Mapping[Role, int]


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
        self.was_told_to_stop = False
        """Whether it ends because of a signal: whatever fails meanwhile, it does not begin again."""
        self.health = Health(stall_limit_s=settings.stall_limit_s)
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.metrics = Metrics(registry)
        producer = settings.producer()
        self.metrics.build_info.labels(producer.version, producer.git).set(1)
        self.format_level = 1  # as finalised
        self._app: AgentApp | None = None
        self.is_running = False

    @property
    def app(self) -> AgentApp:
        """What runs agents: started with the host, if it was asked for."""
        if self._app is None:
            from assay_stream.worker.worker import AgentApp  # only stages need Faust

            self._app = AgentApp(self._settings.group_prefix, store="memory://", web_enabled=False)
        return self._app

    def add(self, name: str, part: Part, *, is_alternative: bool = False) -> None:
        """Run a part; other arguments are those of ``Health.watch``."""
        self.health.watch(name, part, is_alternative=is_alternative)
        self.metrics.on_scrape(part.note_gauges)

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
                loop.add_signal_handler(number, self._told_to_stop)
            running = []
            try:
                if self._app is not None:
                    await self._app.start()
                for name, part in self.health.parts:
                    running.append(asyncio.create_task(part.run(), name=name))
                    running[-1].add_done_callback(self._note_end)
                self.is_running = True
                await self._stopping.wait()
            finally:
                self._deadline.start()
                # The later ones may need the earlier.
                for (_, part), task in reversed(list(zip(self.health.parts, running, strict=False))):
                    part.stop()
                    await asyncio.wait([task])
                if self._app is not None:
                    await self._app.stop()
                end.set()
                if serving is not None:
                    await asyncio.wait([serving])

    def _told_to_stop(self) -> None:
        self.was_told_to_stop = True
        self._stopping.set()

    def fail(self, error: BaseException) -> None:
        # Our own errors quote no input; messages of other errors may.
        reason = explained(error)
        # First: if memory has run out, the next steps may fail too.
        self._deadline.start(None if reason is None else str(reason))
        self.failure = self.failure or error
        self.health.failed = True
        _log.error("worker_stopping", error=None if reason is None else str(reason), kind=type(error).__name__)
        self._stopping.set()

    def _fail_for_memory(self, loop: asyncio.AbstractEventLoop) -> None:
        # First: the rest may take memory.
        self._deadline.start(str(OUT_OF_MEMORY))
        loop.call_soon_threadsafe(self.fail, OUT_OF_MEMORY)

    def _note_end(self, running: asyncio.Task[None]) -> None:
        # Nobody cancels parts: a process that went on without one would look alive and do nothing.
        error = asyncio.CancelledError() if running.cancelled() else running.exception()
        if error is None:
            self._stopping.set()
        else:
            self.fail(error)

    async def _serve(self, port: int, end: asyncio.Event) -> asyncio.Task[None]:
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
            serve(pages, Listener(host=address, port=port), HTTP_LIMITS, ready.set_result, end)
        )
        await asyncio.wait((serving, ready), return_when=asyncio.FIRST_COMPLETED)
        if serving.done() and isinstance(failure := serving.exception(), ConfigurationError):
            raise ConfigurationError(
                "web_port_taken",
                f"{failure.message}: choose another ASSAY_STREAM_WEB_PORT (--web-port) for each process of a machine",
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
            asyncio.run(_run(host, build, count, once=once, unreadable=unreadable))
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


async def _stay() -> PartitionCounts:
    # Out of the consumer group, so that workers that can read it take over. A new start would read it again.
    await asyncio.Event().wait()
    return {}


async def _run(host: Host, build: Build, count: _Count, *, once: bool, unreadable: str | None) -> None:
    awaited: _Count = _stay
    why = unreadable
    if unreadable is None:
        try:
            build(host, await count())
        except AssayStreamError as error:
            if once or not _may_be_awaited(error):
                raise
            awaited, why = count, str(error)
    if why is not None:
        _log.warning("waiting_to_start", why=why)
        host.add("start", _Awaited(awaited, why))
    await host.run()


def _may_be_awaited(error: AssayStreamError) -> bool:
    """Return True if a restart would change nothing: brokers are away, partition counts do not fit, or state is of a
    form that this release does not know."""
    return error.code in COUNTS_DIFFER | UNREADABLE or is_away(error)


class _Awaited(Part):
    """Runs in place of all parts until what was waited for is there.

    Args:
        waiting_for: why ``count`` failed, or would.
    """

    def __init__(self, count: _Count, waiting_for: str) -> None:
        super().__init__()
        self._count = count
        self.waiting_for = waiting_for

    async def run(self) -> None:
        while not self.stopping.is_set():
            try:
                if await self.until_stopped(self._count()) is not None:
                    raise ConfigurationError(_AGAIN, "what was waited for is there: the process begins again")
            except AssayStreamError as error:
                if not _may_be_awaited(error):
                    raise
                if str(error) != self.waiting_for:
                    self.waiting_for = str(error)
                    _log.warning("waiting_to_start", why=self.waiting_for)
            await self.pause(_AWAITED_LOOK_S)


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
