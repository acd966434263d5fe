"""What a server asks of its client during a call, as dialogues: one call, one event, with counts and a hash."""

from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest

from assay_stream.canonical.digest import redacted_digest
from assay_stream.limits import DEFAULT_LIMITS, Limits
from tests.support.mcp_dialogue import Dialogue

FORM: dict[str, Any] = {"method": "elicitation/create", "params": {"mode": "form", "message": "Your password?"}}
URL = {"method": "elicitation/create", "params": {"mode": "url", "url": "https://phish.example"}}
SAMPLING = {"method": "sampling/createMessage", "params": {"messages": []}}
ACCEPTED, DECLINED = {"action": "accept", "content": {"name": "secret"}}, {"action": "decline"}


def asked(*requests: dict[str, Any]) -> str:
    lines = [f"{each['method']} {redacted_digest(each['params'])}\n" for each in requests]
    return "sha256:" + sha256("".join(lines).encode()).hexdigest()


def requires(state: str | None = None, **requests: Any) -> dict[str, Any]:
    return {"resultType": "input_required", "inputRequests": requests} | (
        {} if state is None else {"requestState": state}
    )


def test_rounds_of_input_are_one_call(talk: Dialogue) -> None:
    """Each retry has an id of its own; the event has the first one, the count, the kinds, and the last result."""
    arguments = {"a": 1}
    assert talk.call(1, arguments=arguments) == []
    assert talk.result(1, requires("s1", name=FORM, model=SAMPLING)) == []
    assert talk.call(2, arguments=arguments, requestState="s1", inputResponses={"name": ACCEPTED, "model": {}}) == []
    assert talk.result(2, requires("s2", where=URL)) == []
    assert talk.call(3, arguments=arguments, requestState="s2", inputResponses={"where": DECLINED}) == []
    [event] = talk.result(3, {"content": []})
    data = event["data"]
    assert (data["tool_call_id"], data["rounds"], data["ok"]) == ("session:1", 3, True)
    assert data["inputs"] == {
        "elicitation_form": 1,
        "sampling": 1,
        "elicitation_url": 1,
        "accepted": 2,
        "declined": 1,
        "requests_hash": asked(FORM, SAMPLING, URL),
    }
    assert data["result_hash"] == str(redacted_digest({"content": []}))
    assert event["time"] == "2026-11-21T02:06:07.386000Z"
    assert talk.observer.stats.calls == 1
    assert talk.close() == []
    for hidden in ("secret", "password", "phish", "s1", "s2"):
        assert hidden not in str(event)


def test_calls_that_do_not_differ_go_on_one_after_the_other(talk: Dialogue) -> None:
    """A server need not give a state; two calls and two retries are two events."""
    for number in (1, 2):
        talk.called(number, requires(name=FORM))
    for number in (3, 4):
        talk.call(number, inputResponses={"name": ACCEPTED})
    events = talk.result(3, {}) + talk.result(4, {})
    assert [(each["data"]["tool_call_id"], each["data"]["rounds"]) for each in events] == [
        ("session:1", 2),
        ("session:2", 2),
    ]


@pytest.mark.parametrize(
    "retry",
    [
        {"name": "other", "requestState": "s"},
        {"name": "echo", "requestState": "of another session"},
        {"name": "echo", "requestState": "s", "arguments": {"changed": True}},
        {"name": "echo", "inputResponses": {}},
        {"name": "echo", "requestState": 5},
    ],
)
def test_a_retry_of_no_call_known_here_is_a_call_of_its_own(talk: Dialogue, retry: dict[str, Any]) -> None:
    """It says so; the call that waits goes on waiting."""
    talk.called(1, requires("s", name=FORM))
    [event] = talk.round("tools/call", 2, {}, **retry)
    assert event["data"]["unmatched_retry"] is True
    assert "rounds" not in event["data"]
    [event] = talk.close()
    assert event["data"]["error"] == {"code": "input_required"}
    assert "unmatched_retry" not in event["data"]


def test_a_state_goes_on_once(talk: Dialogue) -> None:
    """Sent again, it belongs to no call that waits."""
    talk.called(1, requires("s"))
    talk.call(2, requestState="s")
    talk.call(3, requestState="s")
    events = talk.result(2, {}) + talk.result(3, {})
    assert [each["data"].get("unmatched_retry") for each in events] == [None, True]


def test_input_that_is_never_given_is_neither_success_nor_failure(talk: Dialogue) -> None:
    """The event comes when the connection ends, or after an hour."""
    talk.called(1, requires(name=FORM) | {"isError": True})
    talk.now += timedelta(seconds=DEFAULT_LIMITS.open_call_limit_s + 1)
    [event] = talk.request("ping", 2)
    assert "ok" not in event["data"]
    assert event["data"]["error"] == {"code": "input_required"}
    assert event["data"]["inputs"]["elicitation_form"] == 1


def test_a_call_that_goes_on_and_on_is_recorded_after_an_hour_at_the_next_round(talk: Dialogue) -> None:
    """Or a server that asks again every minute would never be seen."""
    talk.call(0)
    for number in range(1, 200):
        events = talk.result(number - 1, requires(f"state {number}"))
        if events:
            break
        talk.now += timedelta(minutes=1)
        talk.call(number, requestState=f"state {number}")
    [event] = events
    assert event["data"]["error"] == {"code": "input_required"}
    assert event["data"]["rounds"] == 61


def test_a_retry_that_is_refused_is_the_end_of_its_call(talk: Dialogue) -> None:
    """One event, which says that it was denied after it had begun."""
    talk.called(1, requires("s", name=FORM))
    line = talk.observer.read(
        b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","requestState":"s"}}'
    )
    [observation] = talk.observer.refuse(line, lambda _: "pin_mismatch", talk.now)
    assert b'"decision":"deny"' in observation.value
    assert b'"rounds":2' in observation.value
    assert talk.close() == []


def test_input_may_be_followed_by_a_task(talk: Dialogue) -> None:
    """And a task may ask for input: what is asked at every poll is counted once."""
    talk.called(1, requires("s", name=FORM))
    talk.call(2, requestState="s", inputResponses={"name": ACCEPTED})
    talk.result(2, {"resultType": "task", "taskId": "t", "status": "working"})
    for number in (3, 4):
        talk.request("tasks/get", number, taskId="t")
        talk.result(number, {"taskId": "t", "status": "input_required", "inputRequests": {"where": URL}})
    talk.round("tasks/update", 5, {}, taskId="t", inputResponses={"where": DECLINED})
    [event] = talk.round("tasks/get", 6, {"taskId": "t", "status": "completed", "result": {}}, taskId="t")
    data = event["data"]
    assert (data["rounds"], data["ok"], data["task"]["status"]) == (2, True, "completed")
    assert data["inputs"] == {
        "elicitation_form": 1,
        "elicitation_url": 1,
        "accepted": 1,
        "declined": 1,
        "requests_hash": asked(FORM, URL),
    }


def test_requests_of_the_server_belong_to_the_only_call_in_progress(talk: Dialogue) -> None:
    """Until 2025-11-25 it asks its client directly."""
    talk.call(1)
    for number, request in enumerate((FORM, URL, SAMPLING, {"method": "roots/list", "params": {}})):
        talk.server({"jsonrpc": "2.0", "id": number, **request})
    talk.client({"jsonrpc": "2.0", "id": 0, "result": ACCEPTED})
    talk.client({"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "secret"}})
    talk.client({"jsonrpc": "2.0", "id": 2, "result": {"role": "assistant"}})
    [event] = talk.result(1, {})
    inputs = event["data"]["inputs"]
    del inputs["requests_hash"]
    assert inputs == {
        "elicitation_form": 1,
        "elicitation_url": 1,
        "sampling": 1,
        "roots": 1,
        "accepted": 2,
        "declined": 1,
    }
    assert "secret" not in str(event)


def test_requests_of_the_server_that_belong_to_no_call_are_counted(talk: Dialogue) -> None:
    """Outside of calls, or in one of several."""
    talk.server({"jsonrpc": "2.0", "id": 1, **FORM})
    talk.call(1)
    talk.call(2)
    talk.server({"jsonrpc": "2.0", "id": 2, **FORM})
    talk.server({"jsonrpc": "2.0", "id": 3, "method": ["elicitation/create"]})
    events = talk.result(1, {}) + talk.result(2, {})
    assert all("inputs" not in event["data"] for event in events)
    assert talk.observer.stats.unlinked_requests == 2


def test_requests_during_a_task_name_it(talk: Dialogue) -> None:
    talk.called(1, {"task": {"taskId": "t", "status": "working"}}, task={})
    talk.call(2)
    related = {"_meta": {"io.modelcontextprotocol/related-task": {"taskId": "t"}}}
    talk.server({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": FORM["params"] | related})
    unknown = {"_meta": {"io.modelcontextprotocol/related-task": {"taskId": "u"}}}
    talk.server({"jsonrpc": "2.0", "id": 2, "method": "elicitation/create", "params": FORM["params"] | unknown})
    [other] = talk.result(2, {})
    [event] = talk.close()
    assert "inputs" not in other["data"]
    assert event["data"]["inputs"]["elicitation_form"] == 1
    assert talk.observer.stats.unlinked_requests == 1


def test_progress_is_counted_for_the_call_that_it_names(talk: Dialogue) -> None:
    """Also while its task runs, and no longer once it has ended."""
    talk.call(1, "a", task={}, _meta={"progressToken": "p"})
    talk.call(2, "b", _meta={"progressToken": 2})

    def progress(token: object) -> None:
        params = {"progressToken": token, "progress": 1, "message": "secret"}
        assert talk.server({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}) == []

    progress("p")
    talk.result(1, {"task": {"taskId": "t", "status": "working"}})
    tokens: list[object] = ["p", 2, "2", None, [], "unknown"]
    for token in tokens:
        progress(token)
    [second] = talk.result(2, {})
    progress(2)
    [first] = talk.close()
    assert (first["data"]["progress_count"], second["data"]["progress_count"]) == (2, 1)
    assert "secret" not in str(first)


def test_a_flood_of_requests_is_counted_up_to_a_bound() -> None:
    """The event says that there were more."""
    talk = Dialogue(limits=Limits(call_inputs_max=3))
    talk.call(1)
    for number in range(1_000):
        talk.server({"jsonrpc": "2.0", "id": number, **FORM})
    [event] = talk.result(1, {})
    assert event["data"]["inputs"] == {"elicitation_form": 3, "more": True, "requests_hash": asked(FORM, FORM, FORM)}


def test_what_is_asked_in_unsound_words_is_counted_without_a_digest(talk: Dialogue) -> None:
    """Methods that nobody knows, parameters that cannot be hashed, what is no request at all."""
    talk.call(1)
    talk.result(1, requires("s", a={"method": "secret", "params": {}}, b="text", c={"method": ["x"]}))
    talk.call(2, requestState="s", inputResponses=["no", "object"])
    talk.server(b'{"jsonrpc":"2.0","id":1,"method":"roots/list","params":{"a":NaN}}')
    [event] = talk.result(2, {})
    empty = redacted_digest({})
    lines = f"other {empty}\nother -\nother -\nroots/list -\n"
    assert event["data"]["inputs"] == {
        "other": 3,
        "roots": 1,
        "requests_hash": "sha256:" + sha256(lines.encode()).hexdigest(),
    }


def test_a_call_without_an_answer_for_an_hour_has_timed_out(talk: Dialogue) -> None:
    talk.call(1)
    talk.now += timedelta(seconds=DEFAULT_LIMITS.open_call_limit_s + 1)
    [event] = talk.result(1, {})
    assert event["data"]["error"] == {"code": "timed_out"}
    assert "ok" not in event["data"]
    assert talk.observer.stats.unmatched_responses == 1
