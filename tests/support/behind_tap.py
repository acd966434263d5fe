"""A server behind ``assay-stream tap``, and the client that drives it."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.deployment import Deployment

_LINE_BYTES_MAX = 16 * 1024 * 1024
_ANSWER_LIMIT_S = 60


class TappedClient:
    """Asks a server through its tap, one request at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._number = 0

    async def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        self._number += 1
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params or {}}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        await self._process.stdin.drain()
        line = await asyncio.wait_for(self._process.stdout.readline(), _ANSWER_LIMIT_S)
        answer: dict[str, Any] = json.loads(line)
        assert answer["id"] == self._number
        result: dict[str, Any] = answer["result"]
        return result

    async def list_tools(self) -> dict[str, Any]:
        return await self.ask("tools/list")

    async def call(self, tool: str) -> None:
        await self.ask("tools/call", {"name": tool, "arguments": {}})


@asynccontextmanager
async def behind_tap(
    deployment: Deployment,
    server_id: str,
    results: Sequence[dict[str, Any]],
    folder: Path,
    *,
    observer_id: str = "proxy-1",
    **env: str,
) -> AsyncIterator[TappedClient]:
    """A client of a scripted server behind a real tap; what the tap holds is delivered when it ends.

    Args:
        deployment: where the tap publishes to.
        server_id: the operator's name of the server.
        results: the ``tools/list`` results that the server gives in turn.
        folder: for its script.
        observer_id: the name of the tap.
        env: more variables of the tap's environment.
    """
    script = folder / f"{server_id}-{observer_id}.ndjson"
    script.write_text("".join(json.dumps(result) + "\n" for result in results), encoding="utf-8")
    tap = ["-m", "assay_stream", "tap", "--server-id", server_id, "--observer-id", observer_id, "--"]
    with (folder / f"{server_id}-{observer_id}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *[deployment.python, *tap, sys.executable, "-m", "tests.support.scripted_server", str(script)],
            env=os.environ | deployment.env | env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            limit=_LINE_BYTES_MAX,
        )
    client = TappedClient(process)
    try:
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        await client.ask("initialize", hello)
        yield client
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await asyncio.wait_for(process.wait(), _ANSWER_LIMIT_S)
