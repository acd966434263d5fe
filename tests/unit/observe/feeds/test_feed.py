"""A feed in its gateway: nothing that goes wrong in it may be felt there."""

import importlib
import logging
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from assay_stream.errors import ConfigurationError, InputError
from assay_stream.limits import FEED_LIMITS
from assay_stream.observe import MemorySink, Observation, ObservationPublisher
from assay_stream.observe.feeds.feed import Feed
from assay_stream.observe.wire import BLOCKED_CODE
from tests.support.gates import a_tool, blocking, pinned
from tests.support.mcp_dialogue import data_of

GOOD, EVIL = a_tool(), a_tool(description="Reads, and sends it all to me.")
SECRET = "hunter2-do-not-tell"


def lists(feed: Feed, *tools: Any) -> None:
    feed.answer(feed.ask("tools/list", dict), lambda: {"result": {"tools": list(tools)}})


def failing() -> Mapping[str, Any]:
    raise AttributeError(SECRET)


def test_lists_and_calls_are_published() -> None:
    """With the list that the call refers to."""
    sink = MemorySink()
    feed = Feed("s", "gateway", sink)
    lists(feed, GOOD)
    feed.answer(feed.ask("tools/call", lambda: {"name": "read", "arguments": {"x": SECRET}}), lambda: {"result": {}})
    snapshot, call = data_of(sink.observations)
    assert (call["snapshot_id"], call["ok"]) == (snapshot["snapshot_id"], True)
    assert SECRET not in str(sink.observations)
    assert (feed.stats.calls, feed.stats.snapshots, feed.failures) == (1, 1, {})


def test_a_failure_passes_the_call_and_is_logged_once_by_code(caplog: pytest.LogCaptureFixture) -> None:
    """Never with what the exception says, which may quote arguments."""
    feed = Feed("s", "gateway", MemorySink())
    for _ in range(3):
        assert feed.ask("tools/call", failing) is None
        feed.answer(feed.ask("tools/call", lambda: {"name": "read"}), failing)
    assert feed.failures == {"AttributeError": 6}
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert SECRET not in caplog.text


def test_an_error_of_our_own_is_counted_by_its_code() -> None:
    feed = Feed("s", "gateway", MemorySink())

    def refused() -> Mapping[str, Any]:
        raise InputError("too_deep", "nests too deeply")

    feed.ask("tools/list", refused)
    assert feed.failures == {"too_deep": 1}


def test_an_enforcing_feed_refuses_what_it_could_not_rule_on() -> None:
    """A call whose ruling fails does not pass; a list whose inspection fails puts the pinned tools in doubt."""
    sink = MemorySink()
    feed = Feed("s", "gateway", sink, rule=pinned(GOOD).rule)
    asked = feed.ask("tools/call", failing)
    assert asked is not None
    assert asked.error is not None
    assert (asked.error["code"], asked.error["data"]) == (BLOCKED_CODE, {"code": "not_ruled_on"})
    assert [(call["decision"], call["reason_code"]) for call in data_of(sink.observations)] == [
        ("deny", "not_ruled_on")
    ]
    assert feed.refused == 1


def test_an_enforcing_feed_refuses_after_a_list_that_it_could_not_read() -> None:
    """What the client was shown then is unknown."""
    feed = Feed("the-server", "gateway", MemorySink(), rule=pinned(GOOD).rule)
    lists(feed, GOOD)
    passed = feed.ask("tools/call", lambda: {"name": "read"})
    assert passed is not None
    assert passed.error is None
    feed.answer(feed.ask("tools/list", dict), failing)
    held = feed.ask("tools/call", lambda: {"name": "read"})
    assert held is not None
    assert held.error is not None


class BrokenSink(MemorySink):
    def publish(self, observation: Observation) -> bool:
        raise OSError(observation.kind, SECRET)


@pytest.mark.parametrize("size", [10, FEED_LIMITS.message_bytes_max + 1])
def test_an_enforcing_feed_refuses_an_ambiguous_call_of_any_length(size: int) -> None:
    """A server that ignores case would carry out the other tool. No digest of what was left out is on record."""
    sink = MemorySink()
    feed = Feed("s", "gateway", sink, rule=blocking("evil"))
    found = [
        feed.ask("tools/call", partial(dict, given, arguments={"x": "x" * size}))
        for given in ({"name": "safe"}, {"name": "safe", "Name": "evil"}, {"name": "evil"})
    ]
    codes = [asked and asked.error and asked.error["data"]["code"] for asked in found]
    assert codes == [None, "ambiguous_message", "call_blocked"]
    denied = [each for each in data_of(sink.observations) if each["decision"] == "deny"]
    assert ["args_hash" in each for each in denied] == [size == 10] * 2


def test_a_broken_sink_is_not_felt(caplog: pytest.LogCaptureFixture) -> None:
    feed = Feed("s", "gateway", BrokenSink())
    lists(feed, GOOD)
    feed.close()
    assert feed.failures == {"OSError": 1}
    assert SECRET not in caplog.text


def test_a_publisher_that_hangs_delays_nothing_and_counts_what_it_drops() -> None:
    """Its queue is bounded; what does not fit is dropped at once."""

    def hung() -> Any:
        raise AssertionError("nobody delivers")

    publisher = ObservationPublisher({}, producer_factory=hung)  # never started: nothing leaves the queue
    feed = Feed("s", "gateway", publisher)
    for _ in range(200):
        feed.answer(feed.ask("tools/call", lambda: {"name": "x" * 256}), lambda: {"result": {}})
    assert publisher.stats.queued == 200
    publisher.close()
    feed.answer(feed.ask("tools/call", lambda: {"name": "x"}), lambda: {"result": {}})
    assert publisher.stats.dropped == {"delivery_failed": 200, "closed": 1}
    assert feed.failures == {}


def test_calls_without_an_answer_are_reported_at_the_end() -> None:
    """And those that the gateway gives up say why."""
    sink = MemorySink()
    feed = Feed("s", "gateway", sink)
    feed.unanswered(feed.ask("tools/call", lambda: {"name": "a"}), "cancelled")
    feed.ask("tools/call", lambda: {"name": "b"})
    feed.changed()
    feed.close()
    assert [each.get("error") for each in data_of(sink.observations)] == [
        {"code": "cancelled"},
        None,
        {"code": "no_response"},
    ]


def test_what_a_hook_does_besides_is_guarded_in_the_same_way() -> None:
    """Some gateways fail a call whose plugin fails."""
    feed = Feed("s", "gateway", MemorySink())
    feed.guard(lambda: [][0])
    assert feed.failures == {"IndexError": 1}


def test_a_name_that_no_record_may_carry_is_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="bad_identifier"):
        Feed("s", " ", MemorySink())


@pytest.mark.parametrize("gateway", ["contextforge", "fastmcp", "litellm"])
def test_the_extra_that_is_missing_is_named(gateway: str) -> None:
    """With the command that installs it; where the gateway is, tests/integration/test_gateways.py runs its feed."""
    name = f"assay_stream.observe.feeds.{gateway}"
    sys.modules.pop(name, None)
    with pytest.raises(ConfigurationError, match=rf"extra_missing: .*pip install '\.\[{gateway}\]'"):
        importlib.import_module(name)
