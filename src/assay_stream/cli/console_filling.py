"""``assay-stream console --fill``: a process that looks after two others, the console and what fills its store.

1. The filling process gets the settings of Kafka. The console, which shows what strangers wrote, does not, unless
   operators decide in it; then ``ASSAY_STREAM_FILL_<NAME>`` gives the filling process settings of its own.
2. Where the filling process ends, it is started again after a pause, and the console says so until it runs.
3. Where the console ends, so does everything; where this process is killed, so do both.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from assay_stream.cli.shared import say
from assay_stream.limits.console import CONSOLE_LIMITS, ConsoleLimits

_PREFIX = "ASSAY_STREAM_"
_OWN = f"{_PREFIX}FILL_"
_OF_KAFKA = tuple(f"{_PREFIX}{name}" for name in ("BOOTSTRAP_SERVERS", "SECURITY_PROTOCOL", "SASL_", "SSL_"))
_OF_A_USER = (f"{_PREFIX}SASL_", f"{_PREFIX}SSL_KEY", f"{_PREFIX}SSL_CERT")
_SET_PDEATHSIG = 1
_KILLED = 3


def console_environment(given: Mapping[str, str], *, decide: bool) -> dict[str, str]:
    """Return the environment of the console: without what opens Kafka, unless operators decide in it."""
    left_out = (_OWN,) if decide else (_OWN, *_OF_KAFKA)
    return {name: value for name, value in given.items() if not name.startswith(left_out)}


def filler_environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the filling process; where it has a user of its own, without the other one."""
    own = {_PREFIX + name.removeprefix(_OWN): value for name, value in given.items() if name.startswith(_OWN)}
    left_out = (_OWN, *_OF_A_USER) if any(name.startswith(_OF_A_USER) for name in own) else (_OWN,)
    return {name: value for name, value in given.items() if not name.startswith(left_out)} | own


def pause_s(failures: int, limits: ConsoleLimits = CONSOLE_LIMITS) -> float:
    """Return how long to wait before the filling process is started again, after some failures in a row."""
    return min(limits.filler_pause_first_s * 2.0 ** min(failures - 1, 32), limits.filler_pause_max_s)


async def run_filled(console: Sequence[str], filler: Sequence[str], *, decide: bool) -> int:
    """Run both until the console ends or a signal comes; return the console's exit code.

    Args:
        console: arguments of the console; it is told about the filling process over a pipe, ``--filling-fd``.
        filler: arguments of what fills its store.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    command = [sys.executable, "-m", "assay_stream"]
    served = await asyncio.create_subprocess_exec(
        *(*command, *console, "--filling-fd", str(read_fd)),
        env=console_environment(os.environ, decide=decide),
        pass_fds=(read_fd,),
        preexec_fn=_end_with_parent,
    )
    os.close(read_fd)

    def tell(text: str) -> None:
        # A console that is busy ending reads no more, and one that is slow gets the next line.
        with suppress(OSError):
            os.write(write_fd, f"{text}\n".encode())

    filling = asyncio.create_task(_keep_filling([*command, *filler], tell))
    ended, stopped = asyncio.create_task(served.wait()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({ended, stopped, filling}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        filling.cancel()
        with suppress(ProcessLookupError):
            served.terminate()
        code = await ended
        os.close(write_fd)
        with suppress(asyncio.CancelledError):
            await filling
    return code if code >= 0 else _KILLED


async def _keep_filling(command: Sequence[str], tell: Callable[[str], None]) -> None:
    failures, environment, loop = 0, filler_environment(os.environ), asyncio.get_running_loop()
    while True:
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, stdin=asyncio.subprocess.DEVNULL, preexec_fn=_end_with_parent
        )
        started_s = loop.time()
        tell("")
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
            raise
        failures = 1 if loop.time() - started_s > CONSOLE_LIMITS.filler_pause_max_s else failures + 1
        wait_s = pause_s(failures)
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        text = f"The process that fills the store {how}; it is started again in {wait_s:g} s."
        tell(text)
        say(f"{text} Its own last line says why.")
        await asyncio.sleep(wait_s)


def _end_with_parent() -> None:
    """Ask Linux to end this process with its parent, however that ends; elsewhere it goes on by itself."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGTERM)


class FillingReport(asyncio.Protocol):
    """What the console is told about the process that fills its store.

    Args:
        stop: called once nobody is left to tell.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._heard = b""

    @property
    def text(self) -> str | None:
        """What is wrong with it; ``None`` while it runs."""
        return self._heard.decode("utf-8", "replace") or None

    def data_received(self, data: bytes) -> None:
        # Lines are shorter than what a pipe writes in one piece.
        *_, self._heard, _ = (b"", *data.split(b"\n"))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        self._stop()
