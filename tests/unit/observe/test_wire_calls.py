"""Calls on the wire, as dialogues."""

from typing import Any

import pytest

from assay_stream.canonical.digest import redacted_digest
from tests.support.mcp_dialogue import Dialogue

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_call_and_its_answer_give_one_event(talk: Dialogue) -> None:
    """With digests, never with arguments, results or the server's words."""
    assert talk.call(3, "add", arguments={"a": 1}, _meta={"traceparent": TRACE}) == []
    [event] = talk.result(3, {"content": [{"type": "text", "text": "secret"}]})
    assert event["time"] == "2026-11-21T02:06:07.386000Z", "when the call was seen, not its answer"
    assert event["traceparent"] == TRACE
    assert event["data"] == {
        "server_id": "the-server",
        "observer_id": "the-observer",
        "tool_name": "add",
        "tool_call_id": "session:3",
        "decision": "allow",
        "reason_code": "forwarded",
        "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
        "args_hash": str(redacted_digest({"a": 1})),
        "result_hash": str(redacted_digest({"content": [{"type": "text", "text": "secret"}]})),
        "ok": True,
        "timing": {
            "started_at": "2026-11-21T02:06:07.386000Z",
            "ended_at": "2026-11-21T02:06:07.387000Z",
            "duration_ms": 1.0,
        },
    }


def test_a_request_with_the_id_of_a_call_is_no_answer(talk: Dialogue) -> None:
    """Not even one that nothing can read."""
    talk.call(1)
    request = {"jsonrpc": "2.0", "id": 1, "method": "x"}
    assert talk.server({**request, "params": {}, "result": {}}) == []
    assert talk.server({**request, "params": []}) == []
    assert [event["data"]["ok"] for event in talk.result(1, {})] == [True]


@pytest.mark.parametrize(
    ("answer", "ok", "code"),
    [
        ({"result": {"isError": True, "content": [{"text": "password"}]}}, False, "tool_error"),
        ({"result": {"isError": False}}, True, None),
        ({"result": {"isError": "true"}}, False, "bad_result"),
        ({"result": {}, "error": {"code": -32603}}, False, "jsonrpc_-32603"),
        ({"result": {"resultType": "complete"}}, True, None),
        ({"result": {"resultType": "a secret"}}, None, "interim_result"),
        ({"result": "text"}, False, "bad_result"),
        ({"error": {"code": -32602, "message": "password"}}, False, "jsonrpc_-32602"),
        ({"error": {"code": "password"}}, False, "jsonrpc_error"),
        ({"error": {"code": True}}, False, "jsonrpc_error"),
        ({"error": "password"}, False, "jsonrpc_error"),
        ({"result": {}, "method": None}, True, None),
        ({"error": {"code": -32602}, "method": "x", "params": []}, False, "jsonrpc_-32602"),
        ({}, False, "jsonrpc_error"),
    ],
)
def test_outcomes(talk: Dialogue, answer: dict[str, Any], ok: bool | None, code: str | None) -> None:
    talk.call(1)
    [event] = talk.server({"jsonrpc": "2.0", "id": 1, **answer})
    assert event["data"].get("ok") is ok
    assert event["data"].get("error") == (None if code is None else {"code": code})
    assert "password" not in str(event)


def test_a_call_names_the_last_snapshot_before_it(talk: Dialogue) -> None:
    """Not the one that came while it ran."""
    talk.call(1)
    [first] = talk.round("tools/list", 2, {"tools": []})
    talk.call(3)
    talk.round("tools/list", 4, {"tools": []})
    [before] = talk.result(1, {})
    [after] = talk.result(3, {})
    assert "snapshot_id" not in before["data"]
    assert after["data"]["snapshot_id"] == first["data"]["snapshot_id"]


def test_calls_without_an_answer_are_given_when_the_wire_closes(talk: Dialogue) -> None:
    """Oldest first, with the decision as made and no outcome."""
    talk.call(1, "a")
    talk.call(2, "b")
    talk.result(1, {})
    talk.call(3, "c")
    events = talk.close()
    assert [event["data"]["tool_name"] for event in events] == ["b", "c"]
    for event in events:
        assert event["data"]["decision"] == "allow"
        assert event["data"]["error"] == {"code": "no_response"}
        assert "ok" not in event["data"]
    assert talk.close() == []


def test_a_cancelled_call_is_given_at_once_and_its_late_answer_ignored(talk: Dialogue) -> None:
    """Cancelling is the client's to do: the same words of the server mean nothing."""
    talk.call("x")
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "x"}}
    assert talk.server(cancel) == []
    [event] = talk.client(cancel)
    assert event["data"]["error"] == {"code": "cancelled"}
    assert talk.client(cancel) == []
    assert talk.result("x", {}) == []


def test_an_id_used_again_while_in_use_gives_the_first_call_up(talk: Dialogue) -> None:
    """Both are recorded, under two names."""
    talk.call(1, "first")
    [first] = talk.call(1, "second")
    [second] = talk.result(1, {})
    assert first["data"]["error"] == {"code": "id_reused"}
    assert second["data"]["tool_name"] == "second"
    assert first["data"]["tool_call_id"] != second["data"]["tool_call_id"]


def test_a_call_without_an_id_is_given_at_once(talk: Dialogue) -> None:
    """There is no answer to wait for, but a server may obey it."""
    [event] = talk.client({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "echo"}})
    assert event["data"]["error"] == {"code": "no_response"}


def test_too_many_calls_under_way_push_out_the_oldest() -> None:
    """It is given, not lost, and counted."""
    talk = Dialogue(pending_max=2)
    assert talk.call(1) == talk.call(2) == []
    [event] = talk.call(3)
    assert event["data"]["tool_call_id"] == "session:1"
    assert talk.observer.stats.evicted_requests == 1
    assert talk.result(1, {}) == []


def test_an_unsound_call_is_recorded_without_digests(talk: Dialogue) -> None:
    """Nothing in it can be hashed, but it was made."""
    talk.client(b'{"id":1,"method":"tools/call","params":{"name":"a","name":"b","arguments":{"x":NaN}}}')
    [event] = talk.result(1, {})
    assert event["data"]["tool_name"] == "b"
    assert event["data"]["reason_code"] == "forwarded_inexact_json"
    assert "args_hash" not in event["data"]


def test_a_very_long_name_is_cut_to_what_is_refused_anyway(talk: Dialogue) -> None:
    [event] = talk.round("tools/call", 1, {}, name="x" * 2_000_000)
    assert len(event["data"]["tool_name"]) == 1_025


def test_absent_arguments_have_no_digest(talk: Dialogue) -> None:
    talk.call(1)
    talk.call(2, arguments={})
    [absent], [empty] = talk.result(1, {}), talk.result(2, {})
    assert "args_hash" not in absent["data"]
    assert empty["data"]["args_hash"] == str(redacted_digest({}))


def test_tool_call_ids_are_unique_whatever_ids_a_client_uses(talk: Dialogue) -> None:
    """Text, numbers, fractions, the same ones again, and very long ones."""
    seen = []
    for number in [5, "5", 5, "5", 4, 6, 6.5, 0, "x" * 5_000, "x" * 5_000, "a\nb", 5]:
        talk.call(number)
        seen.append(talk.result(number, {})[0]["data"]["tool_call_id"])
    assert len(set(seen)) == len(seen)
    assert max(map(len, seen)) < 1_024
    assert seen[0] == "session:5"
    assert seen[5] == "session:6"


def test_time_that_runs_backwards_gives_no_negative_duration(talk: Dialogue) -> None:
    talk.call(1)
    talk.now = talk.now.replace(year=2025)
    [event] = talk.result(1, {})
    assert event["data"]["timing"]["duration_ms"] == 0
