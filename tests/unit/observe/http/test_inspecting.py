"""Inspection in a process of its own: what passes is published there, and what cannot be is counted."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from assay_stream.cli.tap import sink_for
from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.limits.serving import HTTP_LIMITS
from assay_stream.observe.http.inspecting import InspectingProcess
from assay_stream.observe.http.inspector import InspectionJob
from assay_stream.observe.http.watching import Note
from assay_stream.observe.observation import Vantage
from assay_stream.observe.sinks import MemorySink
from tests.support.mcp_dialogue import THE_VANTAGE

HEADERS = [("Content-Type", "application/json"), ("MCP-Protocol-Version", "2026-07-28"), ("Authorization", "Bearer x")]
LIST = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
TOOLS = b'{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}'
LIMIT_S = 60.0
ONE_SERVER = {"/mcp": THE_VANTAGE}


def inspecting(output: Path, *, vantages: Mapping[str, Vantage] = ONE_SERVER, **limits: Any) -> InspectingProcess:
    job = InspectionJob(
        vantages=vantages,
        keys=(b"k" * 32, b"p" * 32),
        opens=functools.partial(sink_for, output, None),
        limits=replace(HTTP_LIMITS, inspector_pause_min_s=0.01, **limits),
    )
    return InspectingProcess(job)


async def list_passes(process: InspectingProcess, answer: bytes = TOOLS) -> None:
    """A client gets a list."""
    exchange = process.opened("/mcp", "POST", HEADERS)
    exchange.from_client(LIST)
    exchange.from_client(None)
    exchange.answered(200, HEADERS)
    await exchange.from_server(answer)
    await exchange.from_server(None)
    exchange.closed("complete")


def published(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line)["data"] for line in output.read_bytes().splitlines()]


async def test_what_passes_is_published_before_the_process_ends(tmp_path: Path) -> None:
    """In order, by the process that opened the sink."""
    process = inspecting(tmp_path / "out.ndjson")
    await process.start()
    for _ in range(3):
        await list_passes(process)
    await process.finish()
    assert [each["completeness"] for each in published(tmp_path / "out.ndjson")] == ["complete"] * 3
    assert (process.missed_exchanges, process.failures) == (0, 0)


async def test_a_sink_that_cannot_be_opened_is_said_at_the_start(tmp_path: Path) -> None:
    """With its own code, as if it had been opened here."""
    with pytest.raises(ConfigurationError, match="cannot write") as refused:
        await inspecting(tmp_path / "nowhere" / "out.ndjson").start()
    assert refused.value.code == "unwritable_file"


async def test_what_the_pipe_has_no_room_for_is_counted(tmp_path: Path) -> None:
    """A list without its answer is published as unreadable; exchanges that do not fit at all, as lost."""
    process = inspecting(tmp_path / "out.ndjson", backlog_bytes_max=4_096 + 500)
    await process.start()
    await list_passes(process, TOOLS + b" " * 5_000)
    for _ in range(2):
        process.opened("/mcp", "POST", HEADERS).from_client(None)
    assert process.missed_exchanges == 2
    await process.finish()
    snapshot, loss = published(tmp_path / "out.ndjson")
    assert snapshot["tools"] == {"unreadable": "line missed"}
    assert (loss["lists"], loss["calls"]) == (0, 2)


async def test_a_server_leaves_room_for_others(tmp_path: Path) -> None:
    """While the process that inspects is behind, and until it has caught up."""
    process = inspecting(
        tmp_path / "out.ndjson",
        vantages={"/mcp": THE_VANTAGE, "/other": THE_VANTAGE},
        backlog_bytes_max=1_200_000,
        server_backlog_bytes_max=1_000_000,
    )
    await process.start()
    [child] = psutil.Process().children()
    child.suspend()

    numbers = itertools.count(1)

    def fits(path: str) -> bool:
        body: Note = ("from_client", (b" " * 60_000,), 0.0, "client->server")
        return process.add(60_000, path, next(numbers), [("open", ("POST", HEADERS), 0.0, None), body])

    try:
        for _ in range(40):
            fits("/mcp")
        assert not fits("/mcp")
        assert fits("/other")
    finally:
        child.resume()
    async with asyncio.timeout(LIMIT_S):
        while not fits("/mcp"):
            await asyncio.sleep(0.05)
    await process.finish()


async def test_a_process_that_dies_is_replaced_and_what_it_missed_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests pass meanwhile; the exchange that was open when it died is counted once, and published as lost."""
    process = inspecting(tmp_path / "out.ndjson")
    await process.start()
    unfinished = process.opened("/mcp", "POST", HEADERS)
    unfinished.from_client(None)
    [child] = psutil.Process().children()
    os.kill(child.pid, signal.SIGKILL)
    async with asyncio.timeout(LIMIT_S):
        while not process.missed_exchanges:
            await asyncio.sleep(0.01)
        unfinished.closed("complete")
        await list_passes(process)
        assert process.missed_exchanges == 2
        while not process.is_running:
            await asyncio.sleep(0.01)
    await list_passes(process)
    await process.finish()
    loss, snapshot = published(tmp_path / "out.ndjson")
    assert (loss["calls"], snapshot["completeness"]) == (2, "complete")
    assert process.missed_exchanges == 2
    assert "has ended (-9)" in caplog.text


async def test_an_exchange_is_missed_once_whenever_it_ends(tmp_path: Path) -> None:
    """One that outlasts the process it was noted by is nothing to the next process."""
    process = inspecting(tmp_path / "out.ndjson")
    await process.start()
    outlasting = process.opened("/mcp", "POST", HEADERS)
    outlasting.from_client(None)
    await dies(process)
    outlasting.closed("complete")
    unfinished = process.opened("/mcp", "POST", HEADERS)
    unfinished.from_client(None)
    await dies(process)
    assert process.missed_exchanges == 2
    await process.finish()


async def dies(process: InspectingProcess) -> None:
    [child] = psutil.Process().children()
    child.kill()
    missed = process.missed_exchanges
    async with asyncio.timeout(LIMIT_S):
        while process.missed_exchanges == missed or not process.is_running:
            await asyncio.sleep(0.01)


async def test_a_process_that_dies_while_it_finishes_is_noted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What it was given may be lost, and what was open is counted."""
    process = inspecting(tmp_path / "out.ndjson")
    await process.start()
    process.opened("/mcp", "POST", HEADERS).from_client(None)
    [child] = psutil.Process().children()
    child.suspend()
    asyncio.get_running_loop().call_later(0.5, child.kill)
    await process.finish()
    assert process.missed_exchanges == 1
    assert "has ended (-9)" in caplog.text


@asynccontextmanager
async def failing_at_its_end() -> AsyncIterator[MemorySink]:
    yield MemorySink()
    raise OperatingError("broker_unreachable", "nobody is there any more")


async def test_a_sink_that_fails_later_ends_the_process_with_its_reason(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On standard error, and with a status that is no success."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[4]))
    process = InspectingProcess(replace(inspecting(Path("unused"))._job, opens=failing_at_its_end))
    await process.start()
    await process.finish()
    assert "has ended (1)" in caplog.text
    assert "assay-stream: broker_unreachable: nobody is there any more" in capfd.readouterr().err


async def test_a_full_disk_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    """Not with a traceback at the end, where what was dropped is counted."""
    process = inspecting(Path("/dev/full"))
    await process.start()
    for _ in range(2):
        await list_passes(process)
    await process.finish()
    said, counted = capfd.readouterr().err.splitlines()
    assert said == "cannot write observations: No space left on device"
    assert counted == "assay-stream tap: dropped 2 observations: 2 delivery_failed"


async def test_a_process_that_does_not_open_its_sink_in_time_is_given_up(tmp_path: Path) -> None:
    """A pipe that nobody reads cannot be opened for writing, and whoever tries waits."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OperatingError, match="had not opened its sink after 3 s"):
        await inspecting(tmp_path / "pipe", inspector_start_limit_s=3).start()
    assert psutil.Process().children() == []


async def test_a_process_outlives_a_tap_that_is_killed_until_all_is_published(tmp_path: Path) -> None:
    """The end of the pipe is its end, and no signal of a terminal is."""
    process = inspecting(tmp_path / "out.ndjson")
    await process.start()
    [child] = psutil.Process().children()
    child.send_signal(signal.SIGINT)
    child.send_signal(signal.SIGTERM)
    await list_passes(process)
    await process.finish()
    assert len(published(tmp_path / "out.ndjson")) == 1
