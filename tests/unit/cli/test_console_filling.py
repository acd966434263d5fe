"""``assay-stream console --fill``: one command, two processes that it looks after."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from assay_stream.cli.console_filling import FillingReport, console_environment, filler_environment, pause_s
from assay_stream.limits.console import CONSOLE_LIMITS
from tests.support.console import a_store
from tests.support.deployment import free_port
from tests.support.readmodel import history

SECRET = "hidden-1"
USER = {"ASSAY_STREAM_SASL_USERNAME": "store", "ASSAY_STREAM_SASL_PASSWORD": SECRET, "ASSAY_STREAM_SSL_CAFILE": "ca"}


def test_the_console_gets_no_way_into_kafka() -> None:
    """Whoever breaks into what shows the texts of strangers finds no credentials there."""
    given = {"PATH": "/bin", "ASSAY_STREAM_STORE": "s", "ASSAY_STREAM_FILL_SASL_PASSWORD": SECRET, **USER}
    assert console_environment(given, decide=False) == {"PATH": "/bin", "ASSAY_STREAM_STORE": "s"}


def test_where_operators_decide_each_has_a_user_of_its_own() -> None:
    """The console's, which may write decisions, and the one that only reads."""
    given = {**USER, "ASSAY_STREAM_FILL_SASL_USERNAME": "reader", "ASSAY_STREAM_FILL_SASL_PASSWORD_FILE": "f"}
    assert console_environment(given, decide=True) == USER
    assert filler_environment(given) == {
        "ASSAY_STREAM_SASL_USERNAME": "reader",
        "ASSAY_STREAM_SASL_PASSWORD_FILE": "f",
        "ASSAY_STREAM_SSL_CAFILE": "ca",
    }


def test_pauses_grow_to_a_bound() -> None:
    """1, 2, 4, 8, 16, 32 s, then a minute each, however often it fails."""
    assert [pause_s(failures) for failures in (1, 2, 6, 7, 1_000_000)] == [1, 2, 32, 60, 60]
    assert pause_s(10**9) == CONSOLE_LIMITS.filler_pause_max_s


def test_the_console_knows_the_last_it_was_told() -> None:
    """Several lines may come in one piece; an empty one says that the filler runs."""
    stopped: list[bool] = []
    report = FillingReport(lambda: stopped.append(True))
    assert report.text is None
    report.data_received(b"\nIt ended.\n")
    assert report.text == "It ended."
    report.data_received(b"It ended again.\n\n")
    assert report.text is None
    report.connection_lost(None)
    assert stopped


def children(pid: int) -> dict[str, int]:
    """The processes that a process started, by what they do."""
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        words = Path(f"/proc/{child}/cmdline").read_bytes().decode().split("\0")
        found["filler" if "store" in words else "console"] = int(child)
    return found


def until(condition: Callable[[], object]) -> None:
    """Wait for something to come true."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_over(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def get(address: str) -> str:
    """What is at an address."""
    with urllib.request.urlopen(address, timeout=20) as answer:  # noqa: S310 -- ours
        return str(answer.read().decode())


@contextmanager
def filled(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str, list[str]]]:
    """A console with a filler that finds no broker, its address, and what it said until it gave the address."""
    command = [sys.executable, "-m", "assay_stream", "console", "--fill", "--store", str(folder)]
    port = free_port()
    env = os.environ | USER | {
        "ASSAY_STREAM_SSL_CAFILE": "",
        "ASSAY_STREAM_BOOTSTRAP_SERVERS": f"127.0.0.1:{port}",
        "ASSAY_STREAM_CONNECT_LIMIT_S": "1",
        "ASSAY_STREAM_LOG_LEVEL": "ERROR",
    }  # fmt: skip
    del env["ASSAY_STREAM_SSL_CAFILE"]
    said = folder.parent / "said"
    with said.open("w+") as stderr:
        process = subprocess.Popen([*command, "--listen", "127.0.0.1:0"], env=env, stderr=stderr, text=True)
        try:
            until(lambda: "http://" in said.read_text())
            yield process, re.findall(r"http://\S+", said.read_text())[0], [str(said)]
        finally:
            process.kill()
            process.wait(10)


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_a_filler_that_ends_is_said_and_started_again(tmp_path: Path) -> None:
    """On the page Health and on standard error; the console is served all the while, without the filler's password."""
    folder = tmp_path / "store"
    folder.mkdir()
    a_store(folder, history())
    with filled(folder) as (process, address, (said,)):
        until(lambda: Path(said).read_text().count("started again in") >= 2)
        assert "ended with exit code 3; it is started again in 1 s" in Path(said).read_text()
        assert "it is started again in 2 s" in Path(said).read_text()
        assert "server-0" in get(address)
        until(lambda: "The process that fills the store ended" in get(f"{address}health"))
        console = children(process.pid)["console"]
        assert SECRET.encode() not in Path(f"/proc/{console}/environ").read_bytes()
        assert SECRET not in Path(said).read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        until(lambda: is_over(console))


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_neither_outlives_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    """Otherwise the next one would find the port and the store taken."""
    folder = tmp_path / "store"
    folder.mkdir()
    a_store(folder, history())
    with filled(folder) as (process, _, __):
        until(lambda: len(children(process.pid)) == 2)
        both = children(process.pid).values()
        process.kill()
        process.wait(10)
        until(lambda: all(map(is_over, both)))


def test_where_the_console_cannot_start_nothing_is_left(tmp_path: Path) -> None:
    """It says why, and its exit code is the command's."""
    a_store(tmp_path, history())
    command = [sys.executable, "-m", "assay_stream", "console", "--fill", "--store", str(tmp_path)]
    done = subprocess.run(
        [*command, "--listen", "192.0.2.1:80", "--behind-login", "--allow-host", "x"],
        env=os.environ | {"ASSAY_STREAM_BOOTSTRAP_SERVERS": f"127.0.0.1:{free_port()}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "cannot_listen" in done.stderr
