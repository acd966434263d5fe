"""A released server behind an enforcing tap, and the commands of its operator."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

from assay_stream.observe.wire import BLOCKED_CODE
from deploy.local.servers import python_server
from tests.support.deployment import Deployment

TOOL = "get_current_time"


def time_server(version: str) -> list[str]:
    return [*python_server("mcp-server-time", version), "--local-timezone", "UTC"]


@asynccontextmanager
async def enforced(deployment: Deployment, command: list[str], *options: str) -> AsyncIterator[Client]:
    arguments = ["-m", "assay_stream", "tap", "--server-id", "time", "--observer-id", "proxy-1", "--enforce"]
    through_tap = StdioServerParameters(
        command=sys.executable, args=[*arguments, *options, "--", *command], env={**os.environ, **deployment.env}
    )
    async with Client(stdio_client(through_tap), mode="legacy") as client:
        yield client


async def call(client: Client, name: str = TOOL) -> dict[str, Any] | None:
    """Call the tool: nothing, or the error of our own that its caller got instead."""
    try:
        result = await client.call_tool(name, {"timezone": "UTC"})
    except MCPError as error:
        refusal = error.error
    else:
        assert not result.is_error
        return None
    assert refusal.code == BLOCKED_CODE
    assert refusal.message.startswith("assay-stream: ")
    assert isinstance(refusal.data, dict)
    return refusal.data


def is_refused(error: dict[str, Any] | None) -> bool:
    return error is not None


def passed(error: dict[str, Any] | None) -> bool:
    return error is None


async def wait_for_row(deployment: Deployment, *arguments: str, **wanted: str) -> list[dict[str, Any]]:
    deadline = time.monotonic() + 30
    while True:
        rows = [json.loads(line) for line in (await deployment.output_of(*arguments, "--json")).splitlines()]
        if any(wanted.items() <= row.items() for row in rows):
            return rows
        assert time.monotonic() < deadline, rows
        await asyncio.sleep(0.2)
