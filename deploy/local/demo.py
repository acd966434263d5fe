"""The story of a rug pull on this machine: real MCP servers, real Kafka, evidence read back.

python -m deploy.local.demo                    tell it, end
python -m deploy.local.demo --keep             the same, then keep Kafka, the worker and a console for you to try
python -m deploy.local.demo --record FOLDER    with servers of our own; keeps what the taps published, a file a chapter
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from aiokafka import AIOKafkaConsumer
from mcp import MCPError, StdioServerParameters, stdio_client
from mcp.client.client import Client

from assay_stream.alerts.view import ReviewState
from assay_stream.cli.demo import TOLD, DemoStory, decisions
from assay_stream.cli.output import Painter
from assay_stream.cli.shared import set_up_streams
from assay_stream.config import Settings
from assay_stream.kafka.topics import topic_names
from assay_stream.model.record import Role
from deploy.local.demo_cast import Calls, Cast, own_servers, real_servers
from deploy.local.demo_processes import (
    FOLDER,
    DemoError,
    Running,
    assay_stream,
    console,
    free_port,
    running,
    step,
    wait_for_interrupt,
)
from deploy.local.kafka import Broker
from deploy.local.kafka_jars import BrokerError, fetch
from deploy.local.servers import ServerError

READ_BACK_LIMIT_S = 60.0
SETTLE_S = 1.0
"""How long nothing more must come before a chapter is told."""
STORE = FOLDER / "store"
CONSOLE_PORT = 8090
OBSERVED = (Role.SNAPSHOTS, Role.CONTROL, Role.CALLS)
CRITICAL = 5


async def drive(server_id: str, command: list[str], calls: Calls, env: dict[str, str], *options: str) -> str:
    """Let a real MCP client list the tools and call them, through the tap. Returns what refused a call, if anything."""
    tap = StdioServerParameters(
        command=sys.executable,
        args=["-m", "assay_stream", "tap", "--server-id", server_id, "--observer-id", "demo", *options, "--", *command],
        env=env,
    )
    refusal = ""
    # What a server has to say about a newer client's first question is of no interest here.
    with (FOLDER / "servers.log").open("a") as errors:
        async with Client(stdio_client(tap, errlog=errors)) as client:
            await client.list_tools()
            for name, arguments in calls:
                try:
                    await client.call_tool(name, arguments)
                except MCPError as error:
                    refusal = str(error)
    return refusal


class Topics:
    """Reads what the stages write into a story, and what the taps and operators publish into lists."""

    def __init__(self, bootstrap: str, story: DemoStory, worker: Running) -> None:
        names = topic_names(Settings(bootstrap_servers=bootstrap))
        self._roles = {names[role]: role for role in (*TOLD, *OBSERVED)}
        self._consumer = AIOKafkaConsumer(
            *self._roles, bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        )
        self._story = story
        self._worker = worker
        self.observed: list[bytes] = []

    async def __aenter__(self) -> Topics:
        await self._consumer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()

    async def read_until(self, is_whole: Callable[[], bool]) -> None:
        """Read until a chapter is whole, and nothing more comes for a while.

        Raises:
            DemoError: where it does not become whole in time.
        """
        deadline, quiet_since = time.monotonic() + READ_BACK_LIMIT_S, time.monotonic()
        while not (is_whole() and time.monotonic() - quiet_since > SETTLE_S):
            self._worker.check()
            if time.monotonic() > deadline:
                raise DemoError("not every call has its evidence, or an alert is missing")
            for messages in (await self._consumer.getmany(timeout_ms=200)).values():
                quiet_since = time.monotonic()
                for message in messages:
                    role = self._roles[message.topic]
                    if role in OBSERVED:
                        self.observed.append(message.value)
                    else:
                        self._story.take(role, message.value)

    def recorded(self) -> bytes:
        """Return what was observed since the last time, in order."""
        lines, self.observed = self.observed, []
        return b"".join(line + b"\n" for line in sorted(lines, key=lambda line: json.loads(line)["time"]))


def open_on(story: DemoStory, server_id: str) -> int:
    """Return the number of open alerts about tools of a server."""
    about = (row for row in story.rows() if row.server_id == server_id and row.tool_name)
    return sum(row.state is ReviewState.OPEN for row in about)


async def play(cast: Cast, env: dict[str, str], worker: Running, record: Path | None) -> bool:
    """Play the chapters, and tell each from what the stages wrote. Returns whether the story is whole."""
    story = DemoStory(Painter("auto", columns=80), cast.server_id)
    expected = 0

    async with Topics(env["ASSAY_STREAM_BOOTSTRAP_SERVERS"], story, worker) as topics:

        async def told(calls: int, is_whole: Callable[[], bool]) -> None:
            nonlocal expected
            expected += calls
            await topics.read_until(lambda: len(story.evidence) >= expected and is_whole())
            story.tell()
            if record is not None:
                record.mkdir(parents=True, exist_ok=True)
                (record / f"{story.chapter}.ndjson").write_bytes(topics.recorded())

        before, after = cast.releases
        story.begin()
        await drive(cast.server_id, before, cast.calls, env)
        await drive(cast.other_id, cast.other, cast.other_calls, env)
        await told(len(cast.calls) + len(cast.other_calls), lambda: len(story.rows()) >= 2)
        story.begin()
        await drive(cast.server_id, after, cast.calls, env)
        await told(len(cast.calls), lambda: open_on(story, cast.server_id) > 0)
        story.begin()
        for decision in decisions(cast.server_id):
            assay_stream(*decision, env=env)
        await told(0, lambda: not open_on(story, cast.server_id))
        story.begin()
        refusal = await drive(cast.server_id, cast.rug_pull(), cast.calls[:1], env, "--enforce")
        story.say("", f"The agent got: {refusal or 'no refusal'}")
        await told(1, lambda: any(row.severity_id >= CRITICAL for row in story.rows()))
        if not (story.end() and refusal):
            return False
        story.say("", "With `make run`, which keeps Kafka running, you can type:")
        story.commands(
            "assay-stream alerts list",
            f"assay-stream alerts show {story.first_paged()}",
            f"assay-stream pins list --server-id {cast.server_id}",
        )
        return True


def run(keep: bool, record: Path | None) -> int:
    """Run the demo; returns the exit code."""
    with ExitStack() as stack:
        with step("Apache Kafka from Maven, once"):
            fetch()
        with step("MCP servers, each in an environment of its own, once"):
            cast = real_servers() if record is None else own_servers()
        with step("start one KRaft broker on loopback"):
            broker = stack.enter_context(Broker())
        env = os.environ | {
            "ASSAY_STREAM_BOOTSTRAP_SERVERS": broker.bootstrap,
            "ASSAY_STREAM_WEB_PORT": str(free_port()),
            "ASSAY_STREAM_AUTHOR": "operator",
        }
        with step("create the topics"):
            assay_stream("topics", "apply", env=env)
        address = f"http://127.0.0.1:{env['ASSAY_STREAM_WEB_PORT']}"
        with step("start the worker"):
            worker = stack.enter_context(running("worker", "worker", env=env, ready=f"{address}/readyz"))
        complete = asyncio.run(play(cast, env, worker, record))
        if not complete:
            console.print(f"[red]The story is not whole.[/] Worker log: {worker.log}")
            return 1
        # Of an earlier run, on a broker that is gone.
        shutil.rmtree(STORE, ignore_errors=True)
        if not keep:
            with step("fill a store for the console"):
                assay_stream("store", "run", "--once", "--store", str(STORE), env=env)
            where_next(STORE)
            return 0
        pages = f"http://127.0.0.1:{free_port(CONSOLE_PORT)}/"
        with step("start the console, which fills its store"):
            listen = ("--listen", pages.removeprefix("http://").rstrip("/"))
            command = ("console", "--fill", "--store", str(STORE), *listen)
            shown = stack.enter_context(running("console", *command, env=env, ready=f"{pages}health"))
        say_what_runs(broker.bootstrap, pages, address)
        wait_for_interrupt([worker, shown], broker)
        return 0


def where_next(store: Path) -> None:
    """Say where to click, and what else to look at."""
    text = (
        "Look at the alert, its diff and the calls in a browser, http://127.0.0.1:8090/:\n\n"
        f"  .venv/bin/assay-stream console --store {store}\n\n"
        "Type the commands above while `make run` keeps all this running, for your own\n"
        "servers too. docs/verify-a-digest-by-hand.md shows how to check a digest without\n"
        "assay-stream; docs/architecture.md describes the design."
    )
    console.print(f"\n{text}", soft_wrap=True, highlight=False, markup=False)


def say_what_runs(bootstrap: str, pages: str, worker: str) -> None:
    """Say where to click, and where to type."""
    text = (
        f"Look at the alert, its diff and the calls in a browser:  {pages}\n\n"
        "Kafka, the worker and the console keep running. Type the commands above in\n"
        "another terminal, after:\n\n"
        f"  export ASSAY_STREAM_BOOTSTRAP_SERVERS={bootstrap}\n"
        "  export PATH=$PWD/.venv/bin:$PATH\n\n"
        f"The worker's health and metrics: {worker}/\n\n"
        "A server of your own behind the tap:\n\n"
        "  assay-stream tap --server-id my-server -- \\\n"
        "      npx -y @modelcontextprotocol/server-everything\n\n"
        "Ctrl-C stops everything."
    )
    console.print(f"\n{text}", soft_wrap=True, highlight=False, markup=False)


def main() -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="keep Kafka, the worker and a console running")
    parser.add_argument("--record", type=Path, metavar="FOLDER", help="record servers of our own, for the package")
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        # Also where a shell starts background jobs with interrupts ignored: whatever ends us ends what we started.
        signal.signal(number, signal.default_int_handler)
    set_up_streams()
    try:
        return run(arguments.keep, arguments.record)
    except (DemoError, BrokerError, ServerError) as error:
        console.print(f"[red]The demo stopped:[/] {error}", highlight=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
