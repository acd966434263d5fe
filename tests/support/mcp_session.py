"""A real MCP client (the SDK's) that speaks to a server through the tap."""

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

TAP = ["-m", "tests.support.mcp_tap", "the-server", "the-observer"]


@asynccontextmanager
async def tapped_client(
    command: list[str], output: Path, *, mode: str, hidden: str | None = None, **options: Any
) -> AsyncIterator[Client]:
    """A connected client, with more options of the SDK's. The observations are in ``output`` after the block."""
    through_tap = StdioServerParameters(
        command=sys.executable,
        args=[*TAP, str(output), *command],
        env={**os.environ, **({} if hidden is None else {"HIDDEN_TOOL": hidden})},
    )
    async with Client(stdio_client(through_tap), mode=mode, **options) as client:
        yield client


def read_events(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.read_bytes().splitlines()]


def data_of(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event["data"] for event in events if event["type"] == f"mcp.tools.{kind}.observed"]
