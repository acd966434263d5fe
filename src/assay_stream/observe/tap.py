"""The tap: a transparent proxy around an MCP server over standard input and output.

Client and server get each other's bytes unchanged, except for client lines that a rule blocks. The server inherits
standard error. Another thread inspects what passes (``observe.inspection``); whatever goes wrong there is counted and
logged, and never affects the connection.

End of stream propagates as without a tap: when the client closes our input, the
server's input is closed; when the server closes its output, ours is.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING

from assay_stream.errors import ConfigurationError
from assay_stream.observe.delivery import Sink
from assay_stream.observe.inspection import ClientOutput, Enforcer, Pump, Watch, write_all
from assay_stream.observe.observation import Observation, Vantage
from assay_stream.observe.session import Session
from assay_stream.observe.wire import Direction

if TYPE_CHECKING:
    from assay_stream.observe.gate import Rule

_STOP_LIMIT_S = 5.0
_WATCH_LIMIT_S = 30.0
_INWARD_LIMIT_S = 1.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_log = logging.getLogger(__name__)


async def run_tap(
    command: Sequence[str],
    *,
    vantage: Vantage,
    sink: Sink,
    stdin: int = 0,
    stdout: int = 1,
    environment: Mapping[str, str] | None = None,
    clock: Callable[[], datetime] | None = None,
    new_id: Callable[[], str] | None = None,
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
    clock = clock or functools.partial(datetime.now, UTC)
    new_id = new_id or (lambda: str(uuid.uuid4()))
    loop = asyncio.get_running_loop()
    process = _start(command, environment)

    def publish(observation: Observation) -> None:
        loop.call_soon_threadsafe(sink.publish, observation)

    assert process.stdin is not None  # noqa: S101 - it was started with pipes
    server_input = process.stdin.fileno()
    session: Session
    host: Watch | Enforcer
    if rule is None:
        session = Session(vantage, session_id=new_id(), new_id=new_id)
        target = {"client->server": server_input, "server->client": stdout}
        host = Watch(session, publish=publish, clock=clock, write=lambda way, data: write_all(target[way], data))
        host.start()
    else:
        # Imported here: a tap that does not enforce starts faster without the schemes.
        from assay_stream.observe.gate import gate_class

        session = gate_class(hide)(vantage, session_id=new_id(), new_id=new_id, decide=rule)
        host = Enforcer(session, server_input=server_input, client=ClientOutput(stdout), publish=publish, clock=clock)
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
        _report(session, host)
    code = process.returncode
    return code if code >= 0 else 128 - code


def _start(command: Sequence[str], environment: Mapping[str, str] | None) -> subprocess.Popen[bytes]:
    if not command:
        raise ConfigurationError("server_not_started", "no command given: write it after --")
    try:
        # In our own process group: a client that ends the group ends the server too.
        return subprocess.Popen(  # noqa: S603 - running the operator's command is what a tap is for
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, bufsize=0
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it contains a null character"
        raise ConfigurationError(
            "server_not_started", f"cannot run {command[0]!r}: {reason}. Check the command after --"
        ) from None


def _pumps(
    process: subprocess.Popen[bytes], host: Watch | Enforcer, stdin: int, stdout: int, ended: Callable[[], None]
) -> tuple[Pump, Pump]:
    def inward_done() -> None:
        host.ended("client->server")
        _close(process.stdin)
        _let_go(stdin, os.O_RDONLY)

    def outward_done() -> None:
        host.ended("server->client")
        _close(process.stdout)
        _let_go(stdout, os.O_WRONLY)
        ended()

    def pump(source: int, direction: Direction, done: Callable[[], None]) -> Pump:
        return Pump(source, lambda data: host.receive(direction, data), done=done, name=f"assay-stream {direction}")

    assert process.stdout is not None  # noqa: S101 - it was started with pipes
    return (pump(stdin, "client->server", inward_done), pump(process.stdout.fileno(), "server->client", outward_done))


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        with contextlib.suppress(OSError):
            pipe.close()


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


def _report(session: Session, host: Watch | Enforcer) -> None:
    stats = session.stats
    if host.failures or stats.missed_lines or stats.refused_snapshots or stats.evicted_requests:
        counts = {name: count for name, count in stats.as_dict().items() if count}
        _log.warning("not everything could be observed: %s", counts | {"failures": host.failures})
    if host.blocked:
        _log.warning("%d lines were not passed on", host.blocked)
    if host.withheld:
        _log.warning("%d lines of the server were withheld", host.withheld)
