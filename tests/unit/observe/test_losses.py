"""What was dropped: counted by server and observer, within a bound, and said once."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from assay_stream.observe.delivery import Losses
from assay_stream.observe.observation import Observation, Vantage, loss_event
from tests.support.ingest import a_call, a_list
from tests.support.mcp_dialogue import START


def said(losses: Losses) -> list[dict[str, Any]]:
    return [json.loads(event.value)["data"] for event in losses.take(lambda: "id", START)]


def test_lists_and_calls_are_counted_by_server_and_observer_and_said_once() -> None:
    losses = Losses(10)
    for each in (a_call(1), a_call(2), a_list(3), a_call(4, server="mail"), a_call(5, observer="gw-2")):
        losses.note(each)
    assert [(each["server_id"], each["observer_id"], each["lists"], each["calls"]) for each in said(losses)] == [
        ("time", "gw-1", 1, 2),
        ("mail", "gw-1", 0, 1),
        ("time", "gw-2", 0, 1),
    ]
    assert not losses
    assert said(losses) == []


def test_a_count_that_is_dropped_is_not_counted() -> None:
    """Otherwise counts would be counted for ever."""
    losses = Losses(10)
    vantage = Vantage(server_id="time", observer_id="gw-1")
    losses.note(loss_event(vantage, event_id="1", observed_at=START, lists=1, calls=1))
    assert not losses


def test_servers_are_bounded() -> None:
    """Those that are counted already go on being counted."""
    losses = Losses(1)
    for each in (a_call(1), a_call(2, server="mail"), a_call(3)):
        losses.note(each)
    assert [(each["server_id"], each["calls"]) for each in said(losses)] == [("time", 2)]


def test_what_no_record_may_name_is_left_out() -> None:
    """A key that is no text, and an observation without an observer."""
    losses = Losses(10)
    nobody: Observation = replace(a_call(1), headers=())
    losses.note(nobody)
    losses.note(replace(a_call(2), key=b"\xff"))
    assert said(losses) == []
