"""Scenarios: tests of agents as data."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from assay_stream.agents import Agent, Detection, Event, Evidence, Memory
from assay_stream.agents.scenario import ScenarioResult, read_scenario, run_scenario
from assay_stream.agents.shipped import open_alert_called_agent, toxic_flow_agent
from assay_stream.errors import InputError
from tests.support.agents import a_set


def run(agent: Agent, given: list[dict[str, Any]], *found: dict[str, Any]) -> ScenarioResult:
    """What comes of one test."""
    test = {"name": "t", "given": given, "found": list(found)}
    [result] = run_scenario(read_scenario({"agents": "m", "tests": [test]}), a_set(agent))
    return result


ALERT = {"alert": {"server_id": "mail", "tool_name": "send"}}
CALL = {"at": 5, "evidence": {"server_id": "mail", "tool": "send"}}


def test_what_is_found_as_expected_passes() -> None:
    """Only what the scenario names of a detection is compared."""
    assert (
        run(open_alert_called_agent, [ALERT, CALL], {"at": 5, "tool_name": "send", "severity": "high"}).complaints == []
    )


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        ([], "0 detections are expected, 1 were found"),
        ([{}, {}], "2 detections are expected, 1 were found"),
        ([{"at": 4}], "detection 1: at is 5.0, not 4.0"),
        ([{"agent": "other"}], "detection 1: agent is 'open_alert_called', not 'other'"),
    ],
)
def test_what_is_found_otherwise_is_told(found: list[dict[str, Any]], complaint: str) -> None:
    """What was expected and what was found."""
    assert run(open_alert_called_agent, [ALERT, CALL], *found).complaints == [complaint]


def test_a_definition_is_known_by_the_digest_that_evidence_names() -> None:
    """A short name will do for a digest."""
    given: list[dict[str, Any]] = [{"definition": {"full_digest": name, "name": name}} for name in ("fetch", "file")]
    given += [
        {"at": 1, "evidence": {"trace_id": "t", "binding": {"scope": "exact", "full_digest": "fetch"}}},
        {"at": 2, "evidence": {"trace_id": "t", "binding": {"scope": "exact", "full_digest": "file"}}},
        {"at": 3, "evidence": {"trace_id": "t", "binding": {"scope": "exact", "full_digest": "send"}}},
        {"definition": {"full_digest": "send", "name": "send"}},
    ]
    assert run(toxic_flow_agent, given, {"at": 3, "key": ["t"]}).complaints == []


def test_an_agent_that_counts_outside_its_memory_fails() -> None:
    """It would find something else in a replay."""
    agent, calls = Agent("leaky", title="Leaky"), count()

    @agent.evidence(key=lambda event: event.server_id)
    def on_call(_event: Event[Evidence], _memory: Memory) -> Iterator[Detection]:
        yield Detection(tool_name=f"{next(calls)}")

    [complaint] = run(agent, [CALL], {}).complaints
    assert "another run" in complaint


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"at": 1}, "$.tests[0].given[0]"),
        (CALL | ALERT, "$.tests[0].given[0]"),
        ({"evidence": {"toll": "x"}}, "$.tests[0].given[0]"),
        ({"alert": {"severity": "urgent"}}, "$.tests[0].given[0].alert.severity"),
        ({"evidense": {}}, "$.tests[0].given[0].evidense"),
    ],
)
def test_a_wrong_scenario_is_refused_with_the_place(given: dict[str, Any], path: str) -> None:
    """A misspelt field must not make a test that passes for the wrong reason."""
    with pytest.raises(InputError) as refused:
        run(open_alert_called_agent, [given])
    assert (refused.value.code, refused.value.path) == ("bad_scenario", path)
