"""The wire observer as a whole."""

import json

import pytest
from hypothesis import given, strategies as st

from assay_stream.observe.wire import WireStats
from tests.support.mcp_dialogue import Dialogue, data_of, tool

CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "a"}}
LINES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [
            b'{"id":1,"method":"tools/list"}',
            b'{"id":1,"method":"tools/call","params":{"name":"a"}}',
            b'{"id":1,"result":{"tools":[]}}',
            b'{"id":1,"method":["x"]}',
            b'{"id":{},"method":"tools/list","params":3}',
            b'{"method":"notifications/cancelled","params":{"requestId":1}}',
            b'{"method":"notifications/tools/list_changed"}',
            b'[{"id":1,"result":null},[],null]',
            b'{"id":1,"result":{"nextCursor":{},"tools":null}}',
            b'{"id":NaN,"method":"tools/call"}',
            b'{"id":1e999,"method":"tools/call"}',
        ]
    ),
)


@pytest.mark.parametrize(
    "line",
    [
        json.dumps(CALL).encode("utf-16"),
        json.dumps(CALL | {"Method": "ping"}).encode(),
        json.dumps(CALL).encode()[:-1] + b',"method":"ping"}',
        json.dumps([[CALL]]).encode(),
        b'{"a":\r' + json.dumps(CALL).encode() + b"\r}",
        b"{",
    ],
)
def test_a_line_that_may_be_a_call_to_some_servers_is_on_record_as_lost(talk: Dialogue, line: bytes) -> None:
    lost = data_of(talk.raw("client->server", line))
    assert [each["calls"] for each in lost if "calls" in each] == [1]


def test_many_lines_lost_at_once_make_one_record(talk: Dialogue) -> None:
    for _ in range(3):
        at = talk.now
        assert len([each for _ in range(100) for each in talk.observer.feed("client->server", b"{", at)]) == 1
        talk.raw("server->client", b"{}")


@given(st.lists(st.tuples(st.sampled_from(["client->server", "server->client"]), LINES), max_size=30))
def test_nothing_raises_and_every_call_gives_one_event(lines: list[tuple[str, bytes]]) -> None:
    # A pipe would make several lines of one that holds a line feed.
    talk = Dialogue(cut=not any(b"\n" in line for _, line in lines))
    observations = [item for direction, line in lines for item in talk.raw(direction, line)]  # type: ignore[arg-type]
    observations += talk.observer.close(talk.now)
    stats = talk.observer.stats
    observations = [item for item in observations if b'"type":"mcp.observer.loss.' not in item.value[:200]]
    kinds = [b'"type":"mcp.tools.list_changed' in item.value[:200] or item.kind for item in observations]
    assert kinds.count("call") == stats.calls
    assert kinds.count("list") == stats.snapshots
    assert kinds.count(True) <= stats.list_changes
    assert len({observation.value for observation in observations}) == len(observations)


def test_a_batch_is_its_messages_in_order(talk: Dialogue) -> None:
    talk.client(
        [
            {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "a"}},
        ]
    )
    events = talk.server(
        [{"jsonrpc": "2.0", "id": 2, "result": {}}, {"jsonrpc": "2.0", "id": 1, "result": {"tools": [tool("a")]}}]
    )
    assert [event["type"] for event in events] == ["mcp.tools.call.observed", "mcp.tools.list.observed"]


def test_what_the_server_asks_and_the_client_answers_is_not_taken_for_the_reverse(talk: Dialogue) -> None:
    """Both sides count their requests from one."""
    talk.call(1)
    assert talk.server({"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {}}) == []
    assert talk.client({"jsonrpc": "2.0", "id": 1, "result": {}}) == []
    assert talk.server({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "a"}}) == []
    assert len(talk.result(1, {})) == 1


def test_what_cannot_be_read_is_counted(talk: Dialogue) -> None:
    talk.server(b"Server listening on stdio")
    talk.server(b"")
    talk.server(b'{"id":1,"id":2,"result":{}}')
    talk.client({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert talk.observer.stats == WireStats(lines=3, malformed_lines=1, inexact_lines=1, unmatched_responses=1)
    assert talk.observer.stats.as_dict()["lines"] == 3


def test_calls_of_a_refused_line_are_denied_and_nothing_waits_for_their_answers(talk: Dialogue) -> None:
    """Each with its own reason; other requests of the line leave nothing behind."""
    batch = [
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "a", "arguments": {"x": 1}}},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
        {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "b"}},
    ]
    raw = json.dumps(batch).encode()
    line = talk.observer.read(raw)
    found = talk.observer.refuse(line, lambda call: f"because_{call['params']['name']}", talk.now)
    events = data_of(found)
    assert [(each["tool_name"], each["decision"], each["reason_code"]) for each in events] == [
        ("a", "deny", "because_a"),
        ("b", "deny", "because_b"),
    ]
    assert events[0]["error"] == {"code": "not_passed_on"}
    assert events[0]["args_hash"].startswith("sha256:")
    assert "ok" not in events[0]
    assert "result_hash" not in events[0]
    assert talk.result(1, {}) == talk.result(2, {"tools": []}) == talk.close() == []
    assert talk.observer.stats.calls == 2
