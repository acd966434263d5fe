"""Records, origins, and what a refused record becomes."""

from typing import Any

import pytest
from aiokafka.partitioner import murmur2
from hypothesis import given, strategies as st

from assay_stream.errors import InputError
from assay_stream.model.record import (
    ERASED_HEADER,
    TOPIC_NAMES,
    Origin,
    Record,
    Role,
    _cached_home,
    _murmur2,
    erased_by,
    home_of,
    murmur2_partition,
    rejected,
    size_bytes,
)
from assay_stream.model.state_table import Table


def a_record(**changes: object) -> Record:
    record = Record(
        role=Role.CALLS,
        origin=Origin(topic="mcp.tools.call", partition=3, offset=9),
        key=b"k\xff",
        value=b"\x00v",
        headers=(("h", b"\xfe"), ("h", b"2")),
        timestamp_ms=5,
    )
    return record._replace(**changes)  # type: ignore[arg-type]


def test_a_rejected_copy_keeps_everything() -> None:
    copy = rejected(a_record(), InputError("not_json", "it is not"))
    assert (copy.role, copy.key, copy.value, copy.timestamp_ms) == (Role.REJECTED, b"k\xff", b"\x00v", 5)
    assert copy.headers[:2] == (("h", b"\xfe"), ("h", b"2"))


def test_a_rejected_copy_says_why_and_whence() -> None:
    copy = rejected(a_record(), InputError("not_json", "it is not", path="$.é\ud800"))
    assert dict(copy.headers[2:]) == {
        "error.code": b"not_json",
        "error.message": "not_json at $.é\\ud800: it is not".encode(),
        "error.topic": b"mcp.tools.call",
        "error.partition": b"3",
        "error.offset": b"9",
    }
    assert copy.label == "rejected:not_json"


def test_every_role_has_a_topic_of_its_own() -> None:
    assert len({TOPIC_NAMES[role] for role in Role}) == len(Role)


@given(st.binary(max_size=64))
def test_the_hash_is_the_producer_s(key: bytes) -> None:
    assert _murmur2(key) & 0xFFFFFFFF == murmur2(key) & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_the_java_client_s(key: bytes, signed: int) -> None:
    """The test vectors of Apache Kafka's own UtilsTest hold."""
    assert _murmur2(key) == signed & 0xFFFFFFFF


def test_a_server_s_partition_is_that_of_its_key() -> None:
    before = _cached_home.cache_info().currsize
    for name in ("server-1", "s" * 129, "Zürich" * 100):
        for _ in range(2):
            assert home_of(name, 7) == murmur2_partition(name.encode(), 7)
    assert _cached_home.cache_info().currsize <= before + 1


def test_the_key_of_the_progress_record_cannot_be_used() -> None:
    table = Table[dict[str, Any]](Role.ALERT_STATES, 0, "input")
    with pytest.raises(ValueError, match="'progress' is reserved"):
        table["progress"] = {}


@pytest.mark.parametrize(
    ("key", "value", "name", "erasure"),
    [
        (None, None, b"request-17", "request-17"),
        (None, None, b"\xff", "\ufffd"),
        (None, None, None, None),
        (b"k", None, b"request-17", None),
        (None, b"{}", b"request-17", None),
    ],
)
def test_what_was_erased_names_its_erasure(
    key: bytes | None, value: bytes | None, name: bytes | None, erasure: str | None
) -> None:
    """A record that still says something was not erased, whatever its header says."""
    headers = () if name is None else ((ERASED_HEADER, name),)
    assert erased_by(Record(Role.CALLS, Origin("calls", 0, 0), key, value, headers)) == erasure


def test_the_size_of_a_record_is_that_of_all_its_parts() -> None:
    """Ten bytes at most hold the lengths of a header; a name counts in UTF-8."""
    assert size_bytes(None, None, ()) == 0
    assert size_bytes(b"key", b"value", (("h\u00e9", b"12"), ("n", b""))) == 3 + 5 + (10 + 3 + 2) + (10 + 1)
