"""An observer that cannot keep up: what it missed is counted, and known to be missing."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from assay_stream.limits import HTTP_LIMITS, HttpLimits
from assay_stream.observe import Observation
from assay_stream.observe.http.connections import Contexts
from assay_stream.observe.http.tap import HttpWatch
from assay_stream.observe.http.traffic import Answered, Closed, Passed, Traffic
from tests.support.mcp_dialogue import START, THE_VANTAGE, data_of

JSON = [("Content-Type", "application/json"), ("MCP-Protocol-Version", "2026-07-28")]
LIST = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
TOOLS = b'{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}'


def a_traffic(limits: HttpLimits) -> Traffic:
    ids = itertools.count()
    return Traffic(THE_VANTAGE, Contexts(b"", b""), new_id=lambda: str(next(ids)), limits=limits)


class Watching:
    def __init__(self, *, alone: bool = True, **limits: int) -> None:
        self.observed: list[Observation] = []
        bounds = replace(HTTP_LIMITS, **limits)
        self.traffic = a_traffic(bounds)
        servers = {"/": self.traffic} if alone else {"/": self.traffic, "/other": a_traffic(bounds)}
        self.watch = HttpWatch(servers, publish=self.observed.append, clock=lambda: START, limits=bounds)

    async def list_passes(self, answer: bytes = TOOLS, *, path: str = "/") -> None:
        exchange = self.watch.opened(path, "POST", JSON)
        exchange.note(Passed("client->server", LIST))
        exchange.note(Passed("client->server", None))
        exchange.note(Answered(200, JSON))
        await exchange.inspect(Passed("server->client", answer))
        await exchange.inspect(Passed("server->client", None))
        exchange.note(Closed("complete"))

    def finish(self) -> list[dict[str, Any]]:
        self.watch.start()
        self.watch.close()
        return data_of(self.observed)


async def test_a_list_that_the_backlog_has_no_room_for_is_published_as_unreadable() -> None:
    """It must not leave the previous one in force."""
    watching = Watching(backlog_bytes_max=4_096 + 1_100)
    await watching.list_passes(TOOLS + b" " * 100)
    [snapshot] = watching.finish()
    assert snapshot["tools"] == {"unreadable": "line missed"}


async def test_an_answer_that_comes_byte_by_byte_waits_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A note of one byte takes hundreds; of what is lost nothing more waits."""
    watching = Watching(backlog_bytes_max=100_000)
    exchange, add, added = watching.watch.opened("/", "POST", JSON), watching.watch.note, 0

    def counted(*of: Any) -> bool:
        nonlocal added
        added += 1
        return add(*of)

    monkeypatch.setattr(watching.watch, "note", counted)
    exchange.note(Passed("client->server", LIST))
    exchange.note(Passed("client->server", None))
    exchange.note(Answered(200, JSON))
    for byte in TOOLS + b" " * 1_000:
        await exchange.inspect(Passed("server->client", bytes([byte])))
    await exchange.inspect(Passed("server->client", None))
    exchange.note(Closed("complete"))
    assert added < 200
    [snapshot] = watching.finish()
    assert snapshot["tools"] == {"unreadable": "line missed"}


async def test_an_exchange_that_the_backlog_has_no_room_for_is_counted() -> None:
    """It passes unobserved, and what is published says so."""
    watching = Watching(backlog_bytes_max=4_096 + 2_400)
    await watching.list_passes()
    await watching.list_passes()
    assert watching.watch.missed_exchanges == 1
    snapshot, loss = watching.finish()
    assert (snapshot["completeness"], loss["lists"], loss["calls"]) == ("complete", 0, 1)


async def test_long_header_fields_count_as_what_waits() -> None:
    """Those of requests: such an exchange passes unobserved. Those of an answer: what may be a list in it is lost."""
    watching, long = Watching(backlog_bytes_max=100_000), [*JSON, ("Mcp-Session-Id", "x" * 60_000)]
    for _ in range(10):
        watching.watch.opened("/", "POST", long)
    assert watching.watch.missed_exchanges == 9

    watching = Watching(backlog_bytes_max=50_000)
    exchange = watching.watch.opened("/", "POST", JSON)
    exchange.note(Passed("client->server", LIST))
    exchange.note(Passed("client->server", None))
    exchange.note(Answered(200, long))
    await exchange.inspect(Passed("server->client", TOOLS))
    exchange.note(Closed("complete"))
    [snapshot] = watching.finish()
    assert snapshot["tools"] == {"unreadable": "line missed"}
    assert watching.traffic.exchanges == {}


async def test_a_server_leaves_room_for_others() -> None:
    """While its messages wait to be inspected, and again once they were."""
    watching = Watching(alone=False, backlog_bytes_max=100_000, server_backlog_bytes_max=50_000)
    for _ in range(20):
        await watching.list_passes()
    missed = watching.watch.missed_exchanges
    assert missed > 0
    await watching.list_passes(path="/other")
    assert watching.watch.missed_exchanges == missed
    watching.finish()
    await watching.list_passes()
    assert watching.watch.missed_exchanges == missed


async def test_a_failure_is_counted_and_what_else_passed_is_published() -> None:
    """Neither the connection nor the next exchange knows of it."""
    watching = Watching()
    broken = watching.watch.opened("/", "POST", JSON)
    broken.note(Answered(200, [("Content-Type", b"no text")]))  # type: ignore[list-item]
    broken.note(Closed("complete"))
    await watching.list_passes()
    assert [each["completeness"] for each in watching.finish()] == ["complete"]
    assert watching.watch.failures == 1
