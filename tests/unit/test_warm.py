"""Starting our own program by forking: what a test sees of it is what it sees of an interpreter of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ANEW = {"PYTHONDONTWRITEBYTECODE": "1"}
"""Where one of these variables is another one, an interpreter is started anew."""


def run(cwd: Path, *arguments: str, **env: str) -> tuple[int, str, str]:
    """Exit code and streams of a command."""
    command = [sys.executable, "-m", "assay_stream", *arguments]
    root = str(Path(__file__).resolve().parents[2])
    surroundings = os.environ | {"PYTHONPATH": root} | env
    done = subprocess.run(command, cwd=cwd, env=surroundings, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "arguments", [("--version",), ("no-such-command",), ("fingerprint", "is-not-there.json"), ("seal", "--help")]
)
def test_forked_and_started_anew_a_command_does_the_same(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """Exit code, output, errors, and the folder that it works in."""
    assert run(tmp_path, *arguments) == run(tmp_path, *arguments, **ANEW)


def test_a_forked_command_is_our_own_child_with_its_own_environment(tmp_path: Path) -> None:
    """A setting of this one command counts; and the kernel hands its end to us, a signal included."""
    code, _, told = run(tmp_path, "worker", ASSAY_STREAM_INPUT_PARTITIONS="none")
    assert (code, "input_partitions" in told.lower()) == (2, True), told
    command = [sys.executable, "-m", "assay_stream", "fingerprint", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as waiting:
        waiting.kill()
        assert waiting.wait(30) == -9
