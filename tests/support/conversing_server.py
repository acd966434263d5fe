"""A real MCP server (the SDK's) whose calls take more than one answer, in both eras.

python -m tests.support.conversing_server [PORT]

Over standard input and output, or over Streamable HTTP on a port. ``ask`` asks the user; ``job`` becomes a task (MCP
2026-07-28, extension ``io.modelcontextprotocol/tasks``) that asks the user as well; ``slow`` takes a while.
"""

import asyncio
import sys
from typing import Annotated, Any, Literal

import uvicorn
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.types import RequestParams
from pydantic import BaseModel

TASKS = "io.modelcontextprotocol/tasks"
JOB_RESULT: dict[str, Any] = {"content": [{"type": "text", "text": "the job's planted-result"}], "isError": False}
QUESTION = {"method": "elicitation/create", "params": {"mode": "form", "message": "planted-question"}}
QUESTION["params"] |= {"requestedSchema": {"type": "object", "properties": {}}}  # type: ignore[operator]


class Name(BaseModel):
    """What the user is asked for."""

    name: str


def who() -> Elicit[Name]:
    """Ask for it."""
    return Elicit("planted-question", Name)


class TaskParams(RequestParams):
    """Which task."""

    task_id: str
    input_responses: dict[str, Any] | None = None


class Tasks(Extension):
    """Every call of ``job`` is a task: it works, asks, works again once it has an answer, and is completed."""

    identifier = TASKS

    def __init__(self) -> None:
        self._polls: dict[str, list[str]] = {}

    async def intercept_tool_call(self, params: Any, ctx: Any, call_next: Any) -> Any:
        """Answer with a handle."""
        if params.name != "job":
            return await call_next(ctx)
        task_id = f"planted-task-{len(self._polls)}"
        self._polls[task_id] = ["working", "input_required", "input_required", "working"]
        return {"resultType": "task", **self._state(task_id, "working")}

    def methods(self) -> list[MethodBinding]:
        """What a client asks about tasks."""
        handlers = {"tasks/get": self._get, "tasks/update": self._update, "tasks/cancel": self._cancel}
        return [MethodBinding(name, TaskParams, handler) for name, handler in handlers.items()]

    def _state(self, task_id: str, status: str) -> dict[str, Any]:
        times = dict.fromkeys(("createdAt", "lastUpdatedAt"), "2026-11-22T10:00:00Z")
        state: dict[str, Any] = {"taskId": task_id, "status": status, **times, "ttlMs": 60_000, "pollIntervalMs": 10}
        if status == "input_required":
            state["inputRequests"] = {"planted-name": QUESTION}
        return state | ({"result": JOB_RESULT} if status == "completed" else {})

    async def _get(self, _: Any, params: TaskParams) -> dict[str, Any]:
        polls = self._polls[params.task_id]
        return {"resultType": "complete", **self._state(params.task_id, polls.pop(0) if polls else "completed")}

    async def _update(self, _: Any, params: TaskParams) -> dict[str, Any]:
        self._polls[params.task_id] = ["working"]
        return {"resultType": "complete"}

    async def _cancel(self, _: Any, params: TaskParams) -> dict[str, Any]:
        self._polls[params.task_id] = ["cancelled"]
        return {"resultType": "complete"}


def server() -> MCPServer[Any]:
    """The server."""
    mcp: MCPServer[Any] = MCPServer("conversing", extensions=[Tasks()])

    @mcp.tool()
    async def ask(context: Context[Any, Any], name: Annotated[Name, Resolve(who)]) -> str:
        """Ask the user for a name."""
        await context.report_progress(1, 1)
        return f"planted-result for {name.name}"

    @mcp.tool(structured_output=False)
    async def job() -> str:
        """Never runs: the extension answers."""
        raise NotImplementedError

    @mcp.tool()
    async def slow() -> str:
        """Take a while."""
        await asyncio.sleep(30)
        return "done"

    return mcp


def main(port: str | None = None) -> None:
    """Serve until killed."""
    transport: Literal["stdio"] = "stdio"
    if port is None:
        server().run(transport)
    else:
        uvicorn.run(server().streamable_http_app(), host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
