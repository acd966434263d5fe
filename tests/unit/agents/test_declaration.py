"""Declaring agents."""

from typing import Any

import pytest

from assay_stream.agents import Agent, Event, Fields, Origin, agent_set
from assay_stream.errors import ConfigurationError
from assay_stream.model.record import Role
from tests.support.agents import DIGEST, a_set


def an_agent(name: str = "mine") -> Agent:
    agent = Agent(name, title="Something")
    agent.evidence(key=lambda event: event.server_id)(lambda _event, _memory: None)
    return agent


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "Mine"},
        {"name": ""},
        {"name": "m" * 65},
        {"title": " "},
        {"title": "two\nlines"},
        {"severity": "urgent"},
        {"forget_after_s": 0},
    ],
)
def test_a_wrong_declaration_is_refused_at_once(wrong: dict[str, Any]) -> None:
    """Where the module is imported, not where the first record arrives."""
    with pytest.raises(ConfigurationError, match="agent_bad_declaration"):
        Agent(**{"name": "mine", "title": "Something"} | wrong)


def test_an_input_has_one_handler() -> None:
    """A second one would leave open which goes first."""
    with pytest.raises(ConfigurationError, match="two handlers of evidence"):
        an_agent().evidence(key=lambda event: event.server_id)(lambda _event, _memory: None)


@pytest.mark.parametrize("agents", [[], [Agent("bare", title="No handler")], [an_agent(), an_agent()]])
def test_agents_that_run_together_have_names_of_their_own_and_handlers(agents: list[Agent]) -> None:
    """None, one without a handler, two of one name: nothing starts."""
    with pytest.raises(ConfigurationError, match="agent_bad_declaration"):
        agent_set(agents, digest=DIGEST)


def test_a_set_names_the_topics_that_it_reads() -> None:
    """A worker reads these, and waits for their progress."""
    agent = an_agent()
    agent.findings(key=lambda event: event.server_id)(lambda _event, _memory: None)
    agent.definitions(lambda _definition: None)
    assert a_set(agent).roles == (Role.DEFINITIONS, Role.EVIDENCE, Role.FINDINGS)


@pytest.mark.parametrize(("data", "key"), [({"tool": "t", "trace_id": "1"}, ("1", "t")), ({"tool": "t"}, None)])
def test_a_key_is_the_values_of_fields_or_none_where_one_is_missing(data: dict[str, str], key: Any) -> None:
    """An agent by trace does not read calls without one."""
    assert Fields("trace_id", "tool")(Event({"data": data}, 0, Origin("t", 0, 0), "s")) == key
