"""Calls that take more than one answer, through both taps, with real servers and clients: one record each."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, ElicitResult, Request, Result
from pydantic import BaseModel

from assay_stream.canonical.digest import redacted_digest
from deploy.local.servers import node_server
from tests.support.conversing_server import JOB_RESULT, TASKS
from tests.support.deployment import free_port
from tests.support.http_tap import http_tap, listening
from tests.support.mcp_session import TAP, data_of, read_events, tapped_client

SERVER = [sys.executable, "-m", "tests.support.conversing_server"]

pytestmark = pytest.mark.servers


class Taps:
    def __init__(self, way: str, folder: Path) -> None:
        self._way = way
        self._output = folder / "observations.ndjson"

    @asynccontextmanager
    async def client(self, mode: str, **options: Any) -> AsyncIterator[Client]:
        if self._way == "stdio":
            async with tapped_client(SERVER, self._output, mode=mode, **options) as client:
                yield client
            return
        port = free_port()
        async with listening([*SERVER, str(port)], port):
            async with http_tap(f"http://127.0.0.1:{port}/mcp") as tap:
                http_client = httpx2.AsyncClient(timeout=30)
                transport = streamable_http_client(tap.url, http_client=http_client)
                async with Client(transport, mode=mode, **options) as client:
                    yield client
            self._output.write_bytes(b"".join(each.value + b"\n" for each in tap.sink.observations))

    def calls(self) -> list[dict[str, Any]]:
        calls = data_of(read_events(self._output), "call")
        assert "planted" not in json.dumps(calls)
        return calls


@pytest.fixture(params=["stdio", "http"])
def taps(request: pytest.FixtureRequest, tmp_path: Path) -> Taps:
    return Taps(request.param, tmp_path)


async def answers(context: Any, params: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"name": "planted-answer"})


@pytest.mark.parametrize(("mode", "rounds"), [("legacy", None), ("2026-07-28", 2)])
async def test_a_call_that_asks_the_user_is_one_record(taps: Taps, mode: str, rounds: int | None) -> None:
    """Until 2025-11-25 a request of the server, since then another round of the call."""
    async with taps.client(mode, elicitation_callback=answers) as client:
        await client.list_tools()
        result = await client.call_tool("ask", {}, progress_callback=progressed)
    assert not result.is_error
    [call] = taps.calls()
    assert (call["ok"], call.get("rounds"), call["progress_count"]) == (True, rounds, 1)
    inputs = call["inputs"]
    assert inputs.pop("requests_hash").startswith("sha256:")
    assert inputs == {"elicitation_form": 1, "accepted": 1}


async def progressed(progress: float, total: float | None, message: str | None) -> None:
    """Take note of progress."""


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_client_that_gives_up_cancels_its_call(taps: Taps, mode: str) -> None:
    """By a notification, or by closing its exchange."""
    async with taps.client(mode) as client:
        await client.list_tools()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await client.call_tool("slow", {})
        await client.list_tools()
    [call] = taps.calls()
    assert call["error"] == {"code": "cancelled"}
    assert "ok" not in call


class TaskHandle(Result):
    result_type: Literal["task"] = "task"
    task_id: str


class TaskState(Result):
    result_type: Literal["complete"] = "complete"
    status: str | None = None
    result: dict[str, Any] | None = None


class TaskRequest(Request[dict[str, Any], str]):
    name_param = "taskId"


class TasksClient(ClientExtension):
    """Waits for tasks: answers what they ask, and cancels them instead if it is told to."""

    identifier = TASKS

    def __init__(self, *, cancels: bool) -> None:
        self._cancels = cancels

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=TaskHandle, resolve=self._finish)]

    async def _finish(self, handle: TaskHandle, context: ClaimContext) -> CallToolResult:
        async def asks(method: str, **params: Any) -> TaskState:
            request = TaskRequest(method=method, params={"taskId": handle.task_id, **params})
            return await context.session.send_request(request, TaskState)

        if self._cancels:
            await asks("tasks/cancel")
        polls = 0
        while (state := await asks("tasks/get")).status not in ("completed", "cancelled"):
            polls += 1
            if state.status == "input_required" and polls > 2:
                await asks("tasks/update", inputResponses={"planted-name": {"action": "accept", "content": {}}})
        return CallToolResult.model_validate(state.result or {"content": [], "isError": True})


@pytest.mark.parametrize("cancels", [False, True])
async def test_the_outcome_of_a_task_is_that_of_its_call(taps: Taps, cancels: bool) -> None:
    """The digest is that of the job's result; what it asks is counted once, however often it is polled."""
    async with taps.client("2026-07-28", extensions=[TasksClient(cancels=cancels)]) as client:
        await client.list_tools()
        await client.call_tool("job", {})
    [call] = taps.calls()
    if cancels:
        assert (call["error"], call["task"]["status"]) == ({"code": "cancelled"}, "cancelled")
        assert call.keys().isdisjoint(("ok", "result_hash"))
        return
    assert (call["ok"], call["task"]["status"]) == (True, "completed")
    assert call["result_hash"] == str(redacted_digest(JOB_RESULT))
    assert call["inputs"]["elicitation_form"] == call["inputs"]["accepted"] == 1


class RawClient(BaseModel):
    """A client of MCP 2025-11-25 that knows tasks, which the SDK's does not: line by line."""

    model_config = {"arbitrary_types_allowed": True}
    process: asyncio.subprocess.Process
    number: int = 0

    async def says(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        await self.process.stdin.drain()

    async def asks(self, method: str, **params: Any) -> Any:
        """Ask something, answer what the server asks meanwhile, and return the result."""
        assert self.process.stdout is not None
        self.number += 1
        await self.says({"id": self.number, "method": method, "params": params})
        while True:
            message = json.loads(await asyncio.wait_for(self.process.stdout.readline(), 60))
            if message.get("id") == self.number and "method" not in message:
                return message.get("result")
            if message.get("method") == "elicitation/create":
                answer = {"action": "accept", "content": {"interpretation": "technical"}}
                await self.says({"id": message["id"], "result": answer})
            elif "id" in message and "method" in message:
                await self.says({"id": message["id"], "result": {"roots": []}})


async def test_a_task_of_another_server_is_followed_to_its_result(tmp_path: Path) -> None:
    """MCP 2025-11-25, in Node: created by the client, polled, asks the user, and its result is fetched."""
    output = tmp_path / "observations.ndjson"
    command = [*node_server("@modelcontextprotocol/server-everything", "2026.8.31"), "stdio"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *TAP, str(output), *command),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    client = RawClient(process=process)
    capabilities: dict[str, Any] = {"elicitation": {}, "tasks": {"requests": {"elicitation": {"create": {}}}}}
    hello = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "c", "version": "1"}}
    await client.asks("initialize", **hello)
    await client.says({"method": "notifications/initialized"})
    while "simulate-research-query" not in str(await client.asks("tools/list")):
        await asyncio.sleep(0.1)  # it is offered once the server knows what the client can do
    arguments = {"topic": "planted-topic", "ambiguous": True}
    handle = await client.asks("tools/call", name="simulate-research-query", arguments=arguments, task={"ttl": 60_000})
    task_id = handle["task"]["taskId"]
    await client.asks("tasks/get", taskId=task_id)
    result = await client.asks("tasks/result", taskId=task_id)
    process.terminate()  # the end of its input is not enough for this server
    await asyncio.wait_for(process.wait(), 60)
    [call] = data_of(read_events(output), "call")
    assert call["ok"] is True
    assert call["result_hash"] == str(redacted_digest(result))
    assert call["inputs"]["elicitation_form"] == call["inputs"]["accepted"] == 1
    assert "id_hash" in call["task"]
    for planted in (b"planted", task_id.encode()):
        assert planted not in output.read_bytes()
