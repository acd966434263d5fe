"""The console as a process of its own, and its operator in a browser."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.browser import Browser
from tests.support.command import run_command_text

OPERATOR, PASSWORD = "alice", "correct horse battery"
AUTHOR = f"local:{OPERATOR}"


@contextmanager
def console(
    folder: Path, *options: str, env: Mapping[str, str] | None = None, python: str = sys.executable
) -> Iterator[str]:
    command = [python, "-m", "assay_stream", "console", "--listen", "127.0.0.1:0", "--store", str(folder)]
    with subprocess.Popen(
        [*command, *options], stderr=subprocess.PIPE, text=True, env=os.environ | dict(env or {})
    ) as process:
        try:
            assert process.stderr is not None
            yield next(found[0] for line in process.stderr if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))
        finally:
            process.terminate()
            process.communicate()


def deciding(folder: Path) -> tuple[str, ...]:
    """Options with which an operator with a password decides; the files are made in a folder."""
    identity = folder / "console.toml"
    added = run_command_text(
        *("console", "user", "add", OPERATOR, "--role", "operator", "--identity", str(identity)),
        stdin=f"{PASSWORD}\n".encode(),
    )
    assert added.returncode == 0, added.stderr
    return ("--identity", str(identity), "--decide")


def sign_in(browser: Browser, address: str) -> None:
    browser.open(f"{address}/sign-in")
    browser.write("#user", OPERATOR)
    browser.write("#password", PASSWORD)
    browser.click("main button")
    browser.wait("return document.querySelector('.who')?.innerText.includes(arguments[0]) ?? false", AUTHOR)
