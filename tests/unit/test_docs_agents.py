"""The tutorial on agents, as a reader follows it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from assay_stream.agents.shipped import toxic_flow_agent

PAGE = (Path(__file__).parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_tutorial_ends_with_tests_that_pass(tmp_path: Path) -> None:
    """Its module and its tests, run as printed."""
    (tmp_path / "my_detections.py").write_text(blocks("python")[0], encoding="utf-8")
    (tmp_path / "test_my_detections.py").write_text(blocks("python")[1], encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_detections.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_labels_of_the_operator_are_given_as_documented() -> None:
    """The last snippet declares an agent."""
    names: dict[str, object] = {}
    exec(blocks("python")[2], names)  # noqa: S102 -- our own page
    assert type(names["agent"]) is type(toxic_flow_agent)
