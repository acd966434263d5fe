"""What an operator may say of agents before a broker is reached."""

import pytest

from tests.support.command import run_command_text


@pytest.mark.parametrize("agents", ["", "Mine", "my-agents", "mine:An agent", "mine." + "a" * 65])
def test_agents_whose_name_cannot_name_topics_are_refused(agents: str) -> None:
    done = run_command_text("topics", "apply", "--agents", agents)
    assert done.returncode == 2
    assert "bad_option" in done.stderr
    assert "digits and underscores" in done.stderr


def test_agents_do_not_run_in_the_process_of_a_stage() -> None:
    """One that fails would end the stage."""
    done = run_command_text("worker", "--agents", "mine", "--role", "join")
    assert done.returncode == 2
    assert "bad_option" in done.stderr


@pytest.mark.parametrize(
    ("agents", "why"), [("no_such_module", "cannot import 'no_such_module'"), ("tests.support.agents", "no agent")]
)
def test_a_module_without_agents_is_refused(agents: str, why: str) -> None:
    done = run_command_text("worker", "--agents", agents)
    assert done.returncode == 2
    assert why in done.stderr
