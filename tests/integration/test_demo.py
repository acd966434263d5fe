"""`make demo` and `make run`, with servers of our own: what they leave in logs, where they say to click, who died."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.tier(name="outages"),
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform != "linux", reason="asks /proc"),
]

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 300


@contextmanager
def demo(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    said = folder / "said"
    with said.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "deploy.local.demo", "--record", str(folder / "recorded"), *options],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=output,
            stderr=output,
            text=True,
        )
        try:
            yield process, said
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            process.wait(90)


def page(address: str) -> str:
    with urllib.request.urlopen(address, timeout=20) as answer:  # noqa: S310 -- ours
        return str(answer.read().decode())


def children(pid: int) -> list[tuple[int, str]]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [(int(each), Path(f"/proc/{each}/cmdline").read_bytes().decode().replace("\0", " ")) for each in found]


def trouble(folder: Path) -> list[str]:
    lines = [line for log in (folder / ".run/demo").glob("*.log") for line in log.read_text().splitlines()]
    return [line for line in lines if not _is_usual(line)]


def _is_usual(line: str) -> bool:
    if line.startswith("{"):
        return str(json.loads(line)["level"]) in ("debug", "info")
    return line.startswith("assay-stream: http://") or "[info     ]" in line


def test_a_healthy_demo_logs_no_trouble_and_ends_on_a_console(tmp_path: Path) -> None:
    """The command that it ends with is started as printed, and shows the poisoned tool."""
    with demo(tmp_path) as (process, said):
        assert process.wait(LIMIT_S) == 0, said.read_text()
    (tmp_path / ".run/demo/servers.log").unlink()  # the servers' own words
    assert trouble(tmp_path) == []
    [command] = re.findall(r"^  \.venv/bin/(assay-stream console .*)$", said.read_text(), re.M)
    looking = subprocess.Popen(
        [sys.executable, "-m", *shlex.split(command.replace("-", "_", 1)), "--listen", "127.0.0.1:0"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert looking.stderr is not None
        address = looking.stderr.readline().split()[1]
        assert "search_notes" in page(f"{address}alerts?severity=critical")
    finally:
        looking.terminate()
        looking.communicate(timeout=30)


def test_what_keeps_running_is_watched(tmp_path: Path) -> None:
    """Its console is alive, and a worker that is killed ends it, by name."""
    with demo(tmp_path, "--keep") as (process, said):
        deadline = time.monotonic() + LIMIT_S
        while "Ctrl-C stops everything." not in said.read_text():
            assert process.poll() is None, said.read_text()
            assert time.monotonic() < deadline, said.read_text()
            time.sleep(0.2)
        [address] = re.findall(r"in a browser:  (http://\S+)", said.read_text())
        while "search_notes" not in page(f"{address}alerts?severity=critical"):
            assert time.monotonic() < deadline
            time.sleep(0.5)
        started = {words: pid for pid, words in children(process.pid)}
        (tmp_path / ".run/demo/servers.log").unlink()
        assert trouble(tmp_path) == []
        assert process.poll() is None
        [worker] = [pid for words, pid in started.items() if words.endswith("assay_stream worker ")]
        os.kill(worker, signal.SIGKILL)
        assert process.wait(90) == 1
    assert "the worker died with exit code -9; its log is .run/demo/worker.log" in said.read_text()
    assert not [pid for pid in started.values() if Path(f"/proc/{pid}").exists()], "nothing is left"
