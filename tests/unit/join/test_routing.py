"""Where calls belong, and the copy of one that came elsewhere."""

import pytest
from hypothesis import given, strategies as st

from assay_stream.config import Settings
from assay_stream.join import FIRST_ORIGIN, Routing, call_in, reroute
from assay_stream.kafka.topics import topic_table
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.record import Origin, Record, Role, murmur2_partition, size_bytes
from tests.support.errors import raises_code

TOPIC = "mcp.tools.call"
ROUTINGS = st.builds(
    lambda rows, bindings: Routing(calls=rows * bindings, bindings=bindings), st.integers(1, 8), st.integers(1, 8)
)


def a_call(partition: int = 1, offset: int = 7, headers: tuple[tuple[str, bytes], ...] = ()) -> Record:
    return Record(Role.CALLS, Origin(TOPIC, partition, offset), b"key", b"value", headers, timestamp_ms=5)


@given(st.text(min_size=1, max_size=20), ROUTINGS, st.data())
def test_one_hop_brings_a_call_home(server_id: str, routing: Routing, data: st.DataObject) -> None:
    came = data.draw(st.integers(0, routing.calls - 1))
    goes = routing.home_near(server_id, came)
    assert 0 <= goes < routing.calls
    assert routing.is_home(server_id, goes)
    assert routing.needed_by(goes) == murmur2_partition(server_id.encode(), routing.bindings)
    assert routing.is_home(server_id, murmur2_partition(server_id.encode(), routing.calls))


def test_neighbours_stay_spread() -> None:
    """Misplaced calls of one server do not all meet in one partition."""
    routing = Routing(calls=8, bindings=2)
    assert len({routing.home_near("server-1", came) for came in range(8)}) == 4


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("traceparent", b"{}"),),
        ((FIRST_ORIGIN, b"{"),),
        ((FIRST_ORIGIN, b"[]"),),
        ((FIRST_ORIGIN, b'{"offset":1,"partition":0,"topic":"mcp.tools.call"}'),),
        ((FIRST_ORIGIN, b'{"offset":1,"partition":0,"timestamp_ms":1,"topic":"other"}'),),
        ((FIRST_ORIGIN, b'{"offset":1,"partition":4,"timestamp_ms":1,"topic":"mcp.tools.call"}'),),
        ((FIRST_ORIGIN, b'{"offset":-1,"partition":0,"timestamp_ms":1,"topic":"mcp.tools.call"}'),),
        ((FIRST_ORIGIN, b'{"offset":1,"partition":true,"timestamp_ms":1,"topic":"mcp.tools.call"}'),),
        ((FIRST_ORIGIN, b'{"offset":true,"partition":0,"timestamp_ms":1,"topic":"mcp.tools.call"}'),),
        ((FIRST_ORIGIN, b'{"offset":9223372036854775808,"partition":0,"timestamp_ms":1,"topic":"mcp.tools.call"}'),),
        ((FIRST_ORIGIN, b'{"offset":1,"partition":0,"timestamp_ms":9223372036854775808,"topic":"mcp.tools.call"}'),),
        ((FIRST_ORIGIN, b'{"offset":1,"partition":0,"timestamp_ms":1,"topic":"mcp.tools.call"}'), ("later", b"")),
    ],
)
def test_a_record_that_no_join_wrote_is_refused(headers: tuple[tuple[str, bytes], ...]) -> None:
    place = Origin("assay.call.rerouted", 0, 0)
    with raises_code("bad_reroute"):
        call_in(Record(Role.REROUTED, place, b"", b"", headers), topic=TOPIC, partitions=4)


def test_a_call_whose_headers_fit_no_topic_is_refused() -> None:
    """Compressed it came through, and its copy would stop the partition for good."""
    room = DEFAULT_LIMITS.rerouted_bytes_max - size_bytes(b"key", b"value", (("h", b""),))
    routing = Routing(calls=4, bindings=2)
    largest = reroute(a_call(headers=(("h", b"x" * room),)), "server-1", routing)
    topic = next(spec for spec in topic_table(Settings()) if spec.role is Role.REROUTED)
    assert len(largest.headers[-2][1]) + len(largest.headers[-1][1]) < int(topic.config["max.message.bytes"])
    with raises_code("too_large"):
        reroute(a_call(headers=(("h", b"x" * (room + 1)),)), "server-1", routing)
