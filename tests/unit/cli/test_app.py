"""The command line as a whole: help, version, errors."""

import subprocess
import sys

from assay_stream import __version__
from tests.support.command import every_command
from tests.support.command import run_command_text as run

EXTRAS = ("argon2", "faust", "grpc", "jinja2", "joserfc", "prometheus_client", "pyarrow")
"""Modules that `cli` doesn't install."""


def test_no_command_needs_an_extra_to_start() -> None:
    """The extra ``cli`` is enough for the help of every command, the demo of the README first."""
    blocked = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS!r}))"
    code = f"{blocked}; from assay_stream.cli.app import app; app(['--help'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "demo" in done.stdout


def test_a_command_imports_what_it_needs_alone() -> None:
    """A tap stands in front of every server of an agent: rules, detection and a worker's state are no part of it."""
    code = "import sys; from assay_stream.cli.app import app; app(['tap', '--help'], standalone_mode=False)"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print(*sys.modules, sep='\\n', file=sys.stderr)"],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stderr.split())
    assert "assay_stream.cli.tap" in loaded
    assert loaded.isdisjoint(f"assay_stream.{room}" for room in ("agents", "detect", "join", "replay", "readmodel"))


def test_the_version_is_printed() -> None:
    """--version prints the version alone."""
    done = run("--version")
    assert (done.returncode, done.stdout.strip()) == (0, __version__)


def test_every_command_explains_itself() -> None:
    """--help exits 0 and says how the command is used."""
    names = [name for name, _ in every_command()]
    assert len(names) > 90
    for name in ("", *{name.rpartition(" ")[0] for name in names}, *names):
        done = run(*name.split(), "--help")
        assert done.returncode == 0, name
        assert done.stdout.startswith(f"Usage: assay-stream {name}"), name
