"""Releases of assay-stream, each in an environment of its own."""

import re
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BEFORE = Path(__file__).with_name("before.txt")
"""Names the release before: a git revision, the path of a wheel, or a version on PyPI."""
_ENVIRONMENTS = ROOT / ".run" / "releases"
_UV = ROOT / ".uv" / "bin" / "uv"
_VERSION = re.compile(r"\d+(\.\d+)+\w*")


class NoReleaseError(Exception):
    """The release cannot be had: the message says why, and what to do."""


def python_of(release: str) -> str:
    """Install a release, unless that was done before, and return the path of its Python.

    Args:
        release: a git revision, the path of a wheel, or a version on PyPI.

    Raises:
        NoReleaseError: there is no such release, or it cannot be installed.
    """
    if _VERSION.fullmatch(release):
        return _environment(release, [f"assay-stream[worker,console]=={release}"])
    if release.endswith(".whl"):
        wheel = Path(release).resolve()
        if not wheel.is_file():
            raise NoReleaseError(f"there is no wheel {wheel}")
        digest = sha256(wheel.read_bytes()).hexdigest()
        return _environment(digest[:16], [f"assay-stream[worker,console] @ {wheel.as_uri()}"])
    commit = _commit(release)
    source = _ENVIRONMENTS / f"{commit[:16]}-source"
    if not source.is_dir():
        source.mkdir(parents=True)
        archive = _run("git", "archive", commit)
        subprocess.run(["tar", "--extract", "--directory", source], input=archive, check=True)
    locked = ["--require-hashes", "--no-deps", "--requirement", str(source / "requirements.lock")]
    return _environment(commit[:16], locked, ["--no-deps", "--no-build-isolation", str(source)])


def _commit(revision: str) -> str:
    try:
        return _run("git", "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").decode().strip()
    except NoReleaseError:
        raise NoReleaseError(
            f"this clone does not have {revision}, the release before. Fetch it with `git fetch --depth 1 origin "
            f"{revision}`, or name a release: BEFORE= a revision, the path of a wheel, or a version on PyPI"
        ) from None


def _environment(name: str, *installs: list[str]) -> str:
    """Make an environment, and install into it what each list of arguments names."""
    folder = _ENVIRONMENTS / name
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _run(sys.executable, "-m", "venv", "--without-pip", str(folder))
        for arguments in installs:
            _run(str(_UV), "pip", "install", "--quiet", "--python", str(python), *arguments)
        (folder / "ready").touch()
    return str(python)


def _run(*command: str) -> bytes:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise NoReleaseError(f"{' '.join(command)}: {done.stderr.decode(errors='replace')}")
    return done.stdout
