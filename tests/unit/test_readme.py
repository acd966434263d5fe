"""The README, followed to the letter."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def block_after(heading: str) -> str:
    section = README.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return "\n".join(line[4:] for line in section.splitlines() if line.startswith("    "))


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    command = tmp_path / "bin" / "assay-stream"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m assay_stream "$@"\n')
    command.chmod(0o755)
    return os.environ | {"PATH": f"{command.parent}:{os.environ['PATH']}"}


def test_the_walk_without_a_broker_gives_bound_evidence(tmp_path: Path, shell: dict[str, str]) -> None:
    """Copied and pasted, the commands give evidence for six calls, each bound by its snapshot."""
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    script = block_after("Without any broker")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=tmp_path, env=shell, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith('["')]
    assert len(rows) == 6
    assert all('"exact","sha256:' in row for row in rows)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "alerts.ndjson",
        "changes.ndjson",
        "definitions.ndjson",
        "evidence.ndjson",
        "rejected.ndjson",
    ]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no working copy")
def test_git_ignores_the_keys_that_it_makes() -> None:
    """A private key made in a working copy cannot be committed by `git add .`."""
    names = re.findall(r"keygen --out (\S+)", README)
    assert names
    for name in (*names, f"deploy/{names[0]}"):
        done = subprocess.run(["git", "check-ignore", "--quiet", "--no-index", name], cwd=ROOT, check=False)
        assert done.returncode == 0, name
