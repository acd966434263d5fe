"""Headers: what is passed on, and whether they agree with the message."""

import base64
from typing import Any

import pytest

from assay_stream.observe.http.messages import forwarded, mismatch, passed_on, repeated

CALL: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "gruß"}}
ENCODED = f"=?base64?{base64.b64encode('gruß'.encode()).decode()}?="


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([], None),
        ([("Mcp-Method", "tools/call")], None),
        ([("mcp-method", " tools/call "), ("MCP-NAME", ENCODED)], None),
        ([("Mcp-Method", "tools/list")], "Mcp-Method"),
        ([("Mcp-Method", "TOOLS/CALL")], "Mcp-Method"),
        ([("Mcp-Name", "other")], "Mcp-Name"),
        ([("Mcp-Name", "=?base64?%%?=")], "Mcp-Name"),
        ([("Mcp-Name", "gruß")], "Mcp-Name"),
    ],
)
def test_headers_that_say_something_else_are_found(fields: list[tuple[str, str]], expected: str | None) -> None:
    """Also those that programs decode in different ways."""
    assert mismatch(fields, CALL) == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["Mcp-Name", "mcp-name"], "mcp-name"),
        (["Content-Type", "X-A", "X-A", "Accept"], None),
        (["Content-Type", "CONTENT-TYPE"], "CONTENT-TYPE"),
        (["Content_Encoding"], "Content_Encoding"),
        (["Mcp-Session_Id"], "Mcp-Session_Id"),
        (["X_A", "X-A"], None),
    ],
)
def test_headers_that_come_twice_are_found(names: list[str], expected: str | None) -> None:
    """Programs differ in which of them counts, and some take an underscore for a hyphen."""
    assert repeated([(name, "x") for name in names]) == expected


@pytest.mark.parametrize("message", [{"method": "ping"}, {"method": "tasks/get"}, {"method": 7}, {}, {"params": []}])
def test_a_name_beside_a_message_that_has_none_is_no_mismatch(message: dict[str, Any]) -> None:
    assert mismatch([("Mcp-Name", "task-1")], message) is None


def test_headers_for_one_connection_are_not_passed_on() -> None:
    """Neither the standard's nor those that Connection names."""
    fields = [("Connection", "close, X-A"), ("X-A", "1"), ("TE", "x"), ("Transfer-Encoding", "chunked"), ("X-B", "2")]
    assert passed_on(fields) == [("X-B", "2")]


def test_a_server_is_offered_no_encoding_that_cannot_be_read() -> None:
    fields = [("Host", "tap"), ("Accept-Encoding", "br;q=1, gzip"), ("accept-encoding", "zstd, deflate;q=0.1, *")]
    assert forwarded(fields) == [("Accept-Encoding", "gzip, deflate;q=0.1")]
    assert forwarded([]) == [("Accept-Encoding", "identity")]
