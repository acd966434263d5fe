"""The main job on this machine: real MCP servers, real Kafka, evidence read back.

python -m deploy.local.demo            run, show the evidence and the alerts, end
python -m deploy.local.demo --keep     the same, then keep Kafka and the worker for you to try
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer
from mcp import StdioServerParameters, stdio_client
from mcp.client.client import Client
from rich import box
from rich.console import Console
from rich.table import Table

from deploy.local.kafka import Broker
from deploy.local.kafka_jars import BrokerError, fetch
from deploy.local.servers import ServerError, python_server

SERVER_ID = "time"
PACKAGE = "mcp-server-time"
VERSIONS = ("0.6.2", "2026.10.19")
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("get_current_time", {"timezone": "Europe/Amsterdam"}),
    ("convert_time", {"source_timezone": "UTC", "time": "16:30", "target_timezone": "Asia/Tokyo"}),
    ("get_current_time", {"timezone": "Mars/Olympus"}),
)
READ_BACK_LIMIT_S = 60.0
READY_LIMIT_S = 90.0
FOLDER = Path(".run/demo")

Rows = list[dict[str, Any]]
console = Console()


class DemoError(RuntimeError):
    """The demo cannot go on: what is wrong, and where to look."""


def free_port() -> int:
    """Return a loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def step(text: str) -> Iterator[None]:
    """Show what is being done, and how long it took."""
    started_s = time.monotonic()
    with console.status(text):
        yield
    console.print(f"[green]done[/] {text} [dim]({time.monotonic() - started_s:.1f} s)[/]")


def assay_stream(*arguments: str, env: dict[str, str]) -> None:
    """Run the command line to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "assay_stream", *arguments], env=env, check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise DemoError(f"assay-stream {' '.join(arguments)} failed:\n{done.stderr}")


@contextmanager
def worker(env: dict[str, str]) -> Iterator[Path]:
    """Run a worker, wait until it is ready, and stop it at the end. Yields its log."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    log = FOLDER / "worker.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "assay_stream", "worker"], env=env, stdout=stderr, stderr=stderr
        )
    try:
        deadline = time.monotonic() + READY_LIMIT_S
        while not is_ready(env):
            if process.poll() is not None or time.monotonic() > deadline:
                raise DemoError(f"the worker did not get ready; its log is {log}:\n{log.read_text()[-2_000:]}")
            time.sleep(0.2)
        yield log
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def is_ready(env: dict[str, str]) -> bool:
    """Ask the worker."""
    url = f"http://127.0.0.1:{env['ASSAY_STREAM_WEB_PORT']}/readyz"
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


async def drive(command: list[str], env: dict[str, str]) -> int:
    """Let a real MCP client list the tools and call them, through the tap. Returns the number of calls."""
    tap = StdioServerParameters(
        command=sys.executable,
        args=["-m", "assay_stream", "tap", "--server-id", SERVER_ID, "--observer-id", "demo", "--", *command],
        env=env,
    )
    # What a server has to say about a newer client's first question is of no interest here.
    with (FOLDER / "servers.log").open("a") as errors:
        async with Client(stdio_client(tap, errlog=errors)) as client:
            await client.list_tools()
            for name, arguments in CALLS:
                await client.call_tool(name, arguments)
    return len(CALLS)


async def read_back(bootstrap: str, calls: int, versions: int) -> tuple[Rows, Rows]:
    """Read evidence and alerts from Kafka, committed records only, until every call has its evidence."""
    consumer = AIOKafkaConsumer(
        "assay.tool.decision",
        "assay.tool.drift",
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    await consumer.start()
    evidence: list[dict[str, Any]] = []
    alerts: list[dict[str, Any]] = []
    deadline = time.monotonic() + READ_BACK_LIMIT_S
    try:
        while len(evidence) < calls or (versions > 1 and not alerts):
            if time.monotonic() > deadline:
                break
            for messages in (await consumer.getmany(timeout_ms=200)).values():
                for message in messages:
                    found = evidence if message.topic == "assay.tool.decision" else alerts
                    found.append(json.loads(message.value))
        for messages in (await consumer.getmany(timeout_ms=1_000)).values():
            alerts.extend(json.loads(m.value) for m in messages if m.topic == "assay.tool.drift")
    finally:
        await consumer.stop()
    return evidence, alerts


def show(evidence: list[dict[str, Any]], alerts: list[dict[str, Any]]) -> None:
    """Print both as tables."""
    table = Table(title="Evidence: assay.tool.decision", title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0))
    for column in ("time", "tool", "decision", "ok", "definition", "scope", "pin"):
        table.add_column(column, no_wrap=True)
    for record in sorted(evidence, key=lambda record: str(record["time"])):
        data = record["data"]
        digest = str(data.get("tool_definition_digest", data.get("unbound_reason")))
        table.add_row(
            record["time"][11:19],
            data["tool"],
            data["decision"],
            {True: "yes", False: "no"}.get(data.get("ok"), "?"),
            digest.removeprefix("sha256:")[:10] + "…" if digest.startswith("sha256:") else digest,
            data["binding"]["scope"],
            data["pin"]["status"],
        )
    console.print(table)
    drift = Table(
        title="Drift alerts: assay.tool.drift (OCSF 2004)", title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0)
    )
    for column in ("severity", "kind", "tool", "changed", "count"):
        drift.add_column(column)
    for alert in alerts:
        flat = alert["unmapped"]
        drift.add_row(
            alert["severity"],
            flat["mcp_finding_kind"],
            flat.get("mcp_tool_name", "-"),
            flat.get("mcp_changed_fields", "-").replace(",", ", "),
            str(alert["count"]),
        )
    console.print(drift)


def run(keep: bool) -> int:
    """Run the demo; returns the exit code."""
    with ExitStack() as stack:
        with step("Apache Kafka from Maven, once"):
            fetch()
        with step(f"two versions of {PACKAGE}, each in an environment of its own"):
            commands = {version: python_server(PACKAGE, version) for version in VERSIONS}
        with step("start one KRaft broker on loopback"):
            broker = stack.enter_context(Broker())
        env = os.environ | {
            "ASSAY_STREAM_BOOTSTRAP_SERVERS": broker.bootstrap,
            "ASSAY_STREAM_WEB_PORT": str(free_port()),
        }
        with step("create the topics"):
            assay_stream("topics", "apply", env=env)
        with step("start the worker"):
            log = stack.enter_context(worker(env))
        calls = 0
        for version, command in commands.items():
            with step(f"{PACKAGE} {version} behind the tap: list, {len(CALLS)} calls"):
                calls += asyncio.run(drive(command, env))
        with step("read evidence and alerts back from Kafka"):
            evidence, alerts = asyncio.run(read_back(broker.bootstrap, calls, len(commands)))
        show(evidence, alerts)
        bound = sum("tool_definition_digest" in record["data"] for record in evidence)
        ids = {record["data"]["tool_call_id"] for record in evidence}
        console.print(f"{calls} calls made, {len(evidence)} evidence records, {bound} bound to a definition.")
        complete = len(evidence) == calls == len(ids) and bool(alerts)
        if not complete:
            console.print(f"[red]Not every call has its evidence, or no drift was seen.[/] Worker log: {log}")
        where_next(broker.bootstrap, env["ASSAY_STREAM_WEB_PORT"], keep)
        if keep and complete:
            wait_for_interrupt()
        return 0 if complete else 1


def where_next(bootstrap: str, web_port: str, keep: bool) -> None:
    """Say what to look at now."""
    if keep:
        console.print(
            "\nKafka and the worker go on. In another terminal:\n\n"
            f"  export ASSAY_STREAM_BOOTSTRAP_SERVERS={bootstrap}\n"
            "  .venv/bin/assay-stream alerts list\n"
            "  .venv/bin/assay-stream tap --server-id my-server -- "
            "npx -y @modelcontextprotocol/server-everything\n"
            f"  curl http://127.0.0.1:{web_port}/metrics\n\nCtrl-C stops everything.",
            soft_wrap=True,
            highlight=False,
        )
    else:
        console.print(
            "\nWhere next: `make run` keeps all this running for your own server; "
            "docs/verify-a-digest-by-hand.md checks a digest without us; "
            "docs/architecture.md says how it works."
        )


def wait_for_interrupt() -> None:
    """Wait for Ctrl-C."""
    try:
        while True:
            time.sleep(3_600)
    except KeyboardInterrupt:
        console.print("stopping")


def main() -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="keep Kafka and the worker running")
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        # Also where a shell starts background jobs with interrupts ignored: whatever ends us ends what we started.
        signal.signal(number, signal.default_int_handler)
    try:
        return run(arguments.keep)
    except (DemoError, BrokerError, ServerError) as error:
        console.print(f"[red]The demo stopped:[/] {error}", highlight=False)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
