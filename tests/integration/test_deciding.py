"""An operator decides in a browser, and an enforcing tap follows: real Kafka, worker, store and server."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client

from assay_stream.model.record import Record, Role
from tests.support.browser import IN_A_BROWSER, Browser, a_browser
from tests.support.console_process import AUTHOR, console, deciding, sign_in
from tests.support.deployment import Deployment
from tests.support.enforcing import TOOL, call, enforced, is_refused, passed, time_server, wait_for_row

pytestmark = [pytest.mark.kafka, pytest.mark.servers, *IN_A_BROWSER, pytest.mark.timeout(600)]

BEFORE, AFTER = "0.6.2", "2026.10.19"
TOOLS = (TOOL, "convert_time")
ENFORCED_WITHIN_S = 1.0


@pytest.fixture
async def operated(deployment: Deployment, tmp_path: Path) -> AsyncIterator[tuple[Browser, str]]:
    await deployment.ready_worker()
    options = ("--fill", *deciding(tmp_path))
    with (
        console(tmp_path / "store", *options, env=deployment.env) as address,
        a_browser(tmp_path / "profile") as browser,
    ):
        await asyncio.to_thread(sign_in, browser, address)
        yield browser, address


async def shows(browser: Browser, text: str, *, within_s: float = 30.0) -> None:
    script = "return document.getElementById('live')?.innerText.includes(arguments[0]) ?? false"
    await asyncio.to_thread(browser.wait, script, text, within_s=within_s)


REVIEW = "[...document.querySelectorAll('.review')].find((one) => one.innerText.includes(arguments[0]))"


async def queues(browser: Browser, tool: str) -> None:
    await asyncio.to_thread(browser.wait, f"return {REVIEW} !== undefined", tool, within_s=30.0)


async def opened(browser: Browser, address: str) -> None:
    await asyncio.to_thread(browser.open, address)
    await asyncio.to_thread(browser.run, "window.same = true")


async def stays(browser: Browser) -> bool:
    return await asyncio.to_thread(browser.run, "return window.same === true")


async def decided(browser: Browser, act: str, reason: str = "as reviewed") -> None:
    """Give a reason, press a button, and wait until the page says that it is recorded."""
    await asyncio.to_thread(browser.write, "textarea[name=reason]", reason)
    await asyncio.to_thread(browser.click, f"button[value={act}]")
    await shows(browser, f"Recorded: {act}")


async def pinned(deployment: Deployment, browser: Browser, address: str) -> None:
    """Approve every tool that the server offers, on the server's page, and wait until that counts."""
    await opened(browser, f"{address}/server?server=time")
    await asyncio.to_thread(browser.click, "main a[href^='/confirm']")
    await shows(browser, "Confirm: approve")
    said = await asyncio.to_thread(browser.run, "return document.getElementById('live').innerText")
    assert all(text in said for text in (*TOOLS, "time", "assay.p60", "sha256:"))
    await decided(browser, "approve")
    for tool in TOOLS:
        await wait_for_row(deployment, "pins", "list", tool_name=tool, comparison="match", author=AUTHOR)


async def first_ruled(client: Client, wanted: Callable[[dict[str, Any] | None], bool]) -> float:
    async with asyncio.timeout(30):
        while not wanted(await call(client)):
            await asyncio.sleep(0.005)
    return time.time()


async def control_records(deployment: Deployment) -> list[Record]:
    return await deployment.read(Role.CONTROL)


async def took_s(deployment: Deployment, ruled_s: float) -> float:
    """How long the last decision took from when it was sent to the broker until a call was ruled on by it."""
    latest = max((await control_records(deployment)), key=lambda record: record.timestamp_ms)
    return ruled_s - latest.timestamp_ms / 1_000


@asynccontextmanager
async def watched(
    client: Client, wanted: Callable[[dict[str, Any] | None], bool]
) -> AsyncIterator[asyncio.Task[float]]:
    task = asyncio.create_task(first_ruled(client, wanted))
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def reviewed(deployment: Deployment, browser: Browser, address: str) -> None:
    reason = ("--reason", "as reviewed")
    await deployment.output_of("policy", "set", "--server-id", "time", "--enforcement", "block", "--new", *reason)
    async with enforced(deployment, time_server(BEFORE)) as client:
        await client.list_tools()
        await opened(browser, f"{address}/")
        await shows(browser, "time")
        await pinned(deployment, browser, address)
        await first_ruled(client, passed)


async def test_from_an_alert_to_a_call_that_passes(
    deployment: Deployment, operated: tuple[Browser, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A server is swapped; the open queue shows it; a diff is read, approved, and the call passes; then rejected."""
    browser, address = operated
    await reviewed(deployment, browser, address)
    await opened(browser, f"{address}/reviews")
    async with enforced(deployment, time_server(AFTER)) as client:
        await client.list_tools()
        error = await call(client)
        assert error is not None
        assert error["reason_code"] == "definition_mismatch"
        await queues(browser, TOOL)
        assert await stays(browser), "it is the page that was open"
        link = (
            f"return [...{REVIEW}.querySelectorAll('a[href^=\"/tool\"]')].find((one) => one.innerText === arguments[0])"
        )
        link += ".getAttribute('href')"
        await opened(browser, address + await asyncio.to_thread(browser.run, link, TOOL))
        changed = "return [document.querySelectorAll('del').length, document.querySelectorAll('ins').length]"
        gone, come = await asyncio.to_thread(browser.run, changed)
        assert gone + come > 0, "the page shows what changed"

        times: dict[str, list[float]] = {"approve": [], "reject": []}
        for act, wanted in (("approve", passed), ("reject", is_refused)) * 2:
            async with watched(client, wanted) as ruled:
                await decided(browser, act)
                times[act].append(await took_s(deployment, await ruled))
            await shows(browser, "The store has it")
        assert (await call(client) or {})["reason_code"] == "definition_rejected"
    with capsys.disabled():
        print({name: [round(each, 3) for each in found] for name, found in times.items()})
    assert max(*times["approve"], *times["reject"]) < ENFORCED_WITHIN_S
    records = [json.loads(record.value or b"")["data"] for record in await control_records(deployment)]
    assert {record["author"] for record in records if record.get("tool_name") in TOOLS} == {AUTHOR}
