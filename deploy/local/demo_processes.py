"""The processes of the demo: started, waited for, watched, and stopped at the end."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from deploy.local.kafka import Broker, free_ports, is_free

FOLDER = Path(".run/demo")
READY_LIMIT_S = 90.0
LOOK_S = 0.5
"""Between two looks whether everything still runs."""
console = Console()


class DemoError(RuntimeError):
    """The demo cannot go on: what is wrong, and where to look."""


def free_port(wanted: int | None = None) -> int:
    """Return a loopback port that nobody listens on: the one that is wanted, if it is free."""
    return wanted if wanted is not None and is_free(wanted) else free_ports(1)[0]


@contextmanager
def step(text: str) -> Iterator[None]:
    """Show what is being done, and how long it took."""
    started_s = time.monotonic()
    with console.status(text):
        yield
    console.print(f"[green]done[/] {text} [dim]({time.monotonic() - started_s:.1f} s)[/]")


def assay_stream(*arguments: str, env: dict[str, str]) -> None:
    """Run the command line to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "assay_stream", *arguments], env=env, check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise DemoError(f"assay-stream {' '.join(arguments)} failed:\n{done.stderr}")


@dataclass(frozen=True, kw_only=True)
class Running:
    """A process of the demo: what it is called, and where it logs."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Raise if it died.

        Raises:
            DemoError: with its exit code, and what its log says last.
        """
        code = self.process.poll()
        if code is not None:
            raise DemoError(f"the {self.name} died with exit code {code}; its log is {self.log}:\n{tail(self.log)}")


@contextmanager
def running(name: str, *arguments: str, env: dict[str, str], ready: str) -> Iterator[Running]:
    """Run a process of assay-stream, wait until an address of it answers 200, and stop it at the end."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    log = FOLDER / f"{name}.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "assay_stream", *arguments], env=env, stdout=stderr, stderr=stderr
        )
    made = Running(name=name, process=process, log=log)
    try:
        deadline = time.monotonic() + READY_LIMIT_S
        while not answers(ready):
            made.check()
            if time.monotonic() > deadline:
                raise DemoError(f"the {name} did not get ready; its log is {log}:\n{tail(log)}")
            time.sleep(0.2)
        yield made
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def answers(url: str) -> bool:
    """Tell whether an address answers 200."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 -- ours
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def wait_for_interrupt(processes: Sequence[Running], broker: Broker | None = None) -> None:
    """Wait for Ctrl-C.

    Raises:
        DemoError: where a process ends before that, naming it.
    """
    try:
        while True:
            for each in processes:
                each.check()
            if broker is not None and not broker.running:
                raise DemoError(f"the broker died; its log is {broker.log}:\n{tail(broker.log)}")
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        console.print("stopping")


def tail(log: Path) -> str:
    """Return the end of a log."""
    return log.read_text(errors="replace")[-2_000:]
