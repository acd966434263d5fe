"""``assay-stream console --fill``: the store is filled by a thread of the console."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from assay_stream.cli.console import pause_s
from assay_stream.limits import CONSOLE_LIMITS
from tests.support.console import a_store
from tests.support.deployment import free_port
from tests.support.readmodel import history

COMMAND = [sys.executable, "-m", "assay_stream", "console", "--fill", "--store"]


def test_pauses_grow_to_a_bound() -> None:
    """1, 2, 4, 8, 16, 32 s, then a minute each, however often it fails."""
    assert [pause_s(failures) for failures in (1, 2, 6, 7, 1_000_000)] == [1, 2, 32, 60, 60]
    assert pause_s(10**9) == CONSOLE_LIMITS.filler_pause_max_s


def no_broker() -> dict[str, str]:
    return os.environ | {
        "ASSAY_STREAM_BOOTSTRAP_SERVERS": f"127.0.0.1:{free_port()}",
        "ASSAY_STREAM_COMMAND_CONNECT_LIMIT_S": "1",
        "ASSAY_STREAM_LOG_LEVEL": "ERROR",
    }


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def get(address: str) -> str:
    with urllib.request.urlopen(address, timeout=20) as answer:  # noqa: S310 -- ours
        return str(answer.read().decode())


def test_a_failure_to_fill_is_shown_and_filling_is_tried_again(tmp_path: Path) -> None:
    """On the Health page and on standard error; pages of what the store holds are served all the while."""
    folder, said = tmp_path / "store", tmp_path / "said"
    folder.mkdir()
    a_store(folder, history())
    with said.open("w") as stderr:
        process = subprocess.Popen(
            [*COMMAND, str(folder), "--listen", "127.0.0.1:0"], env=no_broker(), stderr=stderr, text=True
        )
    try:
        until(lambda: "http://" in said.read_text())
        [address] = re.findall(r"http://\S+", said.read_text())
        until(lambda: said.read_text().count("Next try in") >= 1)
        assert re.search(r"Filling the store failed \(broker_unreachable: .*\)\. Next try in 1 s\.", said.read_text())
        assert "server-0" in get(address)
        assert "Filling the store failed" in get(f"{address}health")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, said.read_text()
    finally:
        process.kill()
        process.wait(10)


def test_a_console_that_cannot_listen_ends(tmp_path: Path) -> None:
    """It says why, with the exit code of the command, and filling ends with it."""
    a_store(tmp_path, history())
    done = subprocess.run(
        [*COMMAND, str(tmp_path), "--listen", "192.0.2.1:80", "--behind-login", "--allow-host", "x"],
        env=no_broker(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "cannot_listen" in done.stderr
