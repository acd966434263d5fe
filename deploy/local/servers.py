"""Real MCP servers on this machine, for tests, measurements and the demo.

    python deploy/local/servers.py python mcp-server-time 2026.10.19       installs once, prints its command
    python deploy/local/servers.py node @modelcontextprotocol/server-everything 2026.8.31

    command = python_server("mcp-server-time", "2026.10.19")               from Python

Each version of each server has a folder of its own under `.servers/`, so that two of them never share a
library. Needs Python for the one kind and Node with npm for the other; nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
INSTALL_LIMIT_S: Final = 600.0

_COMPLETE: Final = ".complete"  # written last: a folder without it is an install that was cut short
_OLD_SDK: Final = ("mcp>=1,<2",)  # what servers released before 2026 need, and do not ask for themselves
_YEAR_OF_NEW_SDK: Final = 2026


class ServerError(RuntimeError):
    """An MCP server cannot be had: what is wrong, where, and how to mend it."""


def python_server(package: str, version: str, *, besides: Sequence[str] | None = None) -> list[str]:
    """Install a server from PyPI into a virtual environment of its own, once, and return its command.

    Args:
        package: name on PyPI; its console script must have the same name.
        version: exact version.
        besides: further requirements. Default: an old MCP SDK for an old server.

    Raises:
        ServerError: where it cannot be installed.
    """
    if besides is None:
        year = re.match(r"\d{4}(?=\.)", version)
        besides = () if year and int(year[0]) >= _YEAR_OF_NEW_SDK else _OLD_SDK
    home = _home("python", package, version)

    once(home, lambda: make_environment(home, package, f"{package}=={version}", *besides))
    script = home / "bin" / package
    if not script.exists():
        raise ServerError(f"{package} {version} has no command {script}: it is another kind of package")
    return [str(script)]


def node_server(package: str, version: str) -> list[str]:
    """Install a server from npm into a folder of its own, once, and return its command.

    Args:
        package: name on npm, with its scope.
        version: exact version.

    Raises:
        ServerError: where it cannot be installed.
    """
    node = shutil.which("node")
    folder = node_package(package, version)
    commands = json.loads((folder / "package.json").read_text(encoding="utf-8")).get("bin")
    script = commands if isinstance(commands, str) else next(iter((commands or {}).values()), None)
    if script is None:
        raise ServerError(f"{package} {version} has no command: it is another kind of package")
    return [str(node), str(folder / script)]


def node_package(package: str, version: str, *, beside: Sequence[str] = ()) -> Path:
    """Install a package from npm into a folder of its own, once, and return where its files are.

    Raises:
        ServerError: where it cannot be installed.
    """
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise ServerError(f"cannot have {package}: no node and npm on the PATH; install Node.js 20 or newer")
    home = _home("node", package, version)

    def install() -> None:
        home.mkdir(parents=True)
        quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
        wanted = [f"{package}@{version}", *beside]
        run([npm, "install", "--prefix", str(home), *quiet, *wanted], f"install {package}")

    once(home, install)
    return home / "node_modules" / package


def _home(kind: str, package: str, version: str) -> Path:
    return ROOT / ".servers" / kind / f"{package.replace('/', '-')}@{version}"


def once(home: Path, install: Callable[[], None]) -> None:
    """Install unless it is done. Scripts carry their folder's name, so nothing is moved afterwards."""
    if (home / _COMPLETE).exists():
        return
    with _locked(home):
        if (home / _COMPLETE).exists():  # someone else was first
            return
        shutil.rmtree(home, ignore_errors=True)
        install()
        (home / _COMPLETE).touch()


@contextlib.contextmanager
def _locked(home: Path) -> Iterator[None]:
    home.parent.mkdir(parents=True, exist_ok=True)
    with home.with_name(f".{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make_environment(home: Path, name: str, *requirements: str) -> None:
    """Make a virtual environment and install into it: by uv if it is there, in a tenth of the time, or else by pip."""
    python = str(home / "bin" / "python")
    venv, pip = ["venv"], [python, "-m", "pip", "install", "--no-input"]
    if (uv := ROOT / ".uv" / "bin" / "uv").exists():  # where make puts it
        venv, pip = ["venv", "--without-pip"], [str(uv), "pip", "install", "--python", python]
    run([sys.executable, "-m", *venv, str(home)], f"make a virtual environment in {home}")
    run([*pip, "--quiet", *requirements], f"install {name}")


def run(command: Sequence[str], what: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=INSTALL_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise ServerError(f"could not {what} within {INSTALL_LIMIT_S:.0f} s: check the network") from None
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise ServerError(f"could not {what}: check the version and the network. It says:\n{said}")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code is 0 when the server is there and 1 when it cannot be had."""
    parser = argparse.ArgumentParser(description="Install one MCP server and print its command as JSON.")
    parser.add_argument("kind", choices=["python", "node"], help="where it comes from: PyPI or npm")
    parser.add_argument("package", help="its name there")
    parser.add_argument("version", help="exact version")
    options = parser.parse_args(arguments)
    install = python_server if options.kind == "python" else node_server
    try:
        print(json.dumps(install(options.package, options.version)))
    except ServerError as error:
        print(f"servers.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
