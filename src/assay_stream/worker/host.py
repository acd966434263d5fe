"""The process of a worker: from its checks to its end."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
from typing import Any

import faust
import structlog

from assay_stream.config import Settings
from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.kafka.connection import start_admin
from assay_stream.kafka.refusals import explained
from assay_stream.kafka.state_thread import OUT_OF_MEMORY
from assay_stream.kafka.topics import check_topics, inspect_topics
from assay_stream.model.record import Role
from assay_stream.worker.app import ROLES_OF_STAGE, WorkerBuilder
from assay_stream.worker.logs import configure_logs, on_memory_error
from assay_stream.worker.stopping import Deadline

_log = structlog.get_logger(__name__)

_GC_THRESHOLDS = (50_000, 50, 100)


class _BoundedWorker(faust.Worker):  # type: ignore[misc]
    """Stops within a bound, also where the brokers are away and the clients wait for them.

    Args:
        deadline: started when stopping begins.
    """

    def __init__(self, *args: Any, deadline: Deadline, **options: Any) -> None:
        self._deadline = deadline
        super().__init__(*args, **options)

    async def stop(self) -> None:
        self._deadline.start()
        await super().stop()


def run_worker(settings: Settings, stages: frozenset[str]) -> int:
    """Run a worker until it is told to stop, and return the process's exit code.

    Args:
        settings: the operator's settings.
        stages: which of ``registry``, ``join`` and ``alerts`` to run.

    Raises:
        AssayStreamError: where the worker cannot start, or had to stop.
    """
    configure_logs(settings)
    # A batch makes many short-lived objects and no cycles: looking for cycles every 700 of them is wasted work.
    gc.set_threshold(*_GC_THRESHOLDS)
    counts = asyncio.run(_preflight(settings, stages))
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    failures: list[BaseException] = []
    deadline = Deadline(settings.stop_limit_s)

    def fail(error: BaseException) -> None:
        # Our own errors quote nothing; what others say may hold what they were given.
        told = explained(error)
        # First: whatever comes next may fail too, where memory has run out.
        deadline.start(None if told is None else str(told))
        failures.append(error)
        builder.health.failed = True
        _log.error("worker_stopping", error=None if told is None else str(told), kind=type(error).__name__)
        stopping.append(loop.create_task(worker.stop()))

    stopping: list[asyncio.Task[None]] = []
    builder = WorkerBuilder(settings, stages, counts)
    app = builder.build(fail)
    _make_state_dir(settings, app)
    _check_port(settings)
    # Clients log what ends their own tasks, and go on without them.
    on_memory_error(lambda: loop.call_soon_threadsafe(fail, OUT_OF_MEMORY), deadline)
    worker = _BoundedWorker(
        app,
        deadline=deadline,
        loop=loop,
        override_logging=False,
        redirect_stdouts=False,
        quiet=True,
        stdout=sys.stderr,
    )
    # Faust's progress spinner writes escape codes between the log lines.
    worker.spinner = None
    code = 0
    try:
        worker.execute_from_commandline()
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else 1
    finally:
        # A thread that hangs, as in looking up a name, would keep the process alive.
        deadline.settle()
    if failures:
        told = explained(failures[0])
        if told is not None:
            raise told from failures[0]
        raise RuntimeError("a stage failed without a reason of its own") from failures[0]
    return code


def _make_state_dir(settings: Settings, app: faust.App) -> None:
    """Make Faust's folders before it does: its own error would pass for a defect of ours."""
    try:
        settings.state_dir.mkdir(parents=True, exist_ok=True)
        app._create_directories()
    except OSError as error:
        raise OperatingError(
            "state_dir_unusable",
            f"ASSAY_STREAM_STATE_DIR: cannot make a folder in {settings.state_dir}: {error.strerror}. Free some "
            "space there, or name another folder.",
        ) from None


def _check_port(settings: Settings) -> None:
    """Try the port before Faust does: its own error would pass for a defect of ours."""
    family = socket.AF_INET6 if ":" in settings.web_host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.web_host, settings.web_port))
        except OSError as error:
            raise ConfigurationError(
                "web_port_taken",
                f"cannot listen on {settings.web_host}:{settings.web_port} ({error.strerror}): choose another "
                "ASSAY_STREAM_WEB_PORT (--web-port) for each worker of a machine",
            ) from None


async def _preflight(settings: Settings, stages: frozenset[str]) -> dict[Role, int]:
    """Reach the brokers and check the topics before anything starts."""
    admin = await start_admin(settings, waiting=lambda text: _log.warning("waiting_for_brokers", why=text))
    try:
        needed = set().union(*(ROLES_OF_STAGE[stage] for stage in stages))
        return check_topics(await inspect_topics(admin, settings), needed)
    finally:
        await admin.close()
