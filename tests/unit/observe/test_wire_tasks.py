"""Tasks on the wire, as dialogues: the outcome of a task is that of its call, in one event."""

from datetime import timedelta
from hashlib import sha256
from typing import Any, get_args

import pytest

from assay_stream.canonical.digest import redacted_digest
from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.model.observation import TaskStatus
from assay_stream.observe.calls import status_of
from tests.support.mcp_dialogue import Dialogue

RESULT = {"content": [{"type": "text", "text": "secret"}]}
ERAS = ("2025-11-25", "2026-07-28")


class Tasks(Dialogue):
    def __init__(self, era: str, **options: Any) -> None:
        super().__init__(**options)
        self.is_inline = era == "2026-07-28"
        self._number = 1_000

    def begins(self, number: object, task: str, status: str = "working", name: str = "echo") -> list[dict[str, Any]]:
        if self.is_inline:
            events = self.call(number, name)
            return events + self.result(number, {"resultType": "task", "taskId": task, "status": status})
        events = self.call(number, name, task={"ttl": 60_000})
        return events + self.result(number, {"task": {"taskId": task, "status": status}})

    def asks(self, method: str, task: str, result: Any = None, **params: Any) -> list[dict[str, Any]]:
        self._number += 1
        events = self.request(method, self._number, taskId=task, **params)
        return events + self.result(self._number, {} if result is None else result)

    def state(self, task: str, status: str, **more: Any) -> list[dict[str, Any]]:
        return self.asks("tasks/get", task, {"taskId": task, "status": status, **more})

    def ends(self, task: str, result: Any = None) -> list[dict[str, Any]]:
        result = RESULT if result is None else result
        if self.is_inline:
            return self.state(task, "completed", result=result)
        return self.state(task, "completed") + self.asks("tasks/result", task, result)


def outcome(event: dict[str, Any]) -> tuple[Any, Any, Any]:
    data = event["data"]
    return data.get("ok"), data.get("error", {}).get("code"), data["task"]["status"]


@pytest.mark.parametrize("era", ERAS)
def test_the_result_of_a_task_is_that_of_its_call(era: str) -> None:
    """One event: the hash is the result's, not the handle's; the task is named by the hash of its id."""
    talk = Tasks(era)
    assert talk.begins(1, "task-1") == []
    assert talk.state("task-1", "working") == []
    [event] = talk.ends("task-1")
    data = event["data"]
    assert event["time"] == "2026-11-21T02:06:07.386000Z", "when the call was seen"
    assert (data["ok"], data.get("error")) == (True, None)
    assert data["result_hash"] == str(redacted_digest(RESULT))
    assert data["task"]["id_hash"] == "sha256:" + sha256(b"task-1").hexdigest()
    assert outcome(event) == (True, None, "completed")
    assert data["timing"]["duration_ms"] > 2
    assert "task-1" not in str(event), "an id may grant access"
    assert talk.close() == []


@pytest.mark.parametrize("era", ERAS)
def test_a_task_whose_tool_fails_is_a_call_whose_tool_fails(era: str) -> None:
    """With the codes that a direct answer has."""
    talk = Tasks(era)
    talk.begins(1, "t")
    [event] = talk.ends("t", {"isError": True})
    assert outcome(event)[:2] == (False, "tool_error")


def test_a_task_that_fails_has_the_error_of_its_call() -> None:
    """Before 2026-07-28 the answer to ``tasks/result``, since then in its state."""
    talk = Tasks("2025-11-25")
    talk.begins(1, "t")
    talk.state("t", "failed")
    talk.request("tasks/result", 9, taskId="t")
    [event] = talk.server({"jsonrpc": "2.0", "id": 9, "error": {"code": -32602, "message": "secret"}})
    assert outcome(event) == (False, "jsonrpc_-32602", "failed")
    talk = Tasks("2026-07-28")
    talk.begins(1, "t")
    [event] = talk.state("t", "failed", error={"code": -32603, "message": "secret"})
    assert outcome(event) == (False, "jsonrpc_-32603", "failed")


def test_a_failed_task_is_no_success_whatever_comes_as_its_result() -> None:
    """Its result ought to say that it is an error."""
    talk = Tasks("2025-11-25")
    talk.begins(1, "t")
    talk.state("t", "failed")
    [event] = talk.asks("tasks/result", "t", RESULT)
    assert outcome(event) == (False, "task_failed", "failed")


@pytest.mark.parametrize("form", ["state", "handle", "inline handle"])
@pytest.mark.parametrize(
    ("named", "status", "expected"),
    [
        ("t", "completed", (None, "task_result_not_read", "completed")),
        ("t", "working", (None, "task_unfinished", "working")),
        ("u", "completed", (None, "task_id_mismatch", "completed")),
    ],
)
def test_a_task_is_no_result_of_a_task(form: str, named: str, status: str, expected: Any) -> None:
    """The answer to ``tasks/result`` names a task once more: nobody saw a result."""
    talk = Tasks("2025-11-25")
    talk.begins(1, "t")
    talk.state("t", "completed")
    state = {"taskId": named, "status": status}
    answer = {"state": state, "handle": {"task": state}, "inline handle": {"resultType": "task", **state}}[form]
    [event] = talk.asks("tasks/result", "t", answer) + talk.close()
    assert outcome(event) == expected
    assert "result_hash" not in event["data"]


def test_a_server_that_does_not_know_a_task_any_more_says_nothing_of_its_outcome() -> None:
    """The task may have succeeded before it was forgotten."""
    talk = Tasks("2025-11-25")
    talk.begins(1, "t")
    for method in ("tasks/get", "tasks/result"):
        talk.request(method, method, taskId="t")
        assert talk.server({"jsonrpc": "2.0", "id": method, "error": {"code": -32602, "message": "gone"}}) == []
    [event] = talk.close()
    assert outcome(event) == (None, "task_unfinished", "working")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("working", (None, "task_unfinished", "working")),
        ("input_required", (None, "task_unfinished", "input_required")),
        ("completed", (None, "task_result_not_read", "completed")),
        ("failed", (False, "task_failed", "failed")),
        ("a secret", (None, "task_unfinished", "unknown")),
        (["working"], (None, "task_unfinished", "unknown")),
    ],
)
@pytest.mark.parametrize("era", ERAS)
def test_a_task_without_a_result_is_recorded_with_what_is_known(era: str, status: Any, expected: Any) -> None:
    """When the connection ends; never as a success."""
    talk = Tasks(era)
    talk.begins(1, "t")
    assert talk.state("t", status) == []
    [event] = talk.close()
    assert outcome(event) == expected
    assert "result_hash" not in event["data"]


@pytest.mark.parametrize("era", ERAS)
def test_notifications_tell_of_a_task_as_well(era: str) -> None:
    talk = Tasks(era)
    method = "notifications/tasks" if talk.is_inline else "notifications/tasks/status"
    talk.begins(1, "t")

    def tells(**state: Any) -> list[dict[str, Any]]:
        return talk.server({"jsonrpc": "2.0", "method": method, "params": {"taskId": "t", **state}})

    assert tells(status="working") == []
    if talk.is_inline:
        [event] = tells(status="completed", result=RESULT)
        assert event["data"]["result_hash"] == str(redacted_digest(RESULT))
    else:
        assert tells(status="completed", result=RESULT) == [], "a member that no client reads there"
        [event] = talk.close()
        assert outcome(event) == (None, "task_result_not_read", "completed")


def test_a_cancelled_task_is_no_success() -> None:
    """Until 2025-11-25 the answer to ``tasks/cancel`` says that it is cancelled. What comes later changes nothing."""
    talk = Tasks("2025-11-25")
    talk.begins(1, "t")
    [event] = talk.asks("tasks/cancel", "t", {"taskId": "t", "status": "cancelled"})
    assert outcome(event) == (None, "cancelled", "cancelled")
    assert talk.asks("tasks/result", "t", RESULT) == []
    assert talk.close() == []


def test_a_task_that_ends_in_spite_of_its_cancellation_says_both() -> None:
    """Since 2026-07-28 the answer to ``tasks/cancel`` is empty, and the task may complete all the same."""
    talk = Tasks("2026-07-28")
    for task in ("a", "b"):
        talk.begins(task, task)
        assert talk.asks("tasks/cancel", task, {"resultType": "complete"}) == []
    [event] = talk.ends("a")
    assert outcome(event) == (None, "cancelled", "completed")
    assert event["data"]["result_hash"] == str(redacted_digest(RESULT))
    [event] = talk.close()
    assert outcome(event) == (None, "cancelled", "working")


def test_a_refused_cancellation_cancels_nothing() -> None:
    talk = Tasks("2026-07-28")
    talk.begins(1, "t")
    talk.request("tasks/cancel", 2, taskId="t")
    assert talk.server({"jsonrpc": "2.0", "id": 2, "error": {"code": -32602, "message": "no"}}) == []
    [event] = talk.ends("t")
    assert outcome(event) == (True, None, "completed")


def test_a_task_that_is_cancelled_from_the_beginning_is_recorded_at_once() -> None:
    [event] = Tasks("2026-07-28").begins(1, "t", "cancelled")
    assert outcome(event) == (None, "cancelled", "cancelled")


@pytest.mark.parametrize("era", ERAS)
def test_an_answer_about_another_task_ends_with_a_reason_of_its_own(era: str) -> None:
    """The client may take it for the outcome of either, so it is recorded as that of neither."""
    talk = Tasks(era)
    talk.begins(1, "mine", name="mine")
    talk.begins(2, "other", name="other")
    [event] = talk.asks("tasks/get", "mine", {"taskId": "other", "status": "completed", "result": RESULT})
    assert (event["data"]["tool_name"], outcome(event)[1]) == ("mine", "task_id_mismatch")
    [event] = talk.ends("other")
    assert (event["data"]["tool_name"], event["data"]["ok"]) == ("other", True)


@pytest.mark.parametrize("era", ERAS)
def test_a_task_id_used_again_gives_the_first_call_up(era: str) -> None:
    """Nobody could tell whose result comes next."""
    talk = Tasks(era)
    talk.begins(1, "t", name="first")
    [first] = talk.begins(2, "t", name="second")
    [second] = talk.ends("t")
    assert (first["data"]["tool_name"], outcome(first)[1]) == ("first", "task_id_reused")
    assert (second["data"]["tool_name"], second["data"]["ok"]) == ("second", True)


@pytest.mark.parametrize("era", ERAS)
def test_news_of_unknown_tasks_change_nothing(era: str) -> None:
    """Those of other connections, of calls that have ended, and made-up ones."""
    talk = Tasks(era)
    talk.begins(1, "t")
    talk.ends("t")
    for task in ("t", "made-up"):
        assert talk.ends(task) == []
        assert talk.asks("tasks/cancel", task) == []
    assert talk.asks("tasks/get", "x" * 1_000_000) == []
    assert talk.request("tasks/get", 7) == talk.request("tasks/get", 8, taskId=8) == []
    assert talk.close() == []


def test_a_result_is_no_handle_unless_a_task_was_asked_for() -> None:
    """Until 2025-11-25 the client asks for it; a member of the same name is part of the result."""
    talk = Dialogue()
    [event] = talk.called(1, {"task": {"taskId": "t", "status": "working"}})
    assert event["data"]["ok"] is True
    [event] = talk.called(2, RESULT, task={})
    assert event["data"]["result_hash"] == str(redacted_digest(RESULT))
    [event] = talk.called(3, {"resultType": "task", "taskId": 5})
    assert event["data"]["error"] == {"code": "interim_result"}


@pytest.mark.parametrize("era", ERAS)
def test_tasks_that_never_end_are_held_within_bounds(era: str) -> None:
    """The one that waits for longest gives way, with its event; so each of the calls has one."""
    talk = Tasks(era, limits=Limits(held_calls_max=3))
    events = [event for number in range(100) for event in talk.begins(number, f"task-{number}")]
    assert len(events) == 97
    assert talk.observer.stats.evicted_requests == 97
    events += talk.close()
    assert [event["data"]["tool_call_id"] for event in events] == [f"session:{number}" for number in range(100)]
    assert {outcome(event)[1] for event in events} == {"task_unfinished"}


def test_a_task_is_waited_for_within_a_bound_of_time() -> None:
    """Any later message shows that it has passed."""
    talk = Tasks("2026-07-28")
    talk.begins(1, "t")
    talk.now += timedelta(seconds=DEFAULT_LIMITS.open_call_limit_s - 1)
    assert talk.request("ping", 2) == []
    talk.now += timedelta(seconds=2)
    [event] = talk.request("ping", 3)
    assert outcome(event) == (None, "task_unfinished", "working")
    assert talk.ends("t") == []


def test_requests_about_tasks_are_remembered_within_a_bound() -> None:
    """What is forgotten is counted; the call has its event all the same."""
    talk = Tasks("2026-07-28", pending_max=1)
    talk.begins(1, "t")
    talk.request("tasks/get", 2, taskId="t")
    talk.request("tasks/get", 3, taskId="t")
    assert talk.observer.stats.evicted_requests == 1
    assert talk.result(2, {"status": "completed", "result": RESULT}) == []
    [event] = talk.close()
    assert outcome(event)[1] == "task_unfinished"


def test_every_status_that_a_record_may_carry_is_read() -> None:
    assert {status_of({"status": status}) for status in (*get_args(TaskStatus), "else", 1, None)} == {
        *get_args(TaskStatus)
    }
