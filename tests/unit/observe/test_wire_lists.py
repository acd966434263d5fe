"""Lists on the wire, as dialogues."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from assay_stream.errors import InputError
from assay_stream.model.cloudevents import read_event
from tests.support.mcp_dialogue import START, Dialogue, names, tool
from tests.unit.observe.test_events import as_record

MODERN = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}


def test_every_result_gives_a_snapshot_of_what_is_put_together_so_far() -> None:
    """Partial, then complete, each with an id of its own."""
    talk = Dialogue()
    talk.request("tools/list", 1)
    [first] = talk.result(1, {"tools": [tool("a")], "nextCursor": ""})
    talk.request("tools/list", 2, cursor="")
    [second] = talk.result(2, {"tools": [tool("b")]})
    assert (names(first), first["data"]["completeness"]) == (["a"], "partial")
    assert (names(second), second["data"]["completeness"]) == (["a", "b"], "complete")
    assert first["data"]["snapshot_id"] != second["data"]["snapshot_id"]
    assert first["time"] == "2026-11-21T02:06:07.387000Z"


def test_a_null_cursor_is_no_cursor() -> None:
    """Some clients and servers send it."""
    talk = Dialogue()
    talk.request("tools/list", 1, cursor=None)
    [snapshot] = talk.result(1, {"tools": [], "nextCursor": None})
    assert snapshot["data"]["completeness"] == "complete"


def test_the_protocol_version_comes_from_either_era() -> None:
    """From the answer to initialize, or from each request."""
    talk = Dialogue()
    talk.request("initialize", 0, protocolVersion="2099-01-01")
    assert talk.result(0, {"protocolVersion": "2025-06-18"}) == []
    talk.request("tools/list", 1)
    [legacy] = talk.result(1, {"tools": []})
    talk.request("tools/list", 2, _meta=MODERN)
    [modern] = talk.result(2, {"tools": [], "resultType": "complete"})
    assert legacy["data"]["protocol_version"] == "2025-06-18"
    assert modern["data"]["protocol_version"] == "2026-07-28"


def test_prompts_and_resource_templates_go_with_the_next_snapshot() -> None:
    """When they are known whole."""
    talk = Dialogue()
    talk.request("prompts/list", 1)
    assert talk.result(1, {"prompts": [{"name": "p"}], "nextCursor": "2"}) == []
    talk.request("resources/templates/list", 2)
    talk.result(2, {"resourceTemplates": [{"name": "t"}]})
    talk.request("tools/list", 3)
    [before] = talk.result(3, {"tools": []})
    talk.request("prompts/list", 4, cursor="2")
    talk.result(4, {"prompts": [{"name": "q"}]})
    talk.request("tools/list", 5)
    [after] = talk.result(5, {"tools": []})
    assert "prompts" not in before["data"]
    assert before["data"]["resource_templates"] == [{"name": "t"}]
    assert after["data"]["prompts"] == [{"name": "p"}, {"name": "q"}]


def test_prompts_that_are_asked_for_after_the_tools_are_published_with_them_once_more() -> None:
    """Once known whole, and once for each content: most clients ask in this order, and only once."""
    talk = Dialogue()
    talk.request("tools/list", 1)
    talk.result(1, {"tools": [tool("a")]})
    talk.request("prompts/list", 2)
    assert talk.result(2, {"prompts": [{"name": "p"}], "nextCursor": "2"}) == []
    talk.request("prompts/list", 3, cursor="2")
    [snapshot] = talk.result(3, {"prompts": [{"name": "q"}]})
    assert names(snapshot) == ["a"]
    assert snapshot["data"]["completeness"] == "complete"
    assert snapshot["data"]["prompts"] == [{"name": "p"}, {"name": "q"}]
    talk.request("resources/templates/list", 4)
    [snapshot] = talk.result(4, {"resourceTemplates": [{"name": "t"}]})
    assert snapshot["data"]["prompts"] == [{"name": "p"}, {"name": "q"}]
    assert snapshot["data"]["resource_templates"] == [{"name": "t"}]
    talk.request("resources/templates/list", 5)
    assert talk.result(5, {"resourceTemplates": [{"name": "t"}]}) == []
    [call] = talk.call(6) or talk.result(6, {})
    assert call["data"]["snapshot_id"] == snapshot["data"]["snapshot_id"]


@pytest.mark.parametrize("tools", [{"tools": [3]}, {"tools": {}}, {}])
def test_prompts_do_not_repeat_a_list_of_tools_that_cannot_be_accepted(tools: dict[str, Any]) -> None:
    """Nor the one before it, which is in force no more."""
    talk = Dialogue()
    talk.request("tools/list", 1)
    talk.result(1, {"tools": [tool("a")]})
    talk.request("tools/list", 2)
    talk.result(2, tools)
    talk.request("prompts/list", 3)
    assert talk.result(3, {"prompts": [{"name": "p"}]}) == []


def test_prompts_that_come_amid_the_tools_wait_for_them() -> None:
    """What is under way gives the snapshot."""
    talk = Dialogue()
    talk.request("tools/list", 1)
    talk.result(1, {"tools": [tool("a")]})
    talk.request("tools/list", 2)
    talk.request("prompts/list", 3)
    assert talk.result(3, {"prompts": [{"name": "p"}]}) == []
    [snapshot] = talk.result(2, {"tools": [tool("b")]})
    assert names(snapshot) == ["b"]
    assert snapshot["data"]["prompts"] == [{"name": "p"}]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b'{"id":1,"result":{"tools":[{"name":"a","name":"b"}]}}', "duplicate_key"),
        (b'{"result":{"tools":[{"x":NaN}]},"id":1}', "non_finite_number"),
        (b'{"result":{"tools":' + b"[" * 10_000 + b"]" * 10_000 + b'},"id":1}', "too_deep"),
        (b'{"result":{"tools":["\xff"]},"id":1}', "not_utf8"),
        (b'{"result":{"tools":{}},"id":1}', "wrong_type"),
        (b'{"result":{},"id":1}', "wrong_type"),
        (b'{"result":[],"id":1}', "wrong_type"),
        (b'{"result":{"tools":[3]},"id":1}', "wrong_type"),
        (b'{"result":{"tools":["' + b"x" * 9_000_000 + b'"]},"id":1}', "wrong_type"),
        (b'{"result":{"tools":[NaN,"' + b"x" * 9_000_000 + b'"]},"id":1}', "wrong_type"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_list_that_cannot_be_accepted_is_published_for_the_registry_to_refuse(answer: bytes, code: str) -> None:
    """It must not vanish: the old list would stay in force."""
    talk = Dialogue()
    talk.request("tools/list", 1)
    [observation] = talk.raw("server->client", answer)
    with pytest.raises(InputError) as refused:
        read_event(as_record(observation))
    assert refused.value.code == code
    assert observation.key == b"the-server"
    [call] = talk.call(2) or talk.result(2, {})
    assert call["data"]["snapshot_id"] == "id-1", "the call names the refused snapshot, not an older one"


def test_a_line_nobody_saw_counts_as_a_bad_list_while_one_is_awaited() -> None:
    """The next list that is seen mends it."""
    talk = Dialogue()
    assert talk.observer.missed("server->client", START) == []
    talk.request("tools/list", 1)
    assert talk.observer.missed("client->server", START) == []
    [observation] = talk.observer.missed("server->client", START + timedelta(seconds=1))
    with pytest.raises(InputError, match="wrong_type"):
        read_event(as_record(observation))
    [snapshot] = talk.result(1, {"tools": [tool("a")]})
    assert snapshot["data"]["completeness"] == "complete"
    assert talk.observer.stats.missed_lines == 3


def test_an_answer_whose_number_became_text_is_still_the_list() -> None:
    """Clients turn it back; a server must not hide a list that way."""
    talk = Dialogue()
    talk.request("tools/list", 7)
    [snapshot] = talk.result("7", {"tools": [tool("a")]})
    assert names(snapshot) == ["a"]


def test_an_answer_to_another_id_is_nobodys() -> None:
    """Text and number are two ids where both are awaited."""
    talk = Dialogue()
    talk.request("tools/list", "1")
    talk.request("prompts/list", 1)
    assert talk.result(1, {"prompts": []}) == []
    assert talk.result(2, {"tools": []}) == []
    [snapshot] = talk.result("1", {"tools": []})
    assert snapshot["data"]["tools"] == []
    assert talk.observer.stats.unmatched_responses == 1


def test_an_error_is_no_list() -> None:
    """What was known stays known."""
    talk = Dialogue()
    talk.request("tools/list", 1)
    assert talk.server({"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "no"}}) == []


def test_what_does_not_fit_goes_without_its_companions() -> None:
    """Tools matter most."""
    talk = Dialogue()
    talk.request("prompts/list", 1)
    talk.result(1, {"prompts": [{"name": "x" * 5_000_000}]})
    talk.request("tools/list", 2)
    [snapshot] = talk.result(2, {"tools": [{"name": "y" * 5_000_000}]})
    assert "prompts" not in snapshot["data"]
    assert len(snapshot["data"]["tools"]) == 1


def test_too_many_lists_under_way_push_out_the_oldest() -> None:
    """Memory is bounded, and it is counted."""
    talk = Dialogue(pending_max=2)
    for number in range(3):
        talk.request("tools/list", number)
    assert talk.result(0, {"tools": []}) == []
    assert len(talk.result(1, {"tools": []})) == 1
    assert talk.observer.stats.evicted_requests == 1
