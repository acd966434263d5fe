"""Forgiving readers: what clients understand is understood here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_stream.canonical.lenient import member_bytes, read_leniently
from assay_stream.limits.core import DEFAULT_LIMITS


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'{"id":1,"id":2}', {"id": 2}),
        (b'{"id":1,"x":"\xff"}', {"id": 1, "x": "\ufffd"}),
        (b'\xef\xbb\xbf{"id":1}', {"id": 1}),
        (b'{"id":' + b"9" * 5_000 + b"}", {"id": float("inf")}),
        (b"not json", None),
        (b'{"id":1', None),
        (b"", None),
    ],
)
def test_what_a_forgiving_parser_makes_of_it(raw: bytes, value: object) -> None:
    """As JavaScript and Python clients do."""
    assert read_leniently(raw) == value


@pytest.mark.parametrize("depth", [200, 100_000])
def test_depth_does_not_hide_what_a_message_is(depth: int) -> None:
    deep = b'[{"x":"]}"},' * depth + b"1" + b"]" * depth
    message = read_leniently(b'{"result":{"tools":' + deep + b'},"id":7}')
    assert message["id"] == 7
    assert "tools" in message["result"]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"dir":"x","msg": {"a":[1,{"msg":2}]} ,"ts":1}', b'{"a":[1,{"msg":2}]}'),
        (b'{"msg":1,"msg":"a,}"}', b'"a,}"'),
        (b'{"ts":{"msg":1}}', None),
        (b'{"m\\u0073g":true}', b"true"),
        (b'{"msg":"\\"}"}', b'"\\"}"'),
    ],
)
def test_a_member_is_given_as_the_bytes_it_came_in(raw: bytes, expected: bytes | None) -> None:
    assert member_bytes(raw, "msg") == expected


@given(st.binary(max_size=200))
def test_readers_are_total(raw: bytes) -> None:
    read_leniently(raw)
    member_bytes(raw, "msg")


@given(st.text(alphabet='{}[],:"\\1a ', max_size=60))
def test_readers_are_total_for_almost_json(text: str) -> None:
    read_leniently(text.encode())
    member_bytes(text.encode(), "a")


def test_a_message_with_too_many_containers_is_still_known_for_what_it_is() -> None:
    """What says so stands at its beginning; the containers beyond those that are kept are null."""
    count = DEFAULT_LIMITS.containers_max
    raw = b'{"id":1,"result":{"tools":[' + b"[]," * count + b'"end"]}}'
    found = read_leniently(raw)
    tools = found["result"]["tools"]
    assert (found["id"], len(tools), tools[0], tools[-2], tools[-1]) == (1, count + 1, [], None, "end")
