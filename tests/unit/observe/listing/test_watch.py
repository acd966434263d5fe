"""Servers that misbehave cost only themselves, and what is said of them is what was seen."""

import asyncio
import logging
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from assay_stream.limits import LISTING_LIMITS
from tests.support.listing import following, listed_once

QUICK = replace(
    LISTING_LIMITS,
    announced_gap_s=0.05,
    retry_first_s=0.1,
    answer_limit_s=5.0,
    probe_limit_s=1.0,
    listing_limit_s=20.0,
    stop_limit_s=0.5,
    pages_max=5,
)


def scripted(behaviour: str, *arguments: str, **entry: Any) -> dict[str, Any]:
    return {"command": [sys.executable, "-m", "tests.support.scripted_lister_server", behaviour, *arguments], **entry}


async def test_a_server_of_an_earlier_revision_is_greeted_after_it_refused_the_newer_one() -> None:
    listing = await listed_once(scripted("good"), limits=QUICK)
    [snapshot] = listing.data()
    assert (snapshot["completeness"], snapshot["protocol_version"]) == ("complete", "2025-11-25")
    assert [tool["name"] for tool in snapshot["tools"]] == ["tool_0"]
    assert listing.watched.failing is None


@pytest.mark.parametrize("behaviour", ["deaf", "fragile", "texts"])
async def test_servers_that_bend_the_protocol_are_listed(behaviour: str) -> None:
    """One that ignores a question it does not know, one that ends at it, and one that makes texts of ids."""
    listing = await listed_once(scripted(behaviour), limits=QUICK)
    assert [snapshot["completeness"] for snapshot in listing.data()] == ["complete"]


@pytest.mark.parametrize(("behaviour", "tools"), [("endless", 5), ("circular", 2)])
async def test_a_list_without_an_end_is_published_once_and_as_incomplete(behaviour: str, tools: int) -> None:
    """As far as the bound, or until a cursor comes again."""
    listing = await listed_once(scripted(behaviour), limits=QUICK)
    [snapshot] = listing.data()
    assert (len({tool["name"] for tool in snapshot["tools"]}), snapshot["completeness"]) == (tools, "partial")


async def test_what_was_seen_before_a_server_died_is_published_as_incomplete() -> None:
    """Its first page, without a claim about the rest."""
    listing = await listed_once(scripted("dying"), limits=QUICK)
    assert [snapshot["completeness"] for snapshot in listing.data()] == ["partial"]
    assert listing.watched.failing == "ended"


async def test_a_list_of_100_mb_is_published_as_unreadable_and_its_server_ended() -> None:
    """After 8 MB nothing more is read; the registry hears that a list could not be seen."""
    listing = await listed_once(scripted("huge"), limits=QUICK)
    [snapshot] = listing.data()
    assert "unreadable" in snapshot["tools"]
    assert listing.watched.failing in ("unreadable", "too_much")
    assert not [child for child in psutil.Process().children() if "scripted_lister_server" in str(child.cmdline())]


@pytest.mark.parametrize(
    ("behaviour", "reason"), [("hanging", "silent"), ("failing", "refused"), ("chatty", "too_much")]
)
async def test_a_server_that_cannot_be_listed_is_named_once_with_a_reason(
    behaviour: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without anything that it said; after the bound nothing more is read of it."""
    quicker = replace(QUICK, answer_limit_s=1.0 if behaviour == "hanging" else 20.0, connection_messages_max=500)
    with caplog.at_level(logging.WARNING):
        listing = await listed_once(scripted(behaviour), limits=quicker)
    assert listing.watched.failing == reason
    assert [record.getMessage() for record in caplog.records] == [f"the-server: cannot be listed: {reason}"]
    assert listing.data() == []
    assert len(listing.data("list_changed")) <= 1


async def test_servers_that_hang_do_not_hold_up_the_others() -> None:
    """Each of four hangs for a second; a listing of its own takes one place among those of this machine."""
    hanging = [scripted("hanging", server_id=f"hanging-{number}") for number in range(4)]
    begun_s = time.monotonic()
    quicker = replace(QUICK, answer_limit_s=1.0, probe_limit_s=0.5)
    listing = await listed_once(*hanging, scripted("good"), limits=quicker)
    assert [each.failing for each in listing.watch.watched] == ["silent"] * 4 + [None]
    assert time.monotonic() - begun_s < 20


async def test_a_server_that_is_not_there_is_tried_again_at_longer_pauses() -> None:
    """Twice as long each time, up to the interval."""
    entry = {"command": ["/no/such/program"], "interval_s": 1}
    async with following(entry, limits=QUICK) as listing, asyncio.timeout(20):
        while listing.watched.failures < 4:
            await asyncio.sleep(0.01)
        assert listing.watch.ready
    assert (listing.watched.failing, listing.watched.counts["failed:not_started"]) == ("not_started", 4)


async def test_an_announced_change_of_an_earlier_revision_is_listed_on_the_same_connection() -> None:
    """The announcement comes before the list that answers it, as behind a tap."""
    async with following(scripted("announcing"), limits=QUICK) as listing:
        snapshots = await listing.wait_for(2)
        [announced] = listing.data("list_changed")
    assert [each["tools"][0]["title"] for each in snapshots] == ["edition 1", "edition 2"]
    kinds = [b"list_changed" in each.value[:80] for each in listing.sink.observations]
    assert kinds == [False, True, False]
    assert announced["observer_id"] == "lister"


async def test_a_server_that_announces_on_every_list_is_listed_no_faster_after_the_due_time() -> None:
    """The interval of a second passes twice."""
    quick = replace(QUICK, announced_gap_s=0.5, announced_gap_max_s=5.0)
    async with following(scripted("restless", interval_s=1), limits=quick) as listing:
        await listing.wait_for(2)
        await asyncio.sleep(2.5)
        assert 3 <= listing.watched.counts["listed"] <= 8


async def test_a_list_is_asked_for_again_after_the_interval() -> None:
    """And a stop ends the servers that were started."""
    async with following(scripted("good", interval_s=1), limits=QUICK) as listing:
        await listing.wait_for(2)
    assert not [child for child in psutil.Process().children() if "scripted_lister_server" in str(child.cmdline())]


async def test_what_a_server_asks_is_refused_but_for_a_ping(tmp_path: Path) -> None:
    file = tmp_path / "answered"
    await listed_once(scripted("asking", str(file)), limits=QUICK)
    assert file.read_text(encoding="utf-8").strip() == '{"jsonrpc":"2.0","id":"a","result":{}}'
