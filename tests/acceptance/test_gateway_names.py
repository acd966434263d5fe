"""Tools behind a gateway that puts prefixes before their names: one digest, one tool, and both names on record."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from assay_stream.model.evidence import Producer
from assay_stream.observe import Observation, Vantage, call_event, snapshot_event
from tests.support.engine import EngineState
from tests.support.events import read_live, record_of

AT = datetime(2026, 11, 21, 10, tzinfo=UTC)
TOOL = {"name": "create_issue", "description": "Create an issue.", "inputSchema": {"type": "object"}}


def evidence_of(vantage: Vantage) -> dict[str, Any]:
    listing = snapshot_event(
        vantage, event_id="1", snapshot_id="s", observed_at=AT, completeness="complete", tools=[TOOL]
    )
    call = call_event(
        vantage,
        event_id="2",
        observed_at=AT + timedelta(seconds=1),
        tool_name="create_issue",
        tool_call_id="c",
        decision="allow",
        reason_code="forwarded",
        snapshot_id="s",
    )
    state = EngineState(producer=Producer(version="1"))
    evidence = read_live(state, [recorded(listing), recorded(call)])[-1]
    data: dict[str, Any] = json.loads(evidence.value or b"")["data"]
    return data


def recorded(observation: Observation) -> Any:
    return record_of(observation.role, observation.value, key=observation.key, timestamp_ms=observation.timestamp_ms)


def test_evidence_through_a_gateway_is_that_of_the_server_and_names_both() -> None:
    direct = evidence_of(Vantage(server_id="github", observer_id="o", server_scoped=True))
    through = evidence_of(Vantage(server_id="github", observer_id="o", server_scoped=True, shown_prefix="github_"))
    assert through.pop("shown_tool_name") == "github_create_issue"
    assert through == direct
    assert direct["tool"] == "create_issue"
    assert direct["binding"]["scope"] == "exact"


def test_a_snapshot_says_what_the_client_was_shown() -> None:
    vantage = Vantage(server_id="github", observer_id="o", shown_prefix="github_")
    event = snapshot_event(vantage, event_id="1", snapshot_id="s", observed_at=AT, completeness="partial", tools=[TOOL])
    data = json.loads(event.value)["data"]
    assert (data["shown_prefix"], data["tools"][0]["name"]) == ("github_", "create_issue")
