"""Announced changes on the wire, as dialogues, and in traffic of a real server."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.observe.adapters import from_mcp_wire, from_observations
from tests.support.mcp_dialogue import Dialogue, names, tool

NOTICE = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
ON_A_STREAM = NOTICE | {"params": {"_meta": {"io.modelcontextprotocol/subscriptionId": "3"}}}
CAPTURES = Path(__file__).resolve().parents[2] / "data" / "captures" / "wire"


def listed(talk: Dialogue, number: int, *tools: str, **params: Any) -> dict[str, Any]:
    """The snapshot of one list."""
    talk.request("tools/list", number, **params)
    [snapshot] = talk.result(number, {"tools": [tool(name) for name in tools]})
    return snapshot


@pytest.mark.parametrize(
    "message",
    [
        NOTICE,
        ON_A_STREAM,
        NOTICE | {"id": 5},
        [NOTICE],
        b'{"method":"notifications/tools/list_changed","a":1,"a":2}',
    ],
    ids=["by itself", "on a subscription's stream", "as a request", "in a batch", "inexact JSON"],
)
def test_an_announced_change_is_an_event_however_it_comes(message: object) -> None:
    """It names the server, the observer and the connection."""
    talk = Dialogue()
    [event] = talk.server(message)
    assert event["type"] == "mcp.tools.list_changed.observed"
    assert event["data"] == {"server_id": "the-server", "observer_id": "the-observer", "session_id": "session"}
    assert talk.observer.stats.list_changes == 1
    assert talk.observer.stats.snapshots == 0


def test_the_client_cannot_announce() -> None:
    """What it says of lists is not the server's word."""
    talk = Dialogue()
    listed(talk, 1, "echo")
    assert talk.client(NOTICE) == []
    talk.call(2)
    [call] = talk.result(2, {})
    assert "snapshot_id" in call["data"]


def test_calls_after_it_name_no_list_until_the_next_one() -> None:
    """A call under way keeps the list that it was made on."""
    talk = Dialogue()
    old = listed(talk, 1, "echo")["data"]["snapshot_id"]
    talk.call(2)
    talk.server(NOTICE)
    talk.call(3)
    new = listed(talk, 4, "echo")["data"]["snapshot_id"]
    talk.call(5)
    named = [talk.result(number, {})[0]["data"].get("snapshot_id") for number in (2, 3, 5)]
    assert named == [old, None, new]


def test_repeated_announcements_are_published_seldom() -> None:
    """They change nothing until a list; but that none follows must show within the limit."""
    talk = Dialogue()
    assert sum(len(talk.server(NOTICE)) for _ in range(1_000)) == 1
    assert talk.observer.stats.list_changes == 1_000
    talk.now += timedelta(milliseconds=DEFAULT_LIMITS.announced_limit_ms / 2)
    assert len(talk.server(NOTICE)) == 1
    listed(talk, 1, "echo")
    assert len(talk.server(NOTICE)) == 1


def test_pages_from_before_it_are_no_part_of_the_next_list() -> None:
    """What the server changed since is not known of them."""
    talk = Dialogue()
    talk.request("tools/list", 1)
    talk.result(1, {"tools": [tool("old")], "nextCursor": "2"})
    talk.request("tools/list", 2, cursor="2")
    talk.server(NOTICE)
    [under_way] = talk.result(2, {"tools": [tool("new")], "nextCursor": "3"})
    assert (names(under_way), under_way["data"]["completeness"]) == (["new"], "unknown")
    talk.server(NOTICE)
    continued = listed(talk, 3, "last", cursor="3")
    assert (names(continued), continued["data"]["completeness"]) == (["last"], "unknown")


def test_prompts_that_become_known_after_it_do_not_bring_the_old_list_back() -> None:
    """A snapshot would put the old tools in force again."""
    talk = Dialogue()
    listed(talk, 1, "echo")
    talk.server(NOTICE)
    talk.request("prompts/list", 2)
    assert talk.result(2, {"prompts": [{"name": "p"}]}) == []


@pytest.mark.parametrize(
    ("name", "first"),
    [("", []), ("+client-all", ["list"]), ("+client-nocaps", ["list"]), ("+client-roots", ["list"])],
)
def test_a_real_server_announces_and_its_client_lists_again(name: str, first: list[str]) -> None:
    """Up to four notifications in one millisecond are one announcement, and the list behind it counts."""
    lines = (CAPTURES / f"server-everything@2026.8.31{name}.jsonl").read_bytes().splitlines()
    events = [json.loads(observation.value) for observation in from_mcp_wire(lines, server_id="s", observer_id="o")]
    kinds = [event["type"].split(".")[2] for event in events]
    assert [kind for kind in kinds if kind != "call"] == [*first, "list_changed", "list"]


def test_recorded_announcements_are_published_again_as_they_are() -> None:
    """With the header that names their observer; so are lines that nobody can read, as far as they name one."""
    talk = Dialogue()
    [event] = talk.server(NOTICE)
    whole = json.dumps(event).encode()
    broken = whole.replace(b'"session_id"', b'"observer_id": "the-observer", "session_id"')
    for line in (whole, broken):
        [observation] = from_observations([line])
        assert (observation.kind, observation.value, observation.key) == ("list", line, b"the-server")
        assert dict(observation.headers)["assay-observer-id"] == b"the-observer"
