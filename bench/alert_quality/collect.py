"""Collect releases of real MCP servers: install versions of npm and PyPI packages, list their tools, write pairs.

python -m bench.alert_quality.collect --packages FILE --out FOLDER

Each package becomes one file of consecutive releases in the format that ``make alert-quality CORPUS=FOLDER`` reads. The
newest release is listed twice, which makes one pair in ``FOLDER/restarts``. Packages are installed without their
install scripts and started without a network, as an unprivileged user where this runs as root.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.alert_quality.listing import Listing, ListingError, dummy, list_tools

PACKAGES = Path(__file__).with_name("packages.ndjson")
OUT = Path("benign")
RELEASES = 6
FAILURES_LIMIT = 3
INSTALL_LIMIT_S = 240
AGES_DAYS = (0, 14, 30, 60, 90, 130, 170, 210, 260, 310, 370, 430, 490, 550, 590, 630, 670, 700)
"""PyPI: how old the releases are that are asked for, back to the first servers."""
STEPS = ("release", "minor", "release", "minor", "major", "release", "minor", "major")
"""npm, where mirrors do not keep the dates of releases: what the next older version is older than."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One line of the list of packages.

    Args:
        registry: ``npm`` or ``pypi``.
        package: the name there.
        command: the program it installs, where it is not called like the package.
        args: arguments for it.
        env: settings that get a dummy value, or ``NAME=value``.
    """

    registry: str
    package: str
    command: str = ""
    args: Sequence[str] = ()
    env: Sequence[str] = field(default_factory=tuple)

    @property
    def file_name(self) -> str:
        """The name of its file, without slashes."""
        return f"{self.registry}__{self.package.lstrip('@').replace('/', '__')}.json"

    @property
    def settings(self) -> dict[str, str]:
        """The environment variables it is started with."""
        pairs = (name.partition("=") for name in self.env)
        return {name: value if given else dummy(name) for name, given, value in pairs}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The programs that install.

    Args:
        uv: the program that installs from PyPI.
        python: the Python that PyPI packages run on.
        today: releases are asked for by their age from this day.
    """

    uv: str
    python: str
    today: datetime.date


def collect(package: Package, tools: Tools, work: Path, releases: int = RELEASES) -> dict[str, Any] | None:
    """Return the releases of one package in the public format, or nothing where no release gave a list.

    Args:
        package: what to install.
        tools: the programs that install.
        work: a folder to install into.
        releases: how many are listed at most, the newest first.
    """
    listed: dict[str, Listing] = {}
    again: Listing | None = None
    failed = 0
    try:
        for version in (_npm if package.registry == "npm" else _pypi)(package, tools, work, listed):
            try:
                listed[version] = _start(package, work)
                again = again or _start(package, work)
            except ListingError as error:
                print(f"{package.package} {version}: {_last_lines(str(error))}", file=sys.stderr, flush=True)
                failed += 1
            if len(listed) == releases or failed == FAILURES_LIMIT:
                break
    except subprocess.SubprocessError as error:
        said = str(getattr(error, "stderr", None) or error)
        print(f"{package.package}: no older release: {_last_lines(said)}", file=sys.stderr, flush=True)
    if not listed or again is None:
        return None
    return _in_format(package, dict(reversed(listed.items())), again, tools.today)


def _npm(package: Package, tools: Tools, work: Path, listed: Collection[str]) -> Iterator[str]:  # noqa: ARG001 -- as _pypi
    """Install one version after the other, newest first, and yield each."""
    options = ["--prefix", str(work), "--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--prefer-offline"]
    wanted = [f"{package.package}@latest"]
    _empty(work)
    for kind in STEPS:  # into one folder, where dependencies that still fit stay
        for name in wanted:
            try:
                _run(["npm", "install", *options, name])
                break
            except subprocess.CalledProcessError:
                if name == wanted[-1]:
                    raise
        manifest = json.loads((work / "node_modules" / package.package / "package.json").read_text(encoding="utf-8"))
        version: str = manifest["version"]
        yield version
        major, minor = version.split(".")[:2]
        older = {"release": version, "minor": f"{major}.{minor}.0", "major": f"{major}.0.0"}[kind]
        wanted = [f"{package.package}@<{older}", f"{package.package}@<{version}"]


def _pypi(package: Package, tools: Tools, work: Path, listed: Collection[str]) -> Iterator[str]:
    """Install the release of one day after the other, newest first, and yield each that is not listed.

    Dependencies are those of the day too: a release that does not start with the newest ones may start with older ones.
    """
    python = work / "venv" / "bin" / "python"
    for age in AGES_DAYS:
        _empty(work)
        dated = [f"--exclude-newer={tools.today - datetime.timedelta(days=age)}"] if age else []
        _run([tools.uv, "venv", "--quiet", "--python", tools.python, str(work / "venv")])
        _run([tools.uv, "pip", "install", "--only-binary=:all:", *dated, "--python", str(python), package.package])
        version = _run([str(python), "-c", _VERSION, package.package]).strip()
        if version not in listed:
            yield version


def _empty(work: Path) -> None:
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()


_VERSION = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))"
_SCRIPTS = (
    "import sys, importlib.metadata as m;"
    "print(*(e.name for e in m.distribution(sys.argv[1]).entry_points if e.group == 'console_scripts'), sep='\\n')"
)


def _run(command: Sequence[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_LIMIT_S).stdout


def _start(package: Package, work: Path) -> Listing:
    """Start the installed server in a home that is the same, and empty, at every start."""
    home = work / "home"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(mode=0o777)
    home.chmod(0o777)
    args = [argument.replace("{home}", str(home)) for argument in package.args]
    env = {name: value.replace("{home}", str(home)) for name, value in package.settings.items()}
    return list_tools([str(_program(package, work)), *args], env=env, home=home)


def _program(package: Package, work: Path) -> Path:
    """Return the named program, the one that is called like the package, or the first that it installs."""
    if package.registry == "pypi":
        folder = work / "venv" / "bin"
        names = _run([str(folder / "python"), "-c", _SCRIPTS, package.package]).split()
    else:
        folder = work / "node_modules" / ".bin"
        manifest = json.loads((work / "node_modules" / package.package / "package.json").read_text(encoding="utf-8"))
        programs = manifest.get("bin", {})
        names = list(programs) if isinstance(programs, dict) else []
    name = package.package.rsplit("/", 1)[-1]
    return folder / next((one for one in (package.command, name) if one in names), (names or [name])[0])


def _in_format(package: Package, listed: Mapping[str, Listing], again: Listing, today: datetime.date) -> dict[str, Any]:
    source = f"{package.registry}:{package.package}"
    versions = list(listed)
    newest = versions[-1]
    return {
        "source": source,
        "registry": package.registry,
        "package": package.package,
        "note": f"tools/list of published releases with the dependencies of their day, collected on {today}",
        "first": {"version": versions[0], "tools": listed[versions[0]].tools},
        "instructions": {version: listing.instructions for version, listing in listed.items() if listing.instructions},
        "cases": [
            _case(source, package.package, old, new, listed[old], listed[new]) for old, new in pairwise(versions)
        ],
        "restart": _case(source, package.package, newest, newest, listed[newest], again),
    }


def _case(source: str, package: str, old: str, new: str, before: Listing, after: Listing) -> dict[str, Any]:
    return {
        "id": f"{source} {old}->{new}",
        "package": package,
        "before_version": old,
        "after_version": new,
        "step": step(old, new),
        "before": before.tools,
        "after": after.tools,
    }


def step(old: str, new: str) -> str:
    """Return the kind of step between two versions: ``patch``, ``minor``, ``major``, ``dated`` or ``restart``.

    Args:
        old: the version before.
        new: the version after.
    """
    if old == new:
        return "restart"
    before, after = ([int(number) for number in re.findall(r"\d+", version)[:3]] for version in (old, new))
    if after[0] > 2000:
        return "dated"
    if before[0] != after[0]:
        return "major"
    return "minor" if before[1:2] != after[1:2] else "patch"


def _last_lines(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return " | ".join(lines[:1] + lines[-3:])[-400:]


def _write(package: Package, tools: Tools, out: Path, releases: int) -> str:
    path = out / package.file_name
    if path.exists():
        return f"{package.package}: already there"
    with tempfile.TemporaryDirectory(prefix="collect-") as folder:
        Path(folder).chmod(0o755)
        found = collect(package, tools, Path(folder) / "server", releases)
    if found is None:
        return f"{package.package}: no list"
    restart = found.pop("restart")
    (out / "restarts").mkdir(exist_ok=True)
    restarts = {**found, "cases": [restart]}
    restarts.pop("first")
    (out / "restarts" / path.name).write_text(json.dumps(restarts, ensure_ascii=False), encoding="utf-8")
    path.write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")
    return f"{package.package}: {len(found['cases'])} pairs"


def read_packages(path: Path) -> Iterator[Package]:
    """Yield the packages of a list, one JSON object a line.

    Args:
        path: the list.
    """
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip():
            yield Package(**json.loads(line))


def main() -> None:
    """Collect every package of the list that has no file yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, default=PACKAGES, help="the list (default: ours)")
    parser.add_argument("--out", type=Path, default=OUT, help="the folder to write to (default: benign)")
    parser.add_argument("--uv", default=shutil.which("uv") or ".venv-tools/bin/uv", help="installs from PyPI")
    parser.add_argument("--python", default=sys.executable, help="the Python that PyPI packages run on")
    parser.add_argument("--today", type=datetime.date.fromisoformat, default=datetime.date.today(), help="YYYY-MM-DD")  # noqa: DTZ011
    parser.add_argument("--jobs", type=int, default=1, help="how many packages at once")
    parser.add_argument("--releases", type=int, default=RELEASES, help="how many of each package, the newest first")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    tools = Tools(uv=options.uv, python=options.python, today=options.today)
    write = partial(_write, tools=tools, out=options.out, releases=options.releases)
    with ThreadPoolExecutor(options.jobs) as pool:
        for line in pool.map(write, read_packages(options.packages)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
