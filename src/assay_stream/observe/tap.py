"""The stdio tap: a transparent proxy around an MCP server, which copies the bytes between it and its client.

Client and server get each other's bytes unchanged, except for lines that a rule blocks or hides. The server inherits
standard error. End of stream propagates as without a tap: when the client closes our input, the server's input is
closed; when the server closes its output, ours is.

Watching never delays the connection and never breaks it: it runs in a thread of its own, in the order in which bytes
passed, and whatever goes wrong there is counted and logged. Enforcing reads each line before it passes: if inspecting a
client's line fails, the line is held back and answered; if inspecting a server's line fails, the failure is counted and
the line passes, unless tools are hidden.

Threads with blocking reads and writes serve every kind of descriptor (pipes, sockets, terminals, plain files) and
never change a descriptor's mode, which other processes may share. Nothing that happens in the event loop or in the
observer delays them.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import os
import queue
import select
import signal
import subprocess
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING

from assay_stream.errors import ConfigurationError
from assay_stream.observe.observation import Observation, Vantage
from assay_stream.observe.session import (
    LINE_BYTES_MAX,
    ClientSaid,
    Commands,
    Failed,
    Missed,
    ServerSaid,
    Session,
    session_maker,
)
from assay_stream.observe.sinks import Sink
from assay_stream.observe.wire import NOT_RULED_ON, Direction, WireStats, failure

if TYPE_CHECKING:
    from assay_stream.observe.gate import Rule

_STOP_LIMIT_S = 5.0
_WATCH_LIMIT_S = 30.0
_INWARD_LIMIT_S = 1.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_CHUNK_BYTES = 64 * 1_024

BACKLOG_BYTES_MAX = 2 * LINE_BYTES_MAX
"""Limit of bytes waiting for inspection: two of the longest lines. The wire never waits for the observer."""

STEP_BYTES = 512
"""Overhead counted per piece that waits: a server may write byte by byte."""

REPLIES_BYTES_MAX = LINE_BYTES_MAX
"""Limit of our replies that wait for the end of the server's line, which may never come."""

_NOTICES_MAX = 100
"""Different lists that lost tools, as far as they are logged."""

_REPLY_LOGGED_BYTES = 100
"""Long enough for the id."""

_log = logging.getLogger(__name__)


def report_missed(stats: WireStats, where: str = "", **more: int) -> None:
    """Log what could not be observed, if there is anything."""
    if stats.missed_lines or stats.refused_snapshots or stats.evicted_requests or any(more.values()):
        counts = (stats.as_dict() | more).items()
        found = ", ".join(f"{name.replace('_', ' ')}: {count}" for name, count in counts if count)
        _log.warning("not everything could be observed%s (docs/tap.md): %s", where, found)


@dataclass(eq=False, repr=False, kw_only=True)
class Inspector:
    """Execute commands, except forwarding and replies, and count failures: none may affect a connection."""

    publish: Callable[[Observation], object]
    clock: Callable[[], datetime]
    failures: int = field(default=0, init=False)
    blocked: int = field(default=0, init=False)
    withheld: int = field(default=0, init=False)
    unanswered: int = field(default=0, init=False)
    _noticed: set[str] = field(default_factory=set, init=False)

    def note_failure(self) -> None:
        self.failures += 1
        if self.failures == 1:
            _log.exception("inspecting failed; further failures are only counted")

    def execute(self, commands: Commands) -> Commands:
        for observation in commands.observations:
            try:
                self.publish(observation)
            except Exception:  # noqa: BLE001 - the others are still to be published
                self.note_failure()
        for notice in commands.notices:
            if not commands.hidden or self._is_news(notice):
                _log.warning("%s", notice)
        self.withheld += commands.withheld
        return commands

    def report(self, **more: int) -> None:
        """Log the counts that are not 0."""
        counts = {
            "failed inspections": self.failures,
            "messages not passed on to the server": self.blocked,
            "replies to the client dropped, since the server did not end its line": self.unanswered,
            "messages of the server withheld from the client": self.withheld,
        }
        for what, count in (counts | {name.replace("_", " "): count for name, count in more.items()}).items():
            if count:
                _log.warning("%s: %d", what, count)

    def _is_news(self, notice: str) -> bool:
        """Return True the first time: a server sends lists, with names that it makes up, as often as it likes."""
        if notice in self._noticed or len(self._noticed) >= _NOTICES_MAX:
            return False
        self._noticed.add(notice)
        return True


@dataclass(eq=False, repr=False, kw_only=True)
class Backlog(Inspector, threading.Thread):
    """Inspect in a thread, one step after the other; a failing step does not stop the rest.

    Args:
        bytes_max: total size of the queued steps.
        share_bytes_max: total size queued per owner, so that one owner cannot starve the others.
        pause_s: seconds to wait for more steps before each run: two threads that alternate at every step spend
            more time switching than working.
    """

    bytes_max: int
    share_bytes_max: float = math.inf
    pause_s: float = 0.0

    def __post_init__(self) -> None:
        threading.Thread.__init__(self, name="assay-stream watch", daemon=True)
        self._steps: queue.SimpleQueue[tuple[int, Hashable, Callable[[], object]] | None] = queue.SimpleQueue()
        self._bytes = 0
        self._shares: Counter[Hashable] = Counter()
        self._lock = threading.Lock()

    def add(self, size_bytes: int, step: Callable[[], object], owner: Hashable = None) -> bool:
        """Add a step and return True if there was room; there always is for a step of size 0."""
        with self._lock:
            if size_bytes and (
                self._bytes + size_bytes > self.bytes_max or self._shares[owner] + size_bytes > self.share_bytes_max
            ):
                return False
            self._bytes += size_bytes
            self._shares[owner] += size_bytes
            self._steps.put((size_bytes, owner, step))
        return True

    def finish(self) -> None:
        self._steps.put(None)

    def close(self, limit_s: float) -> None:
        """Inspect what waits, within a time limit."""
        self.finish()
        self.join(limit_s)
        if self.is_alive():
            _log.warning("gave up inspecting what was still in the backlog")

    def run(self) -> None:
        was_idle = True
        while (waiting := self._steps.get()) is not None:
            if was_idle and self.pause_s:
                time.sleep(self.pause_s)
            size_bytes, owner, step = waiting
            with self._lock:
                self._bytes -= size_bytes
                self._shares[owner] -= size_bytes
            self._guard(step)
            was_idle = self._steps.empty()
        for step in self._last():
            self._guard(step)

    def _last(self) -> Iterable[Callable[[], object]]:
        """Return what runs after everything else."""
        raise NotImplementedError

    def _guard(self, step: Callable[[], object]) -> None:
        try:
            step()
        except Exception:  # noqa: BLE001 - as above
            self.note_failure()


class Pump(threading.Thread):
    """Copy until the source ends, the destination is gone, or it is stopped."""

    def __init__(
        self, source: int, take: Callable[[bytes], None], *, done: Callable[[], None], name: str = "assay-stream pump"
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._source = source
        self._take = take
        self._done = done
        self._wake_reader, self._wake_writer = os.pipe()
        self._lock = threading.Lock()
        self._ended = False

    def run(self) -> None:
        try:
            while data := self._read():
                self._take(data)
        except OSError:
            pass  # The source or the target is gone: an end like any other, which each side sees for itself.
        finally:
            with self._lock:
                self._ended = True
                os.close(self._wake_reader)
                os.close(self._wake_writer)
            self._done()

    def stop(self) -> None:
        with self._lock:
            if not self._ended:
                os.write(self._wake_writer, b"!")

    def _read(self) -> bytes:
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        poll.register(self._wake_reader, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._source in ready:
                try:
                    return os.read(self._source, _CHUNK_BYTES)
                except BlockingIOError:
                    continue  # another reader of the same pipe was first
            if self._wake_reader in ready:
                return b""


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes, whatever the descriptor's mode; raises ``OSError`` if the other side is gone."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()


class LineSplitter:
    """Split a stream into lines; one over the limit comes out as ``None``."""

    def __init__(self, line_bytes_max: int) -> None:
        self._line_bytes_max = line_bytes_max
        self._line = bytearray()
        self._broken = False

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """Yield the lines that end in ``data``, without line feeds; ``None`` for a lost one."""
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._add(end)
            yield self._take()
        self._add(rest)

    def lose(self) -> None:
        self._line.clear()
        self._broken = True

    def end(self) -> Iterator[bytes | None]:
        if self._broken or self._line:
            yield self._take()

    def _add(self, part: bytes) -> None:
        if len(self._line) + len(part) > self._line_bytes_max:
            self.lose()
        elif not self._broken:
            self._line += part

    def _take(self) -> bytes | None:
        line = None if self._broken else bytes(self._line)
        self._line.clear()
        self._broken = False
        return line


def _refusal(text: str) -> bytes:
    return failure("not_ruled_on", text) + b"\n"


@dataclass(eq=False, repr=False)
class LineSession:
    """A session whose messages are lines: bytes in, commands out."""

    session: Session
    note_failure: Callable[[], None]
    _: KW_ONLY
    line_bytes_max: int = LINE_BYTES_MAX

    def __post_init__(self) -> None:
        self._splitters: dict[Direction, LineSplitter] = {
            "client->server": LineSplitter(self.line_bytes_max),
            "server->client": LineSplitter(self.line_bytes_max),
        }

    def lose(self, direction: Direction) -> None:
        self._splitters[direction].lose()

    def receive(self, direction: Direction, data: bytes | None, clock: Callable[[], datetime]) -> list[Commands]:
        """Return the commands for the lines completed by some bytes; ``None`` stands for the end of the stream."""
        splitter, end = self._splitters[direction], b"" if data is None else b"\n"
        inspect = self._from_client if direction == "client->server" else self._from_server
        return [inspect(line, end, clock) for line in (splitter.end() if data is None else splitter.feed(data))]

    def _from_client(self, line: bytes | None, end: bytes, clock: Callable[[], datetime]) -> Commands:
        if line is None and self.session.enforces:
            return Commands(reply=_refusal("the line is too long to inspect; it was not passed on"))
        event = Missed("client->server") if line is None else ClientSaid(line)
        for attempt in (event, Failed(line or b"")):
            try:
                commands = self.session.receive(attempt, clock())
            except Exception:  # noqa: BLE001 - a call that could not be ruled on does not pass
                if attempt is event:
                    self.note_failure()
                continue
            if commands.forward is not None:
                commands.forward += end
            return commands
        return Commands(reply=_refusal(NOT_RULED_ON))

    def _from_server(self, line: bytes | None, end: bytes, clock: Callable[[], datetime]) -> Commands:
        try:
            event = Missed("server->client") if line is None else ServerSaid(line)
            commands = self.session.receive(event, clock())
        except Exception:  # noqa: BLE001 - what the server says must reach its client all the same
            self.note_failure()
            self.session.offered.doubt()
            text = _refusal("a line of the server could not be inspected; it was not passed on")
            return Commands(text + end, withheld=int(self.session.hides))
        commands.forward = (commands.forward or b"") + end
        return commands


@dataclass(eq=False, repr=False)
class Watch(Backlog):
    """Forward bytes at once, and inspect them in a thread."""

    session: Session
    _: KW_ONLY
    bytes_max: int = BACKLOG_BYTES_MAX
    line_bytes_max: int = LINE_BYTES_MAX
    write: Callable[[Direction, bytes], object] = lambda *_: None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._lines = LineSession(self.session, self.note_failure, line_bytes_max=self.line_bytes_max)
        self._losing: set[Direction] = set()

    def receive(self, direction: Direction, data: bytes) -> None:
        """Forward bytes; raises ``OSError`` if the other side is gone."""
        self._guard(lambda: self._note(direction, data))  # before any reaction of the other side
        self.write(direction, data)

    def ended(self, direction: Direction) -> None:
        """Do nothing yet: the other side may still send."""

    def _note(self, direction: Direction, data: bytes) -> None:
        at = self.clock()
        if self.add(STEP_BYTES + len(data), lambda: self._inspect(direction, data, at)):
            self._losing.discard(direction)
        elif direction not in self._losing:
            self._losing.add(direction)
            self.add(0, lambda: self._lines.lose(direction))

    def _inspect(self, direction: Direction, data: bytes | None, at: datetime) -> None:
        for commands in self._lines.receive(direction, data, lambda: at):
            self.execute(commands)

    def _last(self) -> Iterable[Callable[[], object]]:
        at = self.clock()
        yield lambda: self._inspect("client->server", None, at)
        yield lambda: self._inspect("server->client", None, at)
        yield lambda: self.execute(Commands(observations=self.session.close(at)))


class ClientOutput:
    """The client's input: the server's bytes, with our own replies between its lines."""

    def __init__(self, descriptor: int, *, replies_bytes_max: int = REPLIES_BYTES_MAX) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._within_line = False
        self._waiting = bytearray()
        self._replies_bytes_max = replies_bytes_max

    def pass_on(self, data: bytes) -> None:
        """Write bytes of the server, which need not end at a line end."""
        with self._lock:
            head, line_feed, rest = data.rpartition(b"\n")
            if line_feed and self._waiting:
                write_all(self._descriptor, head + line_feed + self._waiting + rest)
                self._waiting.clear()
            else:
                write_all(self._descriptor, data)
            self._within_line = bool(rest) if line_feed else self._within_line or bool(rest)

    def answer(self, line: bytes) -> bool:
        """Write our own reply, in whole lines, after the server's current line; return False if too many wait for it.

        Waiting instead would keep the client's other lines, and the end of its input, from the server.
        """
        with self._lock:
            if not self._within_line:
                write_all(self._descriptor, line)
            elif len(self._waiting) + len(line) > self._replies_bytes_max:
                return False
            else:
                self._waiting += line
        return True


_DELIVERY_LIMIT_S = 0.1
"""How long a call waits for the end of a write of lists. It ends at once, unless the client reads nothing."""


@dataclass(eq=False, repr=False)
class Enforcer(Inspector):
    """Inspect each line before it passes."""

    session: Session
    _: KW_ONLY
    server_input: int
    client: ClientOutput

    def __post_init__(self) -> None:
        self._lines = LineSession(self.session, self.note_failure)
        self._lock = threading.Condition()
        self._is_giving_lists = self._closed = False

    def receive(self, direction: Direction, data: bytes | None) -> None:
        """Forward what may pass; raises as ``Watch.receive``."""
        with self._lock:
            if direction == "client->server":
                if self._closed:
                    return
                # A client may read a list, and call, before the write of that list has returned here.
                self._lock.wait_for(lambda: not self._is_giving_lists, _DELIVERY_LIMIT_S)
                self._is_giving_lists = False
            received = self._lines.receive(direction, data, self.clock)
            if direction == "server->client":
                self._is_giving_lists = self.session.offered.is_on_the_way
        for commands in received:
            self.execute(commands)
        if direction == "client->server":
            for commands in received:
                self.blocked += commands.forward is None
                if commands.forward is not None:
                    write_all(self.server_input, commands.forward)
                elif commands.reply and not self.client.answer(commands.reply):
                    self._note_unanswered(commands.reply)
            return
        # A line means nothing to a client before its end, so holding it back delays nothing.
        shown = b"".join(each.forward or b"" for each in received) if self.session.hides else data or b""
        self.client.pass_on(shown)
        with self._lock:
            self.session.offered.delivered()
            self._is_giving_lists = False
            self._lock.notify_all()

    def _note_unanswered(self, reply: bytes) -> None:
        self.unanswered += 1
        if self.unanswered == 1:
            _log.error(
                "dropped a reply that waited for the server to end its line (%r...); further ones are only counted",
                reply[:_REPLY_LOGGED_BYTES],
            )

    def ended(self, direction: Direction) -> None:
        with contextlib.suppress(OSError):  # the other side is gone
            self.receive(direction, None)

    def close(self, limit_s: float) -> None:  # noqa: ARG002 - nothing waits
        with self._lock:
            self._closed = True
            observations = self.session.close(self.clock())
        self.execute(Commands(observations=observations))


async def run_tap(
    command: Sequence[str],
    *,
    vantage: Vantage,
    sink: Sink,
    stdin: int = 0,
    stdout: int = 1,
    rule: Rule | None = None,
    hide: bool = False,
) -> int:
    """Run a server behind the tap until it ends, and return its exit code (128 + n after signal n).

    Args:
        stdin: descriptor that the client writes to; reads as ended afterwards.
        stdout: descriptor that the client reads from; released when the server's output ends.
        rule: what to do with a call (``VerdictClient.rule``); without it everything passes.
        hide: whether tools whose calls would be refused are dropped from lists.

    Raises:
        ConfigurationError: ``server_not_started``.
    """
    clock = functools.partial(datetime.now, UTC)
    loop = asyncio.get_running_loop()
    process = _start(command)

    assert process.stdin is not None  # noqa: S101 - it was started with pipes
    server_input = process.stdin.fileno()
    session = session_maker(rule, hide=hide)(vantage, session_id=str(uuid.uuid4()), new_id=lambda: str(uuid.uuid4()))
    host: Watch | Enforcer
    if rule is None:
        target = {"client->server": server_input, "server->client": stdout}
        host = Watch(session, publish=sink.publish, clock=clock, write=lambda way, data: write_all(target[way], data))
        host.start()
    else:
        # Lines wait for this host, so a sink that is slow to write must not keep it.
        host = Enforcer(
            session,
            server_input=server_input,
            client=ClientOutput(stdout),
            publish=lambda observation: loop.call_soon_threadsafe(sink.publish, observation),
            clock=clock,
        )
    output_ended = asyncio.Event()

    def end() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any longer
            loop.call_soon_threadsafe(output_ended.set)

    inward, outward = _pumps(process, host, stdin, stdout, end)
    inward.start()
    outward.start()
    try:
        with _forwarded_signals(loop, process, output_ended):
            await asyncio.to_thread(process.wait)
            inward.stop()
            outward.stop()
            # The server's last output may still be on its way to a slow client.
            await output_ended.wait()
    finally:
        if process.returncode is None:
            await asyncio.to_thread(_end, process)
            inward.stop()
            outward.stop()
        await asyncio.to_thread(host.close, _WATCH_LIMIT_S)
        # Also lets the loop take in what the pumps' threads have passed to it.
        await asyncio.to_thread(inward.join, _INWARD_LIMIT_S)
        report_missed(session.stats)
        host.report()
    code = process.returncode
    return code if code >= 0 else 128 - code


def _start(command: Sequence[str]) -> subprocess.Popen[bytes]:
    if not command:
        raise ConfigurationError("server_not_started", "no command given: write it after --")
    try:
        # In our own process group: a client that ends the group ends the server too.
        return subprocess.Popen(  # noqa: S603 - running the operator's command is what a tap is for
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it contains a null character"
        raise ConfigurationError(
            "server_not_started", f"cannot run {command[0]!r}: {reason}. Check the command after --"
        ) from None


def _pumps(
    process: subprocess.Popen[bytes], host: Watch | Enforcer, stdin: int, stdout: int, ended: Callable[[], None]
) -> tuple[Pump, Pump]:
    def pump(source: int, way: Direction, pipe: IO[bytes], descriptor: int, mode: int) -> Pump:
        def done() -> None:
            host.ended(way)
            with contextlib.suppress(OSError):
                pipe.close()
            _let_go(descriptor, mode)
            if way == "server->client":
                ended()

        return Pump(source, lambda data: host.receive(way, data), done=done, name=f"assay-stream {way}")

    server_input, server_output = process.stdin, process.stdout
    assert server_input is not None and server_output is not None  # noqa: S101, PT018 - it was started with pipes
    return (
        pump(stdin, "client->server", server_input, stdin, os.O_RDONLY),
        pump(server_output.fileno(), "server->client", server_output, stdout, os.O_WRONLY),
    )


def _let_go(descriptor: int, mode: int) -> None:
    """Close a descriptor for the other side, and keep its number from being reused."""
    with contextlib.suppress(OSError):
        nothing = os.open(os.devnull, mode)
        os.dup2(nothing, descriptor)
        os.close(nothing)


@contextlib.contextmanager
def _forwarded_signals(
    loop: asyncio.AbstractEventLoop, process: subprocess.Popen[bytes], give_up: asyncio.Event
) -> Iterator[None]:
    """Forward our signals to the server. After its exit, a signal ends the wait for a stuck client."""

    def forward(number: signal.Signals) -> None:
        if process.returncode is not None:
            give_up.set()
        elif number is not signal.SIGINT or not _in_foreground():
            process.send_signal(number)

    installed = []
    for number in _SIGNALS:
        if signal.getsignal(number) is signal.SIG_IGN:
            continue  # as under nohup
        # Only the main thread may have handlers; elsewhere they are the caller's concern.
        with contextlib.suppress(ValueError, RuntimeError):
            loop.add_signal_handler(number, forward, number)
            installed.append(number)
    try:
        yield
    finally:
        for number in installed:
            loop.remove_signal_handler(number)


def _in_foreground() -> bool:
    """Return True if the terminal signals our whole process group, so that the server already got the signal."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
