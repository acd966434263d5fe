"""What a server that is started gets of our environment, and what its output may cost."""

import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay_stream.limits import LISTING_LIMITS
from assay_stream.observe.list_transport import ListingError, StdioTransport, environment_of
from tests.support.listing import servers

OURS = {"PATH": "/bin", "HOME": "/root", "ASSAY_STREAM_SASL_PASSWORD": "secret", "AWS_SECRET_ACCESS_KEY": "secret"}


def test_a_server_gets_none_of_our_settings(tmp_path: Path) -> None:
    """They hold the password of the brokers; what it needs comes from files."""
    file = tmp_path / "key"
    file.write_text("its-own\n")
    [server] = servers({"command": ["x"], "env_files": {"API_KEY": str(file)}})
    assert environment_of(server, OURS) == {"PATH": "/bin", "HOME": "/root", "API_KEY": "its-own"}


def test_a_variable_without_its_file_starts_nothing(tmp_path: Path) -> None:
    """The server might do something else without it."""
    [server] = servers({"command": ["x"], "env_files": {"API_KEY": str(tmp_path / "missing")}})
    with pytest.raises(ListingError, match="credentials"):
        environment_of(server, OURS)


async def test_a_line_in_small_pieces_takes_no_more_memory_than_its_bytes() -> None:
    """A server can write two bytes at a time, up to the longest line."""
    heard: list[bytes] = []
    left = 100_000

    async def read(_: int) -> bytes:
        nonlocal left
        left -= 1
        return bytes(bytearray(b"xx")) if left > 0 else b"\n" if not left else b""

    async def hear(line: bytes) -> None:
        heard.append(line)

    conversation: Any = SimpleNamespace(limits=LISTING_LIMITS, heard=hear, end=lambda _: None)
    nothing: Any = None
    reader: Any = SimpleNamespace(read=read)
    tracemalloc.start()
    try:
        await StdioTransport(nothing, reader, nothing, conversation)._reading
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [len(line) for line in heard] == [199_998]
    assert peak_bytes < 2_000_000
