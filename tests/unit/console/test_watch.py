"""Health and metrics of the console, asked over HTTP."""

import shutil
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from assay_stream.console.authentication import now_us
from assay_stream.console.service import ConsoleMetrics, ConsoleService, ConsoleWatch, StoreReader
from assay_stream.errors import OperatingError
from assay_stream.limits import CONSOLE_LIMITS
from assay_stream.observe.http.listener import Listener
from assay_stream.readmodel import schema
from assay_stream.readmodel.filling import Filler
from assay_stream.report.pins import Decision
from tests.support.console import TEXTS, a_store
from tests.support.readmodel import history

pytestmark = pytest.mark.filterwarnings("ignore::aiohttp.web_exceptions.NotAppKeyWarning")


@pytest.fixture
def metrics() -> ConsoleMetrics:
    return ConsoleMetrics()


@asynccontextmanager
async def watched(
    reader: StoreReader, metrics: ConsoleMetrics, **more: Any
) -> AsyncIterator[tuple[TestClient[Any, Any], TestClient[Any, Any]]]:
    service = ConsoleService(reader, Listener(), note=metrics.answered)
    watch = ConsoleWatch(reader, metrics, streams=lambda: service.streams, **more)
    try:
        async with (
            TestClient(TestServer(service.application())) as browser,
            TestClient(TestServer(watch.application())) as operator,
        ):
            yield browser, operator
    finally:
        reader.close()


def sample(metrics: ConsoleMetrics, name: str, **labels: str) -> float | None:
    found: float | None = metrics.registry.get_sample_value(f"assay_stream_{name}", labels)
    return found


def looked_at(folder: Path, time_us: int) -> None:
    """Note that the store was filled up to a time, as ``store run`` does every few seconds."""
    with schema.writing(folder) as connection:
        Filler(connection).note({}, looked_us=time_us)


async def test_requests_are_counted_by_page_and_status(tmp_path: Path, metrics: ConsoleMetrics) -> None:
    """What was refused has its status; what no page answers is one sort, so that nobody makes labels."""
    a_store(tmp_path, history())
    async with watched(StoreReader(tmp_path), metrics) as (browser, operator):
        for address in ("/", "/", "/alerts", "/alert?uid=abcdef"):
            await browser.get(address)
        await browser.get("/", headers={"Host": "evil.example"})
        await browser.post("/")
        for text in TEXTS:
            await browser.get(f"/{text}?x={text}")
        body = await (await operator.get("/metrics")).text()
    assert sample(metrics, "console_requests_total", page="/", status="200") == 2
    assert sample(metrics, "console_requests_total", page="/alert", status="404") == 1
    assert sample(metrics, "console_requests_total", page="/", status="421") == 1
    assert sample(metrics, "console_requests_total", page="/", status="405") == 1
    assert sample(metrics, "console_requests_total", page="other", status="404") == len(TEXTS)
    assert 'assay_stream_stage_ready{stage="console"} 1.0' in body
    assert not [text for text in TEXTS if text in body]


async def test_pages_that_are_kept_up_to_date_are_counted(tmp_path: Path, metrics: ConsoleMetrics) -> None:
    a_store(tmp_path, history())
    async with watched(StoreReader(tmp_path), metrics) as (browser, operator):
        stream = await browser.get("/events")
        await stream.content.readany()
        assert "assay_stream_console_streams 1.0" in await (await operator.get("/metrics")).text()
        stream.close()


async def test_it_is_ready_while_the_store_opens(tmp_path: Path, metrics: ConsoleMetrics) -> None:
    """Alive all the time: a restart makes no store. It says why it is not ready, and how old the store is."""
    folder = tmp_path / "store"
    async with watched(StoreReader(folder), metrics) as (_, operator):
        missing = await operator.get("/readyz")
        assert (missing.status, (await missing.json())["error"]) == (503, "store_missing")
        assert (await operator.get("/healthz")).status == 200
        folder.mkdir()
        a_store(folder, history())
        looked_at(folder, now_us() - 100_000_000)
        opened = await operator.get("/readyz")
        body = await opened.json()
        assert (opened.status, body["ready"], body["error"]) == (200, True, None)
        assert 100 <= body["store_age_s"] < 200
        shutil.rmtree(folder)
        assert (await operator.get("/readyz")).status == 503


async def test_one_that_is_busy_is_ready(tmp_path: Path, metrics: ConsoleMetrics) -> None:
    """Taking its visitors away would help nobody."""
    a_store(tmp_path, history())
    reader, let_go = StoreReader(tmp_path, replace(CONSOLE_LIMITS, threads=1, questions_max=1)), threading.Event()
    async with watched(reader, metrics) as (browser, operator):
        hung = reader._pool.submit(reader._answer, lambda _: let_go.wait(20))
        assert reader._room.acquire(blocking=False)
        try:
            assert (await browser.get("/")).status == 503
            assert (await operator.get("/readyz")).status == 200
        finally:
            let_go.set()
            hung.result()
    assert sample(metrics, "console_requests_total", page="/", status="503") == 1


async def test_a_filler_that_ended_shows(tmp_path: Path, metrics: ConsoleMetrics) -> None:
    """As a stage that is not ready; the pages are served all the same."""
    a_store(tmp_path, history())
    async with watched(StoreReader(tmp_path), metrics, is_filled=lambda: False) as (_, operator):
        assert 'assay_stream_stage_ready{stage="filling"} 0.0' in await (await operator.get("/metrics")).text()
        ready = await operator.get("/readyz")
        assert (ready.status, (await ready.json())["filled"]) == (200, False)


def test_attempts_to_sign_in_are_counted(metrics: ConsoleMetrics) -> None:
    """By password and by provider; looking at the form is none."""
    for method, path, status in (
        ("POST", "/sign-in", 303),
        ("POST", "/sign-in", 401),
        ("POST", "/sign-in", 429),
        ("GET", "/sign-in/callback", 303),
        ("GET", "/sign-in", 200),
    ):
        metrics.answered(method, path, status)
    assert sample(metrics, "console_sign_ins_total", outcome="ok") == 2
    assert sample(metrics, "console_sign_ins_total", outcome="failed") == 2


async def test_decisions_are_counted_one_by_one(metrics: ConsoleMetrics) -> None:
    failures = [None, OperatingError("not_delivered", "x")]

    async def publish(decisions: Sequence[Decision], author: str) -> None:
        failure = failures.pop(0)
        if failure is not None:
            raise failure

    counted = metrics.counting(publish)
    await counted([("a", {}), ("b", {})], "ann")
    with pytest.raises(OperatingError):
        await counted([("a", {})], "ann")
    assert sample(metrics, "console_decisions_total", outcome="published") == 2
    assert sample(metrics, "console_decisions_total", outcome="failed") == 1
