"""``assay-stream completion``, by the shells that read its scripts."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import invoke

COMMAND = Path(sys.executable).with_name("assay-stream")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_that_asks_the_command(shell: str) -> None:
    """By its installed name, however it was started."""
    done = invoke("completion", shell)
    assert done.exit_code == 0, done.output
    assert f"complete_{shell}" in done.stdout
    assert "_ASSAY_STREAM_COMPLETE" in done.stdout
    assert "assay-stream" in done.stdout


def test_an_unknown_shell_is_refused_with_the_known_ones() -> None:
    done = invoke("completion", "csh")
    assert done.exit_code == 2
    assert "fish" in done.output


def completed_by_bash(line: str) -> set[str]:
    script = f"""
    source <("{COMMAND}" completion bash)
    COMP_WORDS=({line} "") COMP_CWORD={len(line.split())}
    "$(complete -p assay-stream | sed 's/.*-F \\([^ ]*\\).*/\\1/')" assay-stream
    printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    environment = {**os.environ, "PATH": f"{COMMAND.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, env=environment, timeout=120, check=True
    )
    return {word.strip() for word in done.stdout.splitlines()}


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("assay-stream", {"alerts", "policy", "pins", "completion"}),
        ("assay-stream policy", {"plan", "set", "remove", "list"}),
        ("assay-stream policy set --enforcement", {"audit", "warn", "block"}),
    ],
)
def test_bash_completes_commands_and_choices(line: str, offered: set[str]) -> None:
    """A real one, by the script that is printed."""
    assert offered <= completed_by_bash(line)
