"""What was dropped: counted by server and observer, within a bound, and said once."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from assay_stream.observe.delivery import Losses
from assay_stream.observe.observation import Observation
from tests.support.ingest import a_call
from tests.support.mcp_dialogue import START


def said(losses: Losses) -> list[dict[str, Any]]:
    return [json.loads(event.value)["data"] for event in losses.take(lambda: "id", START)]


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
