"""The tutorial on agents, as a reader follows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from assay_stream.agents.shipped import toxic_flow_agent
from tests.support.command import run_command_text

PAGE = (Path(__file__).parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The code blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_tutorial_ends_with_tests_that_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its module, its scenario, and what the command prints."""
    monkeypatch.chdir(tmp_path)
    name = f"my_detections_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(blocks("python")[0], encoding="utf-8")
    scenario = blocks("toml")[0].replace('"my_detections"', f'"{name}"')
    (tmp_path / "night_deletes.toml").write_text(scenario, encoding="utf-8")
    done = run_command_text("agents", "test", "night_deletes.toml")
    assert done.returncode == 0, done.stdout + done.stderr
    _, _, printed = blocks("console")[0].partition("\n")
    assert done.stdout == printed


def test_labels_of_the_operator_are_given_as_documented() -> None:
    """The last snippet declares an agent."""
    names: dict[str, object] = {}
    exec(blocks("python")[1], names)  # noqa: S102 -- our own page
    assert type(names["agent"]) is type(toxic_flow_agent)
