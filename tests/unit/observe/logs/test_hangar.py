"""MCP Hangar's audit log: calls with their outcome, and nothing else."""

from tests.support.logs import HANGAR, read, whose


def test_calls_that_passed_failed_and_were_denied() -> None:
    """The servers are those that Hangar names; what did not happen is not lacking."""
    calls, lacking = read("hangar", *HANGAR.read_bytes().splitlines(), log=whose(None))
    assert [(call["server_id"], call["tool_name"]) for call in calls] == [("time", "get_current_time")] * 3
    assert [(call["decision"], call["reason_code"], call.get("ok"), call.get("error")) for call in calls] == [
        ("allow", "forwarded", True, None),
        ("allow", "forwarded", False, {"code": "tool_error"}),
        ("deny", "circuit_open", None, {"code": "not_passed_on"}),
    ]
    assert calls[0]["not_observed"] == ["arguments", "call_id", "result"]
    assert lacking == {"arguments": 3, "call_id": 3, "result": 2}
    assert calls[0]["timing"]["ended_at"] == "2026-11-22T18:11:18.947016Z"


def test_a_servers_name_can_be_the_operators() -> None:
    calls, _ = read("hangar", *HANGAR.read_bytes().splitlines(), log=whose(None, servers={"time": "clock"}))
    assert {call["server_id"] for call in calls} == {"clock"}
