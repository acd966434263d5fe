"""Inspection in a process of its own: what inspects shares no interpreter with what passes.

The tap writes its notes into a pipe and never waits for it: what the other process has not taken waits within a bound,
and what does not fit is counted as not observed. That process opens the sink, too. It ends where the pipe ends, so that
it delivers what it was given even if the tap was killed. If it ends by itself, the tap goes on, counts what is not
observed, and starts it again.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import marshal
import pickle
import sys
import time
from collections import Counter, deque
from collections.abc import Callable

from assay_stream.errors import AssayStreamError, OperatingError
from assay_stream.observe.backlog import Failures
from assay_stream.observe.http.headers import HeaderFields
from assay_stream.observe.http.inspector import SIZE_BYTES, InspectionJob, Refusal, framed
from assay_stream.observe.http.watching import Missed, Note, Watched

_COMMAND = ("-P", "-c", "from assay_stream.observe.http.inspector import inspect; inspect()")
"""``-P``: what lies in the current folder is no module of ours."""

_WRITTEN_AT_ONCE_BYTES = 256 * 1_024
_FINISH_LIMIT_S = 45.0
"""Inspecting what waits, and closing the sink."""

_log = logging.getLogger(__name__)


class InspectingProcess:
    """Takes notes of exchanges to the process that inspects them. For one event loop.

    Args:
        clock_s: seconds since the epoch.
    """

    def __init__(self, job: InspectionJob, *, clock_s: Callable[[], float] = time.time) -> None:
        self._job = job
        self.cost_bytes = job.limits.exchange_cost_bytes
        self.now = clock_s
        self._missed = Missed()
        self._failures = Failures()
        self._numbers = itertools.count(1)
        self._open_exchanges: dict[int, str] = {}
        """Those that the process now running was given, with the paths of their servers."""
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._shares = _Shares()
        self._timer: asyncio.TimerHandle | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._minding: asyncio.Task[None] | None = None

    @property
    def failures(self) -> int:
        return self._failures.count

    @property
    def missed_exchanges(self) -> int:
        return self._missed.exchanges

    @property
    def is_running(self) -> bool:
        """Whether there is a process that inspects."""
        return self._process is not None

    async def start(self) -> None:
        """Start the process, and wait until it has opened its sink.

        Raises:
            AssayStreamError: why it could not.
        """
        self._process = await self._started()
        self._minding = asyncio.create_task(self._mind(self._process))

    async def finish(self) -> None:
        """Let the process inspect and deliver what waits, and end."""
        if self._minding is not None:
            self._minding.cancel()
            await asyncio.wait([self._minding])
        self._report_missed()
        self._write()
        if self._process is None or self._process.stdin is None:
            return
        self._process.stdin.close()
        try:
            async with asyncio.timeout(_FINISH_LIMIT_S):
                code = await self._process.wait()
        except TimeoutError:
            self._process.kill()
            code = await self._process.wait()
            _log.warning("gave up inspecting what was still in the backlog")
        if code:
            self._note_end(code)

    def opened(self, path: str, method: str, fields: HeaderFields) -> Watched:
        """Note a request; never raises."""
        return Watched(self, path, next(self._numbers), method, fields)

    def add(self, size_bytes: int, path: str, number: int, notes: list[Note]) -> bool:
        is_first, is_last = notes[:1] and notes[0][0] == "open", notes[-1:] and notes[-1][0] == "closed"
        if self._process is None or self._process.stdin is None:
            return not is_first  # the others were counted when the process ended
        if not is_first and number not in self._open_exchanges:
            return True  # counted when the process that was given it ended
        kept_bytes = self._waiting_bytes + self._process.stdin.transport.get_write_buffer_size()
        self._shares.keep(kept_bytes)
        if size_bytes and not self._has_room(path, kept_bytes, size_bytes):
            return False
        if is_last:
            self._open_exchanges.pop(number, None)
        else:
            self._open_exchanges[number] = path
        self._wait((path, number, notes))
        if size_bytes:
            self._report_missed()
        if self._waiting_bytes > _WRITTEN_AT_ONCE_BYTES:
            self._write()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._job.limits.inspect_pause_s, self._write)
        return True

    def _has_room(self, path: str, kept_bytes: int, size_bytes: int) -> bool:
        limits = self._job.limits
        share_bytes_max = limits.backlog_bytes_max if len(self._job.vantages) == 1 else limits.server_backlog_bytes_max
        fits = kept_bytes + size_bytes <= limits.backlog_bytes_max
        return fits and self._shares.of(path) + size_bytes <= share_bytes_max

    def miss(self, path: str) -> None:
        self._missed.note(path)

    def note_failure(self) -> None:
        """Count the failure that is being handled."""
        self._failures.note()

    def _report_missed(self) -> None:
        if self._process is not None:
            for what in self._missed.take(self.now()):
                self._wait(what)

    def _wait(self, what: tuple[str, int, list[Note]]) -> None:
        frame = framed(marshal.dumps(what))
        self._waiting.append(frame)
        self._waiting_bytes += len(frame)
        self._shares.add(what[0], len(frame))

    def _write(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if waiting and self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(b"".join(waiting))

    async def _started(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *_COMMAND,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # a terminal's Ctrl-C is for the tap, whose end ends this
        )
        limit_s = self._job.limits.inspector_start_limit_s
        try:
            async with asyncio.timeout(limit_s):
                refusal = await _greeted(process, self._job)
                if refusal is not None:
                    await process.wait()
        except BaseException as error:
            if process.returncode is None:
                process.kill()
            await process.wait()
            if isinstance(error, TimeoutError):
                message = f"the process that inspects had not opened its sink after {limit_s:g} s"
                raise OperatingError("process_ended", message) from None
            raise
        if refusal is not None:
            made, code, message, path = refusal
            raise made(code, message, path=path)
        return process

    async def _mind(self, process: asyncio.subprocess.Process) -> None:
        """Start the process again whenever it ends."""
        limits, pause_s = self._job.limits, self._job.limits.inspector_pause_min_s
        loop = asyncio.get_running_loop()
        while True:
            started_s = loop.time()
            code = await process.wait()
            self._note_end(code)
            if loop.time() - started_s > limits.inspector_pause_max_s:
                pause_s = limits.inspector_pause_min_s
            while self._process is None:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, limits.inspector_pause_max_s)
                try:
                    self._process = process = await self._started()
                except (AssayStreamError, OSError) as error:
                    _log.warning("the process that inspects does not start: %s", error)

    def _note_end(self, code: int) -> None:
        self._process = None
        for path in self._open_exchanges.values():
            self._missed.note(path)
        self._open_exchanges.clear()
        self._waiting, self._waiting_bytes = [], 0
        self._shares = _Shares()
        _log.error(
            "the process that inspects has ended (%d): what it was given and had not published is lost. "
            "Requests pass; they are not observed until it runs again",
            code,
        )


class _Shares:
    """How much of each server waits in the pipe, which is emptied in order."""

    def __init__(self) -> None:
        self._frames: deque[tuple[str, int]] = deque()
        self._counts: Counter[str] = Counter()
        self._bytes = 0

    def add(self, path: str, size_bytes: int) -> None:
        """Note what goes into the pipe behind everything else."""
        self._frames.append((path, size_bytes))
        self._counts[path] += size_bytes
        self._bytes += size_bytes

    def keep(self, kept_bytes: int) -> None:
        """Note how much is left."""
        while self._frames and self._bytes - self._frames[0][1] >= kept_bytes:
            path, size_bytes = self._frames.popleft()
            self._counts[path] -= size_bytes
            self._bytes -= size_bytes

    def of(self, path: str) -> int:
        """Return the bytes of a server that are left."""
        return self._counts[path]


async def _greeted(process: asyncio.subprocess.Process, job: InspectionJob) -> Refusal | None:
    """Tell a process what it has to know, and return why it cannot do it, if it says so."""
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("asyncio gave no pipes that were asked for")
    process.stdin.write(framed(pickle.dumps(job)))
    try:
        size_bytes = int.from_bytes(await process.stdout.readexactly(SIZE_BYTES), "big")
        refusal: Refusal | None = pickle.loads(await process.stdout.readexactly(size_bytes))  # noqa: S301 - it is our own
    except asyncio.IncompleteReadError:
        raise OperatingError("process_ended", "the process that inspects ended at its start: see its log") from None
    return refusal
