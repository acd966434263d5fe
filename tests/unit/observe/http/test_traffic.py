"""Exchanges of HTTP become observations: what belongs together, and what becomes of requests that stay open."""

import itertools
import json
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from assay_stream.bindings.controls import VerdictTable
from assay_stream.limits import DEFAULT_LIMITS, HTTP_LIMITS
from assay_stream.observe import Observation
from assay_stream.observe.gate import HidingGate
from assay_stream.observe.http.connections import Contexts, Ending, Exchange
from assay_stream.observe.http.traffic import Answered, Closed, HttpEvent, Opened, Passed, Traffic
from tests.support.mcp_dialogue import START, THE_VANTAGE, data_of
from tests.unit.observe.http.test_credentials import a_token

MODERN = {"MCP-Protocol-Version": "2026-07-28"}
JSON = {"Content-Type": "application/json"}
SSE = {"Content-Type": "text/event-stream"}
TOOL = {"name": "echo", "inputSchema": {}}


def a_traffic(**limits: int) -> Traffic:
    ids = itertools.count(1)
    return Traffic(
        THE_VANTAGE,
        Contexts(b"key", b"process"),
        new_id=lambda: f"id-{next(ids)}",
        limits=replace(HTTP_LIMITS, **limits),
        message_bytes_max=10_000,
    )


def in_pieces(event: HttpEvent) -> list[HttpEvent]:
    """The same event byte by byte, or of a long body in some thousand pieces."""
    if not isinstance(event, Passed) or not event.data:
        return [event]
    size = len(event.data) // 4_000 + 1
    return [Passed(event.direction, event.data[start : start + size]) for start in range(0, len(event.data), size)]


class Wire:
    """Every body is observed as it comes, and again in pieces, unless ``cut`` says otherwise."""

    def __init__(self, *, cut: bool = True, **limits: int) -> None:
        self.traffic = a_traffic(**limits)
        self._pieces = a_traffic(**limits) if cut else None
        self.now = START
        self.observed: list[dict[str, Any]] = []
        self._numbers = itertools.count(1)

    def _note(self, observations: list[Observation]) -> None:
        self.now += timedelta(milliseconds=1)
        self.observed += data_of(observations)

    def takes(self, number: int, event: HttpEvent) -> None:
        observations = self.traffic.receive(number, event, self.now).observations
        if self._pieces is not None:
            received = [self._pieces.receive(number, piece, self.now) for piece in in_pieces(event)]
            assert [each for commands in received for each in commands.observations] == observations
        self._note(observations)

    def posts(self, message: Any, *, method: str = "POST", **fields: str) -> Exchange:
        head = list((JSON | {name.replace("_", "-"): value for name, value in fields.items()}).items())
        number = next(self._numbers)
        self.takes(number, Opened(method, head))
        exchange = self.traffic.exchanges[number]
        if message is not None:
            body = message if isinstance(message, bytes) else json.dumps(message).encode()
            self.takes(exchange.number, Passed("client->server", body))
        self.takes(exchange.number, Passed("client->server", None))
        return exchange

    def answers(self, exchange: Exchange, *messages: Any, status: int = 200, **fields: str) -> None:
        head = list((SSE | {name.replace("_", "-"): value for name, value in fields.items()}).items())
        self.takes(exchange.number, Answered(status, head))
        for message in messages:
            event = b"data: " + json.dumps(message).encode() + b"\n\n"
            self.takes(exchange.number, Passed("server->client", event))

    def finishes(self, exchange: Exchange, *messages: Any, status: int = 200, **fields: str) -> None:
        self.answers(exchange, *messages, status=status, **fields)
        self.ends(exchange)

    def passes(self, exchange: Exchange, data: bytes) -> None:
        self.takes(exchange.number, Passed("server->client", data))

    def ends(self, exchange: Exchange, ending: Ending = "complete") -> None:
        if ending == "complete":
            self.takes(exchange.number, Passed("server->client", None))
        self.takes(exchange.number, Closed(ending))

    def round(self, message: Any, result: Any, **fields: str) -> None:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        self.finishes(self.posts(message, **fields), answer)

    def closes(self) -> None:
        self._note(self.traffic.close(self.now))


@pytest.fixture
def wire() -> Wire:
    return Wire()


def ask(method: str, number: Any = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def call(number: Any = 1, name: str = "echo") -> dict[str, Any]:
    return ask("tools/call", number, name=name, arguments={})


def result(number: Any = 1, **content: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "result": content}


def errors(wire: Wire) -> list[str | None]:
    return [each["error"]["code"] if "error" in each else None for each in wire.observed if "tool_name" in each]


def test_equal_ids_of_clients_without_a_session_are_told_apart(wire: Wire) -> None:
    """Every stateless client counts from 1: each response answers the request of its own exchange."""
    wire.round(ask("tools/list"), {"tools": [TOOL]}, **MODERN)
    one, two = wire.posts(call(2, "one"), **MODERN), wire.posts(call(2, "two"), **MODERN)
    wire.finishes(two, result(2, isError=True))
    wire.finishes(one, result(2))
    snapshot, *calls = wire.observed
    assert [(each["tool_name"], each["ok"]) for each in calls] == [("two", False), ("one", True)]
    assert {each["snapshot_id"] for each in calls} == {snapshot["snapshot_id"]}
    assert len({each["tool_call_id"] for each in calls}) == 2


@pytest.mark.parametrize(
    "elsewhere",
    [
        result(2, isError=True),
        result("2", isError=True),
        {"jsonrpc": "2.0", "id": 2, "error": {"code": -32603, "message": "no"}},
        result(2, content=["other"]),
        result(2, resultType="input_required"),
    ],
)
def test_a_call_with_two_answers_that_differ_is_no_success(wire: Wire, elsewhere: dict[str, Any]) -> None:
    """Clients that go by the id took the one on the other stream, which came first."""
    stream = wire.posts(None, method="GET", Mcp_Session_Id="a")
    asked = wire.posts(call(2), Mcp_Session_Id="a")
    wire.answers(stream, elsewhere)
    wire.finishes(asked, result(2, content=[]))
    wire.answers(stream, result(2, content=[]))
    [record] = wire.observed
    assert record.get("ok") is None
    assert record["error"]["code"] == "answers_differ"


@pytest.mark.parametrize("inline", [True, False], ids=["2026-07-28", "2025-11-25"])
@pytest.mark.parametrize("other", [{"content": ["other"]}, {"content": [], "isError": True}, {"content": []}])
def test_a_task_with_two_answers_that_differ_is_no_success(inline: bool, other: dict[str, Any]) -> None:
    """As with a call: clients that go by the id took the one on the other stream, which came first."""
    wire, done = Wire(), dict[str, Any](content=[])
    task = {"taskId": "t", "status": "working"}
    stream = wire.posts(None, method="GET", Mcp_Session_Id="a")
    if inline:
        wire.round(call(2), result(2, resultType="task", **task)["result"], Mcp_Session_Id="a")
        method = "tasks/get"
        answers: list[dict[str, Any]] = [{**task, "status": "completed", "result": each} for each in (other, done)]
    else:
        request = call(2)
        request["params"]["task"] = {}
        wire.round(request, {"task": task}, Mcp_Session_Id="a")
        method, answers = "tasks/result", [other, done]
    asked = wire.posts({"jsonrpc": "2.0", "id": 3, "method": method, "params": {"taskId": "t"}}, Mcp_Session_Id="a")
    wire.answers(stream, {"jsonrpc": "2.0", "id": 3, "result": answers[0]})
    wire.finishes(asked, {"jsonrpc": "2.0", "id": 3, "result": answers[1]})
    [record] = wire.observed
    if other == done:
        assert (record["ok"], record.get("error")) == (True, None)
    else:
        assert (record.get("ok"), record["error"]["code"]) == (None, "answers_differ")
    assert "result_hash" in record


def test_a_call_with_two_equal_answers_or_an_error_is_what_they_say(wire: Wire) -> None:
    """An error is one, whatever came elsewhere; and the answer to another call says nothing of this one."""
    stream = wire.posts(None, method="GET", Mcp_Session_Id="a")
    wire.answers(stream)
    for number, own in ((2, {}), (3, {"isError": True})):
        asked = wire.posts(call(number), Mcp_Session_Id="a")
        wire.answers(stream, result(number), result(9, isError=True))
        wire.finishes(asked, result(number, **own))
    assert [each["ok"] for each in wire.observed] == [True, False]
    assert errors(wire) == [None, "tool_error"]


def test_sessions_are_connections_of_their_own(wire: Wire) -> None:
    """What one session was shown is nothing that another one goes by."""
    for session in ("a", "b"):
        wire.round(ask("tools/list"), {"tools": [TOOL]}, Mcp_Session_Id=session)
    for session in ("b", "a"):
        wire.round(call(2), {}, Mcp_Session_Id=session)
    first, second, *calls = wire.observed
    assert [each["snapshot_id"] for each in calls] == [second["snapshot_id"], first["snapshot_id"]]


def test_the_session_begins_with_the_response_to_initialize(wire: Wire) -> None:
    """Its version is that of the session's lists."""
    hello = wire.posts(ask("initialize", protocolVersion="2025-06-18"))
    wire.finishes(hello, result(protocolVersion="2025-06-18"), Mcp_Session_Id="s")
    wire.round(ask("tools/list", 2), {"tools": [TOOL]}, Mcp_Session_Id="s")
    wire.round(ask("tools/list", 2), {"tools": [TOOL]})
    assert [each.get("protocol_version") for each in wire.observed] == ["2025-06-18", None]


def test_a_stream_that_broke_goes_on_in_a_later_one(wire: Wire) -> None:
    """Last-Event-ID: the response comes on a GET stream of the session."""
    wire.round(ask("tools/list"), {"tools": [TOOL]}, Mcp_Session_Id="s")
    broken = wire.posts(call(2), Mcp_Session_Id="s")
    wire.answers(broken)
    wire.ends(broken, "upstream_failed")
    listing = wire.posts(ask("tools/list", 3), Mcp_Session_Id="s")
    wire.answers(listing)
    wire.ends(listing, "client_left")
    resumed = wire.posts(None, method="GET", Mcp_Session_Id="s", Last_Event_ID="7")
    wire.answers(resumed, result(2), result(3, tools=[TOOL]))
    assert [each.get("ok", "list") for each in wire.observed] == ["list", True, "list"]


@pytest.mark.parametrize(
    ("fields", "status", "ending", "code", "ok"),
    [
        (MODERN, None, "client_left", "cancelled", None),
        (MODERN, 200, "client_left", "cancelled", None),
        ({}, 200, "client_left", "no_response", None),
        (MODERN, 200, "complete", "no_response", None),
        (MODERN, 200, "upstream_failed", "upstream_failed", None),
        (MODERN, None, "upstream_failed", "upstream_failed", None),
        (MODERN, 401, "complete", "http_401", False),
        ({"Mcp-Session-Id": "s"}, 404, "complete", "http_404", False),
        ({"Mcp-Session-Id": "s"}, None, "client_left", "no_response", None),
    ],
)
def test_a_call_without_an_answer_has_a_record_that_says_why(
    wire: Wire, fields: dict[str, str], status: int | None, ending: Ending, code: str, ok: bool | None
) -> None:
    exchange = wire.posts(call(), **fields)
    if status is not None:
        wire.answers(exchange, status=status)
    wire.ends(exchange, ending)
    [evidence] = wire.observed
    assert (evidence["error"], evidence.get("ok")) == ({"code": code}, ok)


def test_a_cancellation_comes_in_an_exchange_of_its_own(wire: Wire) -> None:
    wire.posts(call("x"), Mcp_Session_Id="s")
    notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "x"}}
    wire.answers(wire.posts(notice, Mcp_Session_Id="s"), status=202)
    assert errors(wire) == ["cancelled"]


def test_the_end_of_a_session_ends_its_calls(wire: Wire) -> None:
    wire.posts(call(), Mcp_Session_Id="s")
    for status in (405, 200):
        wire.finishes(wire.posts(None, method="DELETE", Mcp_Session_Id="s"), status=status)
        assert errors(wire) == ["no_response"] * (status == 200)


def test_a_refreshed_token_is_no_new_context_and_another_scope_is(wire: Wire) -> None:
    """The label is a hash of who and what for."""
    for claims in ({"iat": 1}, {"iat": 2}, {"scope": "files admin"}):
        wire.round(ask("tools/list"), {"tools": [TOOL]}, Authorization=f"Bearer {a_token(**claims)}", **MODERN)
        wire.round(call(2), {}, Authorization=f"Bearer {a_token(**claims)}", **MODERN)
    labels = [each["auth_context"] for each in wire.observed if "tools" in each]
    assert labels[0] == labels[1] != labels[2]
    assert all(label.startswith("oauth:") for label in labels)
    pairs = zip(wire.observed[::2], wire.observed[1::2], strict=True)
    assert all(shown["snapshot_id"] == called["snapshot_id"] for shown, called in pairs)


def test_an_announced_change_outdates_the_list_of_its_context() -> None:
    """On the stream of subscriptions/listen, or on the GET stream of a session."""
    for fields, method in ((MODERN, "POST"), ({"Mcp-Session-Id": "s"}, "GET")):
        wire = Wire()
        wire.round(ask("tools/list"), {"tools": [TOOL]}, **fields)
        stream = wire.posts(ask("subscriptions/listen", 2) if method == "POST" else None, method=method, **fields)
        wire.answers(stream, {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        wire.round(call(3), {}, **fields)
        _, changed, called = wire.observed
        assert "tools" not in changed
        assert "snapshot_id" not in called


def test_a_list_under_the_id_of_a_greeting_is_published_as_unreadable(wire: Wire) -> None:
    """Some clients take whatever comes in an exchange for the answer to its request."""
    exchange = wire.posts([ask("tools/list"), ask("initialize", 2)])
    wire.answers(exchange, result(2, tools=[TOOL]))
    [snapshot] = wire.observed
    assert snapshot["tools"] == {"unreadable": "line missed"}


def test_a_list_too_long_to_read_is_published_as_unreadable(wire: Wire) -> None:
    """It must not leave the previous one in force. Other requests in progress are not affected."""
    wire.posts(ask("tools/list"), **MODERN)
    exchange = wire.posts(ask("tools/list"), **MODERN)
    wire.answers(exchange, result(tools=[{"name": "x" * 10_000}]))
    [snapshot] = wire.observed
    assert snapshot["tools"] == {"unreadable": "line missed"}


@pytest.mark.parametrize(
    "kind",
    [
        "text/event-stream, x",
        "text/event-streamed",
        "text/x, text/event-stream",
        "text/event-stream; charset=utf-7",
        "application/json; charset=utf-16",
    ],
)
def test_a_list_of_a_doubtful_kind_is_published_as_unreadable(wire: Wire, kind: str) -> None:
    """Some clients look for the name of a kind anywhere in the header, or read other charsets."""
    wire.finishes(wire.posts(ask("tools/list"), **MODERN), result(tools=[TOOL]), Content_Type=kind)
    assert [each["tools"] for each in wire.observed] == [{"unreadable": "line missed"}]


def test_a_list_of_two_kinds_is_published_as_unreadable(wire: Wire) -> None:
    """Clients differ in which of two headers counts."""
    exchange = wire.posts(ask("tools/list"), **MODERN)
    wire.takes(exchange.number, Answered(200, [("Content-Type", "text/plain"), *JSON.items()]))
    wire.passes(exchange, json.dumps(result(tools=[TOOL])).encode())
    wire.ends(exchange)
    assert [each["tools"] for each in wire.observed] == [{"unreadable": "line missed"}]


@pytest.mark.parametrize(
    ("stated", "encoding", "read"),
    [("; charset=ISO-8859-1", "ascii", [TOOL]), ("", "utf-16", {"unreadable": "line missed"})],
    ids=[
        "a charset that keeps ASCII, as some servers state one without meaning it",
        "UTF-16, as some clients find out",
    ],
)
def test_a_list_is_read_as_clients_read_it(wire: Wire, stated: str, encoding: str, read: object) -> None:
    exchange = wire.posts(ask("tools/list"), **MODERN)
    wire.answers(exchange, Content_Type=f"application/json{stated}")
    wire.passes(exchange, json.dumps(result(tools=[TOOL])).encode(encoding))
    wire.ends(exchange)
    assert [each["tools"] for each in wire.observed] == [read]


def test_many_lines_missed_at_once_make_one_snapshot(wire: Wire) -> None:
    """Each may be two bytes long, and a snapshot has a kilobyte."""
    exchange = wire.posts(ask("tools/list"), **MODERN)
    wire.answers(exchange)
    wire.passes(exchange, b"\0\n" * 1_000)
    wire.passes(exchange, b"\0\n" * 1_000)
    assert [each["tools"] for each in wire.observed] == [{"unreadable": "line missed"}]


def test_messages_that_never_end_fill_no_memory() -> None:
    """What has no room beside the others is let go and reported; room is free again once an exchange ends."""
    wire = Wire(kept_bytes_max=250)
    part = b'{"jsonrpc":"2.0","id":1,"result":{"tools":' + b"[" * 100

    def begins() -> Exchange:
        exchange = wire.posts(ask("tools/list"), **MODERN)
        wire.answers(exchange, Content_Type="application/json")
        wire.passes(exchange, part)
        return exchange

    first, second = begins(), begins()
    assert [each["tools"] for each in wire.observed] == [{"unreadable": "line missed"}]
    for exchange in (first, second):
        wire.ends(exchange, "upstream_failed")
    begins()
    assert len(wire.observed) == 1


def test_the_connection_that_rested_longest_is_forgotten_and_made_up_ones_displace_none() -> None:
    """Only those that the server has answered count."""
    wire = Wire(connections_max=2)
    wire.round(ask("tools/list"), {"tools": [TOOL]}, Mcp_Session_Id="a")
    for number in range(5):
        wire.finishes(wire.posts(call(), Mcp_Session_Id=f"forged-{number}"), status=404)
    wire.round(call(2), {}, Mcp_Session_Id="a")
    assert wire.observed[-1]["snapshot_id"] == wire.observed[0]["snapshot_id"]
    for session in ("b", "c"):
        wire.round(ask("tools/list"), {"tools": [TOOL]}, Mcp_Session_Id=session)
    wire.round(call(3), {}, Mcp_Session_Id="a")
    assert "snapshot_id" not in wire.observed[-1]
    assert wire.traffic.connections.evicted > 0
    assert wire.traffic.connections.stats.calls == 7, "counts of forgotten connections stay"


def test_made_up_sessions_do_not_end_anothers_open_call() -> None:
    """Not even those that a server confirms to whoever asks: connections at rest make room."""
    wire = Wire(connections_max=2)
    wire.round(ask("tools/list"), {"tools": [TOOL]}, Mcp_Session_Id="mine")
    mine = wire.posts(call(2), Mcp_Session_Id="mine")
    for number in range(5):
        wire.round(ask("tools/list"), {"tools": [TOOL]}, Mcp_Session_Id=f"made-up-{number}")
    wire.answers(mine, result(2))
    assert (wire.observed[-1]["ok"], wire.observed[-1]["snapshot_id"]) == (True, wire.observed[0]["snapshot_id"])


def test_the_end_of_the_tap_leaves_no_call_without_a_record(wire: Wire) -> None:
    """Those of sessions that are still open."""
    wire.posts(call(1), Mcp_Session_Id="s")
    wire.posts(call(2), **MODERN)
    wire.closes()
    assert errors(wire) == ["no_response", "no_response"]


def test_someone_who_knows_a_session_cannot_answer_for_it(wire: Wire) -> None:
    """A request under another's session that the server refuses displaces nothing."""
    mine = wire.posts(call(2), Mcp_Session_Id="s")
    wire.finishes(wire.posts(call(2, "other"), Mcp_Session_Id="s"), status=401)
    wire.answers(mine, result(2))
    assert [(each["tool_name"], each["ok"]) for each in wire.observed] == [("other", False), ("echo", True)]


def test_a_task_is_followed_through_the_exchanges_of_its_context(wire: Wire) -> None:
    """And of no other: somebody else's answers about a task of the same id change nothing."""
    handle = {"resultType": "task", "taskId": "t", "status": "working"}
    done = {"taskId": "t", "status": "completed", "result": {}}
    mine, other = MODERN | {"Authorization": "Bearer mine"}, MODERN | {"Authorization": "Bearer other"}
    wire.round(call(1), handle, **mine)
    wire.round(ask("tasks/get", 2, taskId="t"), done, **other)
    wire.round(ask("tasks/cancel", 3, taskId="t"), {}, **other)
    wire.round(call(4), {"resultType": "input_required", "requestState": "s"}, **mine)
    wire.round(call(5) | {"params": {"name": "echo", "arguments": {}, "requestState": "s"}}, {}, **other)
    assert [each.get("unmatched_retry") for each in wire.observed] == [True], "a state of another context"
    stream = wire.posts(ask("subscriptions/listen", 6), **mine)
    wire.answers(stream, {"jsonrpc": "2.0", "method": "notifications/tasks", "params": done})
    assert (wire.observed[-1]["ok"], wire.observed[-1]["task"]["status"]) == (True, "completed")
    wire.closes()
    assert errors(wire) == [None, None, "input_required"]


def test_equal_ids_of_requests_about_tasks_are_told_apart(wire: Wire) -> None:
    """Stateless clients count from 1, in one context."""
    for number, task in enumerate("ab", 1):
        wire.round(call(number, task), {"resultType": "task", "taskId": task, "status": "working"}, **MODERN)
    polls = [wire.posts(ask("tasks/get", 9, taskId=task), **MODERN) for task in "ab"]
    for task, poll in zip("ba", reversed(polls), strict=True):
        wire.finishes(poll, result(9, taskId=task, status="completed", result={"isError": task == "b"}))
    assert [(each["tool_name"], each["ok"]) for each in wire.observed] == [("b", False), ("a", True)]


def test_a_refused_request_about_a_task_says_nothing_of_its_outcome(wire: Wire) -> None:
    """An expired session or token is no error of the tool."""
    asks = ask("tools/call", 1, name="echo", task={})
    wire.round(asks, {"task": {"taskId": "t", "status": "working"}}, Mcp_Session_Id="s")
    refused = wire.posts(ask("tasks/result", 2, taskId="t"), Mcp_Session_Id="s")
    wire.answers(refused, status=404, Content_Type="application/json")
    wire.passes(refused, json.dumps({"jsonrpc": "2.0", "id": 2, "error": {"code": -32001, "message": "no"}}).encode())
    wire.ends(refused)
    assert wire.observed == []
    wire.round(ask("tasks/result", 3, taskId="t"), {"content": []}, Mcp_Session_Id="s")
    assert [each["ok"] for each in wire.observed] == [True]


def test_a_request_about_a_task_may_be_answered_on_a_later_stream(wire: Wire) -> None:
    """``tasks/result`` waits for long, and its stream may break."""
    asks = ask("tools/call", 1, name="echo", task={}, _meta={"progressToken": 1})
    wire.round(asks, {"task": {"taskId": "t", "status": "working"}}, Mcp_Session_Id="s")
    broken = wire.posts(ask("tasks/result", 2, taskId="t"), Mcp_Session_Id="s")
    wire.answers(broken)
    wire.ends(broken, "upstream_failed")
    resumed = wire.posts(None, method="GET", Mcp_Session_Id="s", Last_Event_ID="7")
    progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}
    wire.answers(resumed, progress, result(2, content=[]))
    [evidence] = wire.observed
    assert (evidence["ok"], evidence["task"]["status"], evidence["progress_count"]) == (True, "working", 1)


def test_what_is_asked_on_the_stream_of_a_call_belongs_to_it(wire: Wire) -> None:
    """However many others are in progress; the answer comes in an exchange of its own."""
    one, two = wire.posts(call(1, "one"), Mcp_Session_Id="s"), wire.posts(call(2, "two"), Mcp_Session_Id="s")
    wire.answers(one, ask("elicitation/create", 1, mode="url", url="https://phish.example"))
    wire.finishes(wire.posts(result(1, action="accept"), Mcp_Session_Id="s"), status=202)
    wire.answers(two, result(2))
    wire.answers(one, result(1))
    second, first = wire.observed
    assert "inputs" not in second
    assert (first["inputs"]["elicitation_url"], first["inputs"]["accepted"]) == (1, 1)


def test_calls_of_a_connection_that_rests_are_recorded_after_an_hour(wire: Wire) -> None:
    """When anything passes on another one; each once."""
    wire.round(call(1), {"resultType": "task", "taskId": "t", "status": "working"}, **MODERN)
    wire.posts(call(2), Mcp_Session_Id="s")
    wire.now += timedelta(seconds=DEFAULT_LIMITS.open_call_limit_s + 1)
    wire.posts(ask("ping", 3), Mcp_Session_Id="other")
    assert errors(wire) == ["task_unfinished", "timed_out"]
    wire.now += timedelta(days=1)
    wire.posts(ask("ping", 3), Mcp_Session_Id="other")
    wire.closes()
    assert len(wire.observed) == 2


def test_a_connection_that_is_forgotten_leaves_no_call_without_a_record() -> None:
    wire = Wire(cut=False, connections_max=1)
    wire.round(call(1), {"resultType": "task", "taskId": "t", "status": "working"}, Mcp_Session_Id="a")
    late, broken = (wire.posts(None, method="POST", Mcp_Session_Id="a") for _ in range(2))
    wire.round(ask("tools/list", 2), {"tools": []}, Mcp_Session_Id="b")
    assert errors(wire) == ["task_unfinished"]
    observer = late.session
    for number, exchange in ((3, late), (4, broken)):
        line = json.dumps(call(number)).encode()
        observer.take("client->server", observer.read(line), line, wire.now, exchange=exchange.number)
        exchange.asked.append((False, number, exchange.number))
        wire.answers(exchange)
    wire.answers(late, result(3, resultType="input_required", requestState="s"))
    wire.ends(broken, "upstream_failed")
    assert errors(wire)[1:] == ["input_required", "no_response"]


CANCEL = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
MINE = {"Authorization": f"Bearer {a_token()}"}
FORGED = {"Authorization": f"Bearer {a_token()}x"}
"""The same claims under another signature."""


@pytest.mark.parametrize("status", [202, 401, None])
@pytest.mark.parametrize("fields", [{}, MODERN, {"MCP-Protocol-Version": "2025-11-25"}], ids=["", "2026", "2025"])
def test_a_forged_token_cancels_nobodys_call(wire: Wire, fields: dict[str, str], status: int | None) -> None:
    """Who has only the claims of a token is somebody else, whatever the server thinks of it."""
    wire.round(ask("tools/list"), {"tools": [TOOL]}, **MINE, **fields)
    mine = wire.posts(call(2), **MINE, **fields)
    forged = wire.posts(CANCEL, **FORGED, **fields)
    if status is not None:
        wire.answers(forged, status=status)
    wire.ends(forged, "complete" if status else "client_left")
    wire.finishes(mine, result(2))
    snapshot, record = wire.observed
    assert (record["ok"], record["snapshot_id"]) == (True, snapshot["snapshot_id"])


def test_a_token_with_somebodys_claims_learns_and_changes_nothing_of_theirs(wire: Wire) -> None:
    """Lists, tasks and calls that wait for input belong to the credential itself; the label is only what it claims."""
    handle = {"resultType": "task", "taskId": "t", "status": "working"}
    wire.round(ask("tools/list"), {"tools": [TOOL]}, **MINE, **MODERN)
    wire.round(call(2), handle, **MINE, **MODERN)
    wire.round(ask("tasks/get", 3, taskId="t"), {"taskId": "t", "status": "failed"}, **FORGED, **MODERN)
    stream = wire.posts(ask("subscriptions/listen", 4), **FORGED, **MODERN)
    wire.answers(stream, {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    wire.round(call(5), {}, **FORGED, **MODERN)
    wire.round(call(6), {}, **MINE, **MODERN)
    snapshot, _, theirs, mine = wire.observed
    assert ("snapshot_id" in theirs, mine["snapshot_id"]) == (False, snapshot["snapshot_id"])
    wire.closes()
    assert wire.observed[-1]["error"] == {"code": "task_unfinished"}
    assert len({each["auth_context"] for each in wire.observed if "auth_context" in each}) == 1


@pytest.mark.parametrize("status", [202, 200, 400, 401, 403, 404, 500, None])
def test_a_cancellation_counts_once_the_server_accepted_it(wire: Wire, status: int | None) -> None:
    """Whoever presents somebody's session id with a token that the server refuses cancels nothing."""
    mine = wire.posts(call(2), Mcp_Session_Id="s")
    forged = wire.posts(CANCEL, Mcp_Session_Id="s", Authorization="Basic forged") if status != 202 else None
    own = wire.posts(CANCEL, Mcp_Session_Id="s")
    assert wire.observed == []
    if status is not None:
        wire.answers(own, status=status)
    wire.ends(own, "complete" if status else "upstream_failed")
    assert errors(wire) == (["cancelled"] if status in (200, 202) else [])
    if forged is not None:
        wire.ends(forged, "client_left")
    wire.answers(mine, result(2))
    assert len(wire.observed) == 1


def test_without_a_session_a_cancellation_names_nobodys_request(wire: Wire) -> None:
    """Clients without credentials all count from 1: a server cannot know whose request is meant either."""
    mine = wire.posts(call(2))
    wire.finishes(wire.posts(CANCEL), status=202)
    wire.answers(mine, result(2))
    assert [each["ok"] for each in wire.observed] == [True]


def test_a_refused_request_leaves_no_version_list_or_session(wire: Wire) -> None:
    """Neither that of its header nor that of its message; and the session that a refusal names is none."""
    hello = wire.posts(ask("initialize"), Mcp_Protocol_Version="2025-06-18")
    wire.finishes(hello, result(protocolVersion="2025-06-18", instructions="x"), Mcp_Session_Id="s")
    wire.round(ask("tools/list", 2), {"tools": [TOOL]}, Mcp_Session_Id="s")
    meta = {"io.modelcontextprotocol/protocolVersion": "forged"}
    for message in (ask("tools/list", 3, _meta=meta), ask("prompts/list", 4), ask("initialize", 5)):
        for session in ({"Mcp_Session_Id": "s"}, {}):
            wire.finishes(wire.posts(message, Mcp_Protocol_Version="forged", **session), status=401, Mcp_Session_Id="s")
    wire.round(ask("prompts/list", 6), {"prompts": [{"name": "p"}]}, Mcp_Session_Id="s")
    wire.round(call(7), {}, Mcp_Session_Id="s")
    first, second, called = wire.observed
    assert [each["protocol_version"] for each in (first, second)] == ["2025-06-18"] * 2
    assert "prompts" in second
    assert called["snapshot_id"] == second["snapshot_id"]


def test_a_refused_list_request_keeps_nothing_else_unpublished(wire: Wire) -> None:
    """While a list is awaited, what goes with it waits; a refusal ends that."""
    wire.round(ask("tools/list"), {"tools": [TOOL]}, Mcp_Session_Id="s")
    forged = wire.posts(ask("tools/list", 9), Mcp_Session_Id="s")
    wire.round(ask("prompts/list", 2), {"prompts": [{"name": "p"}]}, Mcp_Session_Id="s")
    assert len(wire.observed) == 1
    wire.finishes(forged, status=401)
    assert [len(each.get("prompts", ())) for each in wire.observed] == [0, 1]


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("method", ["ping", "tools/list", "tools/call"])
def test_a_refusal_says_something_of_its_own_requests_only(wire: Wire, method: str, broken: bool) -> None:
    """A server echoes the id that it was sent: that of somebody's call, in progress or on a stream that broke."""
    mine = wire.posts(call(2), Mcp_Session_Id="s")
    if broken:
        wire.answers(mine)
        wire.ends(mine, "upstream_failed")
    forged = wire.posts(ask(method, 2, name="other"), Mcp_Session_Id="s")
    changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    refusal = {"jsonrpc": "2.0", "id": 2, "error": {"code": -32001, "message": "no"}}
    wire.finishes(forged, refusal, {**refusal, "id": "2"}, changed, status=401)
    assert errors(wire) == (["jsonrpc_-32001"] if method == "tools/call" else [])
    stream = wire.posts(None, method="GET", Mcp_Session_Id="s") if broken else mine
    wire.answers(stream, result(2))
    assert [each["ok"] for each in wire.observed if each["tool_name"] == "echo"] == [True]


def test_answers_to_a_server_count_once_it_took_them(wire: Wire) -> None:
    """Somebody else's, which it refuses, answer nothing."""
    mine = wire.posts(call(1), Mcp_Session_Id="s")
    wire.answers(mine, ask("elicitation/create", 1, mode="form"))
    for status, action in ((401, "decline"), (202, "accept")):
        wire.finishes(wire.posts(result(1, action=action), Mcp_Session_Id="s"), status=status)
    wire.answers(mine, result(1))
    [record] = wire.observed
    assert (record["inputs"].get("accepted"), record["inputs"].get("declined")) == (1, None)


def test_a_refused_retry_is_no_round_of_the_call_that_waits(wire: Wire) -> None:
    """An expired token, or a forged one: the call goes on with the retry that the server takes."""
    retry: dict[str, Any] = {"name": "echo", "arguments": {}, "requestState": "s"}
    asked = {"resultType": "input_required", "requestState": "s", "inputRequests": {"a": {"method": "roots/list"}}}
    wire.round(call(2), asked, Mcp_Session_Id="a")
    for number in (3, 4):
        declined = {"a": {"action": "decline"}}
        refused = wire.posts(ask("tools/call", number, **retry, inputResponses=declined), Mcp_Session_Id="a")
        wire.finishes(refused, status=401)
    wire.round(ask("tools/call", 5, **retry, inputResponses={"a": {"action": "accept"}}), {}, Mcp_Session_Id="a")
    [record] = wire.observed
    assert (record["ok"], record["rounds"], "unmatched_retry" in record) == (True, 2, False)
    assert (record["inputs"].get("accepted"), record["inputs"].get("declined")) == (1, None)


def test_what_waits_to_be_accepted_fills_no_memory() -> None:
    """Requests that nobody answers share the bound of unfinished messages; what does not fit is counted as missed."""
    wire = Wire(kept_bytes_max=3_000)
    waiting = [wire.posts({**CANCEL, "filler": "x" * 1_000}, Mcp_Session_Id="s") for _ in range(5)]
    assert wire.traffic.connections.stats.missed_lines == 3
    for exchange in waiting:
        wire.ends(exchange, "client_left")
    wire.finishes(wire.posts({**CANCEL, "filler": "x" * 2_500}, Mcp_Session_Id="s"), status=202)
    assert (wire.traffic.connections.stats.missed_lines, wire.traffic._kept_bytes) == (3, 0)


@pytest.mark.parametrize("method", ["tools/call", "tasks/result"])
def test_a_body_that_follows_its_refusal_changes_nothing_either(wire: Wire, method: str) -> None:
    """Servers refuse a token before they read what comes with it, and a client can let that wait."""
    waits = {"resultType": "input_required", "requestState": "s"}
    task = {"resultType": "task", "taskId": "t", "status": "working"}
    wire.round(call(1), waits if method == "tools/call" else task, Mcp_Session_Id="a")
    head = [*JSON.items(), ("Mcp-Session-Id", "a")]
    wire.takes(99, Opened("POST", head))
    forged = wire.traffic.exchanges[99]
    wire.answers(forged, status=401)
    message = ask(method, 2, name="echo", arguments={}, requestState="s", taskId="t")
    wire.takes(forged.number, Passed("client->server", json.dumps(message).encode()))
    wire.takes(forged.number, Passed("client->server", None))
    wire.takes(forged.number, Passed("client->server", json.dumps([message, CANCEL]).encode()))
    refusal = {"jsonrpc": "2.0", "id": 2, "error": {"code": -32001, "message": "no"}}
    wire.passes(forged, b"data: " + json.dumps(refusal).encode() + b"\n\n")
    wire.ends(forged)
    assert wire.observed == []
    wire.closes()
    assert errors(wire) == ["input_required" if method == "tools/call" else "task_unfinished"]


@pytest.mark.parametrize("number", [9, 2, "\u2028\u2028", "tools"])
def test_a_refusal_that_echoes_what_it_was_sent_leaves_nobodys_list_in_doubt(number: Any) -> None:
    """Under a gate, a message that programs read in different ways would have every pinned tool count as unreadable."""
    wire = Wire(cut=False)
    rule = VerdictTable().rule
    wire.traffic = Traffic(
        THE_VANTAGE,
        Contexts(b"key", b"process"),
        new_id=lambda: "id",
        session=partial(HidingGate, decide=rule, over_http=True),
    )
    mine = wire.posts(ask("tools/list", 2), Mcp_Session_Id="s")
    forged = wire.posts(ask("tools/list", number), Mcp_Session_Id="s")
    head = [*SSE.items()]
    for exchange, status, answer in ((forged, 401, {"error": {"code": 1}}), (mine, 200, {"result": {"tools": []}})):
        wire.takes(exchange.number, Answered(status, head))
        own = number if exchange is forged else 2
        event = json.dumps({"jsonrpc": "2.0", "id": own, **answer}, ensure_ascii=False).encode()
        wire.passes(exchange, b"data: " + event + b"\n\n")
        if exchange is forged:
            assert not mine.session.offered.in_doubt
            assert mine.session.awaits_list(mine.number)
    assert len(wire.observed) == 1
