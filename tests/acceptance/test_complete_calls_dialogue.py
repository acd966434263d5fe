"""From traffic to evidence: what a call's record says of its course stands in its evidence, recorded or live."""

import json
from typing import Any

import pytest

from assay_stream.model.record import Role
from assay_stream.observe import from_mcp_wire
from tests.support.events import Story
from tests.support.mcp_dialogue import THE_VANTAGE, Dialogue

COURSE = ("rounds", "unmatched_retry", "progress_count", "inputs", "task", "ok", "error", "result_hash")
FORM = {"method": "elicitation/create", "params": {"mode": "form", "message": "?"}}
TALK: list[tuple[str, dict[str, Any]]] = [
    ("client", {"id": 1, "method": "tools/call", "params": {"name": "a", "_meta": {"progressToken": 1}}}),
    ("server", {"method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}),
    (
        "server",
        {"id": 1, "result": {"resultType": "input_required", "inputRequests": {"x": FORM}, "requestState": "s"}},
    ),
    (
        "client",
        {
            "id": 2,
            "method": "tools/call",
            "params": {"name": "a", "requestState": "s", "inputResponses": {"x": {"action": "accept"}}},
        },
    ),
    ("server", {"id": 2, "result": {"resultType": "task", "taskId": "t", "status": "working"}}),
    ("client", {"id": 3, "method": "tools/call", "params": {"name": "b", "requestState": "elsewhere"}}),
    ("client", {"id": 4, "method": "tasks/get", "params": {"taskId": "t"}}),
    ("server", {"id": 4, "result": {"taskId": "t", "status": "completed", "result": {"content": []}}}),
]


def course(data: dict[str, Any]) -> dict[str, Any]:
    return {name: data[name] for name in COURSE if name in data}


def test_the_course_of_a_call_is_the_same_live_recorded_and_in_evidence() -> None:
    live, lines = Dialogue(), []
    observed = []
    for who, message in TALK:
        whole = {"jsonrpc": "2.0", **message}
        direction = "client->server" if who == "client" else "server->client"
        lines.append(json.dumps({"dir": direction, "ts": live.now.isoformat(), "msg": whole}).encode())
        observed += live.client(whole) if who == "client" else live.server(whole)
    observed += live.close()
    recorded = list(
        from_mcp_wire(lines, server_id=THE_VANTAGE.server_id, observer_id=THE_VANTAGE.observer_id, server_scoped=True)
    )
    courses = [course(event["data"]) for event in observed]
    assert [course(json.loads(each.value)["data"]) for each in recorded] == courses
    story = Story()
    for each in recorded:
        story.raw(Role.CALLS, each.value, key=each.key, timestamp_ms=each.timestamp_ms)
    assert [course(payload) for payload in story.tell().evidence] == courses
    chain, retry = courses
    assert (chain["rounds"], chain["progress_count"], chain["task"]["status"], chain["ok"]) == (2, 1, "completed", True)
    assert (retry["unmatched_retry"], retry["error"]) == (True, {"code": "no_response"})


@pytest.mark.parametrize(
    "fields",
    [
        {"task": {"id_hash": "the id itself", "status": "working"}},
        {"task": {"id_hash": "sha256:" + "0" * 64, "status": "a text of the server"}},
        {"inputs": {"requests_hash": "what was asked"}},
        {"inputs": {"elicitation_form": 1}},
        {"rounds": -1},
    ],
)
def test_no_content_can_take_the_place_of_a_hash_a_status_or_a_count(fields: dict[str, Any]) -> None:
    outcome = Story().calls(**fields).tell()
    assert outcome.evidence == []
    assert len(outcome.of(Role.REJECTED)) == 1
