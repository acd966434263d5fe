"""Processes of ``ingest``, and clients that send them events."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from assay_stream.ingest.requests import hash_of, new_token
from assay_stream.observe.observation import Observation, Vantage, call_event, snapshot_event
from tests.support.deployment import Deployment, Worker, free_port
from tests.support.toml import toml_of

STRUCTURED, BATCH = "application/cloudevents+json", "application/cloudevents-batch+json"
AT = datetime(2026, 3, 1, 10, tzinfo=UTC)
TOOL = {"name": "echo", "description": "Echo a text", "inputSchema": {"type": "object"}}


def a_call(number: int, *, observer: str = "gw-1", server: str = "time", **fields: Any) -> Observation:
    usual: dict[str, Any] = {
        "event_id": f"call-{number}",
        "observed_at": AT + timedelta(seconds=number % 86_400),
        "tool_name": "echo",
        "tool_call_id": f"tool-call-{number}",
        "decision": "allow",
        "reason_code": "ok",
    }
    return call_event(Vantage(server_id=server, observer_id=observer), **(usual | fields))


def a_list(number: int, *tools: Any, observer: str = "gw-1", server: str = "time") -> Observation:
    return snapshot_event(
        Vantage(server_id=server, observer_id=observer),
        event_id=f"list-{number}",
        snapshot_id=f"snapshot-{number}",
        observed_at=AT + timedelta(seconds=number),
        completeness="complete",
        tools=list(tools) or [TOOL],
    )


def batch(*observations: Observation) -> bytes:
    return b"[" + b",".join(each.value for each in observations) + b"]"


@dataclass(frozen=True)
class Reply:
    status: int
    content: Any
    headers: dict[str, str]

    @property
    def outcomes(self) -> list[str]:
        return [
            each["outcome"] + (f":{each['error']['code']}" if "error" in each else "")
            for each in self.content["outcomes"]
        ]

    @property
    def code(self) -> str:
        return str(self.content["error"]["code"])


@dataclass
class Ingest:
    deployment: Deployment
    folder: Path
    tokens: dict[str, str] = field(default_factory=dict)
    processes: list[Worker] = field(default_factory=list)

    def add_client(self, observer: str = "gw-1", servers: Sequence[str] = ("time",), **fields: str) -> str:
        token = new_token()
        entry = {"observer_id": observer, "servers": list(servers), "token": hash_of(token), **fields}
        path = self.folder / "clients.toml"
        with path.open("a") as file:
            file.write(f"[[clients]]\n{toml_of(entry)}")
        self.tokens[observer] = token
        return token

    async def start(self, *arguments: str, **env: str) -> Address:
        port, clients = free_port(), self.folder / "clients.toml"
        listen = ("--listen", f"127.0.0.1:{port}", "--clients", str(clients))
        worker = self.deployment.start("ingest", *listen, *arguments, **env)
        self.processes.append(worker)
        await worker.wait_ready()
        return Address(self, worker, port)


@dataclass(frozen=True)
class Address:
    ingest: Ingest
    process: Worker
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1/events"

    async def send(
        self, body: bytes, kind: str = STRUCTURED, *, observer: str = "gw-1", token: str | None = None, **fields: str
    ) -> Reply:
        headers = {name.replace("_", "-"): value for name, value in fields.items()}
        headers |= {"Authorization": f"Bearer {token or self.ingest.tokens[observer]}", "Content-Type": kind}
        return await asyncio.to_thread(_send, self.port, body, headers)


def _send(port: int, body: bytes, headers: dict[str, str]) -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", "/v1/events", body, headers)
        response = connection.getresponse()
        return Reply(response.status, json.loads(response.read()), dict(response.headers))
    finally:
        connection.close()


@contextmanager
def ingest_of(deployment: Deployment, folder: Path) -> Iterator[Ingest]:
    made = Ingest(deployment, folder)
    try:
        yield made
    finally:
        for worker in made.processes:
            if worker.process.poll() is None:
                worker.process.kill()
            worker.process.wait(10)


async def until(is_so: Any, *, limit_s: float = 30.0) -> None:
    deadline = time.monotonic() + limit_s
    while not is_so():
        if time.monotonic() > deadline:
            raise AssertionError("it did not come to that")
        await asyncio.sleep(0.05)
