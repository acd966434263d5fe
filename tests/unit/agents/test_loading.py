"""Agents of a user's module."""

import importlib
import sys
from pathlib import Path

import pytest

from assay_stream.agents.declaration import load_agents
from assay_stream.errors import ConfigurationError
from tests.support.errors import raises_code

MODULE = """
from assay_stream.agents import Agent, actor_of
agent = again = Agent("mine", title="Mine")
agent.evidence(key=actor_of)(lambda event, memory: None)
"""


def load(folder: Path, source: str, monkeypatch: pytest.MonkeyPatch, name: str = "users_module") -> str:
    monkeypatch.syspath_prepend(str(folder))
    (folder / f"{name}.py").write_text(source, encoding="utf-8")
    sys.modules.pop(name, None)
    importlib.invalidate_caches()
    try:
        return load_agents(name).digest
    finally:
        sys.modules.pop(name, None)


def test_the_digest_follows_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another source may decide otherwise, and a replay says by whose code a finding was made."""
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    digest = load(first, MODULE, monkeypatch)
    assert load(second, MODULE, monkeypatch) == digest
    assert load(tmp_path, MODULE + "LIMIT = 7\n", monkeypatch, name="users_module") != digest


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("raise ValueError('secret')", "agents_not_found"),
        ("import nothing_of_that_name", "agents_not_found"),
        ("agent = 7", "agent_bad_declaration"),
        ("from assay_stream.agents import Agent\nagent = Agent('Bad', title='t')", "agent_bad_declaration"),
    ],
)
def test_a_module_that_cannot_be_used_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, code: str
) -> None:
    """With a code, and without the text of its error."""
    with raises_code(code, kind=ConfigurationError) as refused:
        load(tmp_path, source, monkeypatch)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("name", ["no_module_of_that_name", "tests/conftest.py", "./conftest.py", "README.md", ".", ""])
def test_a_module_that_is_not_there_is_refused(name: str) -> None:
    """The message says how it is named, and where it is looked for."""
    with pytest.raises(ConfigurationError, match=r"mine for mine\.py.*PYTHONPATH"):
        load_agents(name)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (
            "from assay_stream.agents import Agent\na = Agent('a', title='t')\n@a.evidence\ndef f(e, m): pass",
            "line 3 of",
        ),
        ("agent = (", "SyntaxError in line 1 of"),
        ("\nimport nothing_of_that_name", "ModuleNotFoundError in line 2 of"),
        ("from assay_stream.agents import Fields\nFields('toll')", "evidence has no field 'toll'; there are actor, "),
        ("from assay_stream.agents import Fields\nFields()", "a key needs a field"),
        (
            "from assay_stream.agents import Agent\na = Agent('a', title='t')\na.evidence(key={}.get)(print)",
            "the source of module 'None' is needed",
        ),
        ("", r"declares no agent: write NAME = Agent\(\.\.\.\) at its top level"),
    ],
)
def test_a_mistake_of_an_author_is_named_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, why: str
) -> None:
    """The module was found: a word about folders would send its author the wrong way."""
    with pytest.raises(ConfigurationError, match=why) as refused:
        load(tmp_path, source, monkeypatch)
    assert "PYTHONPATH" not in str(refused.value)
