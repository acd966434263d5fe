"""The ids of calls, and their events."""

from __future__ import annotations

from tests.support.mcp_dialogue import Dialogue


def test_tool_call_ids_are_unique_whatever_ids_a_client_uses() -> None:
    """Text, numbers, fractions, the same ones again, and very long ones."""
    talk = Dialogue()
    seen = []
    for number in [5, "5", 5, "5", 4, 6, 6.5, 0, "x" * 5_000, "x" * 5_000, "a\nb", 5]:
        talk.call(number)
        seen.append(talk.result(number, {})[0]["data"]["tool_call_id"])
    assert len(set(seen)) == len(seen)
    assert max(map(len, seen)) < 1_024
    assert seen[0] == "session:5"
    assert seen[5] == "session:6"


def test_time_that_runs_backwards_gives_no_negative_duration() -> None:
    """Clocks are set."""
    talk = Dialogue()
    talk.call(1)
    talk.now = talk.now.replace(year=2025)
    [event] = talk.result(1, {})
    assert event["data"]["timing"]["duration_ms"] == 0
