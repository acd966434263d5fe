"""The thread that looks at what passes."""

from __future__ import annotations

import itertools
import json
import threading
from typing import Any

import pytest

from assay_stream.observe import Observation, WireObserver
from assay_stream.observe.watch import Watch
from tests.support.mcp_dialogue import START, THE_VANTAGE

LIST = b'{"id":1,"method":"tools/list"}\n'
CALL = b'{"id":2,"method":"tools/call","params":{"name":"a"}}\n'


def an_observer() -> WireObserver:
    """An observer."""
    ids = itertools.count()
    return WireObserver(THE_VANTAGE, session_id="s", new_id=lambda: str(next(ids)))


def a_watch(found: list[Observation], **options: Any) -> Watch:
    """A watch, not started."""
    return Watch(an_observer(), publish=found.append, clock=lambda: START, **options)


def finish(watch: Watch) -> None:
    """Let it look at everything."""
    watch.finish()
    watch.join(5)
    assert not watch.is_alive()


def test_what_was_seen_is_looked_at_in_order_and_open_calls_are_given() -> None:
    """Also a last line without its line feed."""
    found: list[Observation] = []
    watch = a_watch(found)
    watch.start()
    watch.see("client->server", LIST)
    watch.see("server->client", b'{"id":1,"result":{"tools":[]}}\n')
    watch.see("client->server", CALL.rstrip())
    finish(watch)
    assert [observation.kind for observation in found] == ["list", "call"]
    snapshot, call = (json.loads(observation.value)["data"] for observation in found)
    assert call["snapshot_id"] == snapshot["snapshot_id"]
    assert call["error"] == {"code": "no_response"}


def test_a_backlog_that_is_full_loses_lines_but_not_the_fact() -> None:
    """A list that may have been among them is published as bad."""
    found: list[Observation] = []
    watch = a_watch(found, backlog_bytes_max=100)
    watch.see("client->server", LIST)
    for _ in range(3):
        watch.see("server->client", b'{"id":1,"result":{"tools":[' + b" " * 100)
    watch.start()
    finish(watch)
    [observation] = found
    assert json.loads(observation.value)["data"]["tools"] == {"unreadable": "line missed"}


def test_a_line_too_long_is_missed() -> None:
    """Memory is bounded."""
    found: list[Observation] = []
    watch = a_watch(found, line_bytes_max=50)
    watch.start()
    watch.see("client->server", LIST)
    watch.see("server->client", b"x" * 60 + b"\n")
    finish(watch)
    assert len(found) == 1


def test_a_failure_is_counted_and_said_once_and_nothing_stops(caplog: pytest.LogCaptureFixture) -> None:
    """Not even the watch."""
    found: list[Observation] = []
    failing = threading.Event()

    def publish(observation: Observation) -> None:
        if not failing.is_set():
            failing.set()
            raise RuntimeError("boom")
        found.append(observation)

    watch = Watch(an_observer(), publish=publish, clock=lambda: START)
    watch.start()
    watch.see("client->server", b'{"method":"tools/call","params":{"name":"a"}}\n')
    watch.see("client->server", CALL)
    finish(watch)
    assert (watch.failures, len(found), len(caplog.records)) == (1, 1, 1)


def test_seeing_never_raises() -> None:
    """The pump is behind it."""

    def broken_clock() -> Any:
        raise RuntimeError("boom")

    watch = Watch(an_observer(), publish=print, clock=broken_clock)
    watch.see("client->server", LIST)
    assert watch.failures == 1
