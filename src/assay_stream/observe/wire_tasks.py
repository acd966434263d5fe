"""What MCP's messages say of the course of a call: tasks in both their forms, rounds of input, outcomes.

Until 2025-11-25 a client asks for a task (``params.task``), gets ``{"task": ...}``, and fetches the result with
``tasks/result``. Since 2026-07-28 (extension ``io.modelcontextprotocol/tasks``) the server decides: its result has
``resultType: "task"``, and the state of the task holds the result (``tasks/get``, ``notifications/tasks``).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

from assay_stream.observe.jsonrpc import meta_of
from assay_stream.observe.open_call import OpenTask, text_hash

TASK_METHODS = frozenset(("tasks/get", "tasks/result", "tasks/cancel", "tasks/update"))
"""Requests about one task."""

TASK_NOTIFICATIONS = frozenset(("notifications/tasks", "notifications/tasks/status"))

INVALID_PARAMS = "jsonrpc_-32602"
"""What a server answers for a task that it does not know, or no more."""

_RELATED = "io.modelcontextprotocol/related-task"
_STATUSES = frozenset(("working", "input_required", "completed", "failed", "cancelled"))


class Outcome(NamedTuple):
    """Whether a call succeeded, ``None`` if that is not known, and an error code of our own."""

    ok: bool | None
    code: str | None


def task_hash(holder: Mapping[str, Any]) -> bytes | None:
    """Return the hash of the task id in a request, a state, or a reference; ``None`` if there is none."""
    task_id = holder.get("taskId")
    return text_hash(task_id) if isinstance(task_id, str) else None


def related_task(params: Mapping[str, Any]) -> bytes | None:
    """Return the hash of the id of the task that a message belongs to, if it says so."""
    related = meta_of(params).get(_RELATED)
    return task_hash(related) if isinstance(related, dict) else None


def task_of(result: Mapping[str, Any], *, wanted: bool) -> tuple[OpenTask, Mapping[str, Any]] | None:
    """Return the task that the result of a call is a handle of, with its state; ``None`` if it is a result.

    Args:
        wanted: whether the request asked for a task.
    """
    is_inline = result.get("resultType") == "task"
    state = result if is_inline else result.get("task") if wanted else None
    id_hash = task_hash(state) if isinstance(state, dict) else None
    return None if id_hash is None or not isinstance(state, dict) else (OpenTask(id_hash, is_inline), state)


def state_in(result: object) -> Mapping[str, Any] | None:
    """Return the state of a task that came in place of its result, by itself or in a handle; ``None`` if none did."""
    if not isinstance(result, dict):
        return None
    handle = task_of(result, wanted=True)
    if handle is not None:
        return handle[1]
    return result if task_hash(result) is not None and "status" in result else None


def final_in(state: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the answer to a call that the state of its task holds; ``None`` if it holds none."""
    member = {"completed": "result", "failed": "error"}.get(status_of(state))
    return {member: state[member]} if member is not None and member in state else None


def status_of(state: Mapping[str, Any]) -> str:
    """Return the status in a task's state: one of MCP's words, or ``unknown``."""
    status = state.get("status")
    return status if isinstance(status, str) and status in _STATUSES else "unknown"


def is_retry(params: Mapping[str, Any]) -> bool:
    """Tell whether a call goes on with another one that the server asked input for."""
    return params.get("requestState") is not None or params.get("inputResponses") is not None


def retry_key(tool_name: str, args_hash: str | None, state: object) -> Hashable:
    """Return what a call that waits for input and its retry have in common: tool, arguments, and the server's state."""
    return "retry", tool_name, args_hash, text_hash(state) if isinstance(state, str) else None


def outcome_of(message: Mapping[str, Any]) -> Outcome:
    """Return the outcome that a response means: never the server's words."""
    error = message.get("error")
    if "result" not in message or error is not None:
        code = error.get("code") if isinstance(error, dict) else None
        is_number = isinstance(code, int) and not isinstance(code, bool) and abs(code) < 2**53
        return Outcome(False, f"jsonrpc_{code}" if is_number else "jsonrpc_error")
    result = message["result"]
    if not isinstance(result, dict):
        return Outcome(False, "bad_result")
    kind = result.get("resultType", "complete")
    if kind != "complete":
        # Not final, in a way that is not known here.
        return Outcome(None, "interim_result")
    failed = result.get("isError")
    if failed is None or failed is False:
        return Outcome(True, None)
    # Some clients take other values for true, others refuse them.
    return Outcome(False, "tool_error" if failed is True else "bad_result")
