"""What sees exchanges that are not MCP."""

from __future__ import annotations

from assay_stream.observe.http.proxy import Blind, Eyes


async def test_what_is_no_mcp_passes_as_it_is() -> None:
    """Documents about authorisation are neither held nor changed."""
    eyes: Eyes = Blind()
    assert (eyes.rules, eyes.hides) == (False, False)
    assert await eyes.ruled(b"request") is None
    assert [await eyes.from_server(data) for data in (b"part", None)] == [b"part", b""]
    assert await eyes.whole(b"body") == b"body"
