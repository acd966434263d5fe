"""What was dropped is counted by server and observer, within a bound."""

from dataclasses import replace
from typing import Any

from assay_stream.observe.observation import Observation
from assay_stream.observe.publisher import DeliveryQueue, PublisherLimits
from tests.support.ingest import a_call
from tests.support.mcp_dialogue import data_of


def said_of(*dropped: Observation) -> list[dict[str, Any]]:
    """The data of the counts that a queue without room publishes."""
    queue = DeliveryQueue(PublisherLimits(queue_records_max=0, losses_max=1), None)
    assert {queue.add(each) for each in dropped} == {"queue_full"}
    queue.take(1)
    return data_of(queue.batch)


def test_servers_are_bounded() -> None:
    """Those that are counted already go on being counted."""
    [said] = said_of(a_call(1), a_call(2, server="mail"), a_call(3))
    assert (said["server_id"], said["calls"]) == ("time", 2)


def test_what_no_record_may_name_is_left_out() -> None:
    """A key that is no text, and an observation without an observer."""
    assert said_of(replace(a_call(1), headers=())) == []
    assert said_of(replace(a_call(2), key=b"\xff")) == []
