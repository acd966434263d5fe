"""The tap with small servers of one line: bytes, ends, exit codes, signals."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from assay_stream.bindings.controls import Ruling
from assay_stream.errors import ConfigurationError
from assay_stream.model.record import LOSS_TYPE
from assay_stream.observe import MemorySink, Observation, run_tap
from assay_stream.observe.gate import Rule
from assay_stream.schemes.hangar import Action
from tests.support.mcp_dialogue import THE_VANTAGE

TAP = Path(__file__).parents[2] / "support" / "mcp_tap.py"
ECHO = [sys.executable, "-c", "import os\nwhile d := os.read(0, 70000): os.write(1, d)"]
CALL = b'{"id":1,"method":"tools/call","params":{"name":"a"}}\n'


class Pipes:
    def __init__(self) -> None:
        self.stdin, self.to_tap = os.pipe()
        self.from_tap, self.stdout = os.pipe()
        self._open = {self.stdin, self.to_tap, self.from_tap, self.stdout}

    def close(self, *descriptors: int) -> None:
        """Close some descriptors, or what is still open; each once, as numbers are given anew."""
        for descriptor in descriptors or tuple(self._open):
            self._open.remove(descriptor)
            os.close(descriptor)


async def tapped(command: list[str], pipes: Pipes, sink: MemorySink | None = None, rule: Rule | None = None) -> int:
    sink = sink or MemorySink()
    return await run_tap(command, vantage=THE_VANTAGE, sink=sink, stdin=pipes.stdin, stdout=pipes.stdout, rule=rule)


async def through(command: list[str], sent: list[bytes], rule: Rule | None = None) -> tuple[int, bytes, MemorySink]:
    """Send bytes through a tap: its exit code, the bytes that came back, and what it observed."""
    pipes, sink = Pipes(), MemorySink()
    received: list[bytes] = []

    def write() -> None:
        for chunk in sent:
            os.write(pipes.to_tap, chunk)
        pipes.close(pipes.to_tap)

    def read() -> None:
        while data := os.read(pipes.from_tap, 65_536):
            received.append(data)

    threads = [threading.Thread(target=write, daemon=True), threading.Thread(target=read, daemon=True)]
    for thread in threads:
        thread.start()
    code = await tapped(command, pipes, sink, rule=rule)
    for thread in threads:
        await asyncio.to_thread(thread.join, 10)
    pipes.close()
    return code, b"".join(received), sink


def binary_lines(seed: int) -> bytes:
    chance = random.Random(seed)
    lines = [chance.randbytes(chance.choice([0, 1, 7, 100, 5_000])) for _ in range(40)]
    lines += [b'{"id":1,"id":2}', b'{"jsonrpc":"2.0"', b"\r", b"\xff\xfe", b"[" * 3_000, b"x" * 300_000]
    chance.shuffle(lines)
    return b"\n".join(lines)


@pytest.mark.parametrize("seed", range(3))
async def test_client_and_server_get_each_others_bytes_unchanged(seed: int) -> None:
    sent = binary_lines(seed)
    code, received, _ = await through(ECHO, [sent])
    assert received == sent
    assert code == 0


async def test_a_line_of_many_megabytes_passes() -> None:
    """Longer than what is looked at: it may have been a call, and that is on record."""
    sent = b"y" * 40_000_000 + b"\n" + CALL
    _, received, sink = await through(ECHO, [sent])
    assert received == sent
    assert [LOSS_TYPE.encode() in each.value for each in sink.observations] == [True, False]


async def test_a_sink_that_fails_does_not_break_the_connection() -> None:
    class BrokenSink(MemorySink):
        def publish(self, observation: Observation) -> bool:
            raise RuntimeError(observation.kind)

    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    pipes = Pipes()
    os.write(pipes.to_tap, CALL)
    pipes.close(pipes.to_tap)
    code = await tapped(ECHO, pipes, BrokenSink())
    assert code == 0
    assert os.read(pipes.from_tap, 1_000) == CALL
    assert len(complaints) <= 1
    pipes.close()


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143)])
async def test_the_servers_exit_code_is_the_taps(script: str, code: int) -> None:
    """Also after a signal. The client's input is still open."""
    pipes = Pipes()
    async with asyncio.timeout(10):
        assert await tapped(["sh", "-c", script], pipes) == code
    pipes.close()


async def test_a_servers_last_words_reach_a_slow_client() -> None:
    """It had ended long before they were read."""
    pipes = Pipes()
    command = [sys.executable, "-c", "import os; os.write(1, b'z' * 60000); os.write(1, b'end')"]
    task = asyncio.create_task(tapped(command, pipes))
    await asyncio.sleep(0.5)
    received = b""
    while data := await asyncio.to_thread(os.read, pipes.from_tap, 1_000):
        received += data
    assert received == b"z" * 60_000 + b"end"
    assert await task == 0
    pipes.close()


async def test_a_client_that_stops_reading_is_an_end_for_the_server_too() -> None:
    """As without the tap: its next write fails."""
    pipes = Pipes()
    pipes.close(pipes.from_tap)
    command = ["sh", "-c", "while echo line; do sleep 0.01; done 2>/dev/null; exit 9"]
    async with asyncio.timeout(10):
        code = await tapped(command, pipes)
    assert code in (9, 128 + signal.SIGPIPE)
    pipes.close()


async def test_a_grandchild_that_keeps_the_output_open_does_not_keep_the_tap() -> None:
    """The server has ended, and that is what counts."""
    pipes = Pipes()
    async with asyncio.timeout(10):
        await tapped(["sh", "-c", "sleep 30 & echo $!"], pipes)
    os.kill(int(os.read(pipes.from_tap, 100)), signal.SIGKILL)
    pipes.close()


async def test_cancelling_ends_the_server_and_leaves_no_zombie() -> None:
    pipes = Pipes()
    task = asyncio.create_task(tapped(["sh", "-c", "echo $$; exec sleep 60"], pipes))
    child = int(await asyncio.to_thread(os.read, pipes.from_tap, 100))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    pipes.close()


@pytest.mark.parametrize("command", [[], ["/no/such/program"], [os.devnull], ["a\0b"]])
async def test_a_command_that_cannot_be_run_is_a_clear_error(command: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="server_not_started"):
        await run_tap(command, vantage=THE_VANTAGE, sink=MemorySink())


def a_tap_process(output: Path, *command: str) -> subprocess.Popen[bytes]:
    """A tap in a process of its own, which heeds signals even where the tests were started not to (``nohup``)."""

    def heed() -> None:
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

    return subprocess.Popen(
        [sys.executable, str(TAP), "the-server", "the-observer", str(output), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=heed,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_are_the_servers_and_open_calls_are_recorded(tmp_path: Path, number: signal.Signals) -> None:
    """The server decides what to do with them; its standard error is ours."""
    script = "import signal,sys,time\n"
    script += f"signal.signal({int(number)}, lambda *_: sys.exit(5))\n"
    script += "print('ready', flush=True); print('note', file=sys.stderr, flush=True); time.sleep(60)"
    with a_tap_process(tmp_path / "o", sys.executable, "-c", script) as tap:
        assert tap.stdout is not None
        assert tap.stdin is not None
        assert tap.stderr is not None
        assert tap.stdout.readline() == b"ready\n"
        tap.stdin.write(CALL)
        tap.stdin.flush()
        time.sleep(0.3)
        tap.send_signal(number)
        assert tap.wait(10) == 5
        assert tap.stderr.read() == b"note\n"
    [line] = (tmp_path / "o").read_bytes().splitlines()
    assert json.loads(line)["data"]["error"] == {"code": "no_response"}


def test_plain_files_serve_as_input_and_output(tmp_path: Path) -> None:
    """``tap ... < requests > answers`` is for everyone."""
    (tmp_path / "in").write_bytes(CALL)
    with (tmp_path / "in").open("rb") as source, (tmp_path / "out").open("wb") as target:
        command = [sys.executable, str(TAP), "s", "o", str(tmp_path / "observations"), *ECHO]
        done = subprocess.run(command, stdin=source, stdout=target, timeout=20, check=False)
    assert done.returncode == 0
    assert (tmp_path / "out").read_bytes() == CALL


def a_rule(action: Action) -> Rule:
    def rule(server_id: str, tool_name: str, definition: object) -> Ruling:
        assert (server_id, tool_name, definition) == (THE_VANTAGE.server_id, "a", None)
        return Ruling(action=action, reason_code="because")

    return rule


async def test_a_slow_sink_does_not_delay_the_lines_of_an_enforcing_tap() -> None:
    pipes, answered, was_answered = Pipes(), threading.Event(), list[bool]()

    class SlowSink(MemorySink):
        def publish(self, observation: Observation) -> bool:
            was_answered.append(answered.wait(5))
            return super().publish(observation)

    def read() -> None:
        while not os.read(pipes.from_tap, 1_000).endswith(b"\n"):
            pass
        answered.set()
        pipes.close(pipes.to_tap)

    os.write(pipes.to_tap, CALL.replace(b"{", b'{"jsonrpc":"2.0",', 1))
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    answering = 'import sys\nfor _ in sys.stdin: print(\'{"jsonrpc":"2.0","id":1,"result":{}}\', flush=True)'
    await tapped([sys.executable, "-c", answering], pipes, SlowSink(), rule=a_rule(Action.ALLOW))
    assert was_answered == [True]
    pipes.close()


async def test_an_enforcing_tap_in_front_of_a_client_that_went_away() -> None:
    """As without it: the server's next write fails, and the tap ends."""
    pipes = Pipes()
    pipes.close(pipes.from_tap)
    os.write(pipes.to_tap, CALL)
    command = ["sh", "-c", "while echo line; do sleep 0.01; done 2>/dev/null; exit 9"]
    async with asyncio.timeout(10):
        code = await tapped(command, pipes, rule=a_rule(Action.BLOCK))
    assert code in (9, 128 + signal.SIGPIPE)
    pipes.close()
