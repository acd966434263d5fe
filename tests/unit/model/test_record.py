"""Records, origins, and what a refused record becomes."""

from __future__ import annotations

from assay_stream.errors import InputError
from assay_stream.model.record import TOPIC_NAMES, Origin, Record, Role, rejected


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


def test_nothing_at_all_can_be_rejected() -> None:
    copy = rejected(a_record(key=None, value=None, headers=()), InputError("tombstone", "empty"))
    assert (copy.key, copy.value, len(copy.headers)) == (None, None, 5)


def test_an_origin_is_three_names_in_json() -> None:
    assert a_record().origin.as_json() == {"topic": "mcp.tools.call", "partition": 3, "offset": 9}


def test_every_role_has_a_topic_of_its_own() -> None:
    assert len({TOPIC_NAMES[role] for role in Role}) == len(Role)
