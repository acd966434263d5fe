"""Which long tests have to run again (``deploy/tiers.py``)."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=ann", "-c", "user.email=ann@example.com")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with one tier, whose command notes that it ran and fails where there is a file ``broken``."""
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy/tiers.py").write_bytes((ROOT / "deploy/tiers.py").read_bytes())
    run = ["sh", "-c", "echo ran; test ! -e broken"]
    (tmp_path / "deploy/tiers.toml").write_text(f'[slow]\nrun = {run}\npaths = ["core", ":!core/pages"]\n')
    for name in ("core/join", "core/pages/index", "README"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "Begin")
    return tmp_path


def ran(project: Path, *arguments: str) -> bool:
    done = subprocess.run(
        [sys.executable, "deploy/tiers.py", *arguments], cwd=project, capture_output=True, text=True, check=True
    )
    return "ran" in done.stdout.split()


def test_what_passed_runs_again_once_what_it_covers_has_changed(project: Path) -> None:
    """Or if it is asked for; what it does not cover may change."""
    assert ran(project)
    assert not ran(project)
    assert ran(project, "--all")
    for name in ("README", "core/pages/index"):
        (project / name).write_text("2")
    git(project, "commit", "-qam", "Change something else")
    assert not ran(project)
    (project / "core/join").write_text("2")
    git(project, "commit", "-qam", "Change the join")
    assert ran(project)


def test_what_passed_on_files_that_are_not_committed_runs_again(project: Path) -> None:
    (project / "core/new").write_text("1")
    assert ran(project)
    assert ran(project)


def test_what_failed_ends_the_run_and_runs_again(project: Path) -> None:
    (project / "broken").touch()
    for _ in range(2):
        with pytest.raises(subprocess.CalledProcessError) as caught:
            ran(project)
        assert caught.value.stdout == "ran\n"
