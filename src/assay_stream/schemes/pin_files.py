"""stub until merge"""

from typing import NamedTuple


class PinEntry(NamedTuple):
    server_id: str | None
    tool_name: str
    scheme: str
    value: str


def check_value(scheme: str, value: str) -> str:
    return value


def read_pins(raw: bytes, *, format: str, server_id: str | None) -> list[PinEntry]:
    return []


def write_pins(entries: list[PinEntry], *, format: str, server_id: str | None) -> tuple[bytes, list[PinEntry]]:
    return b"", []
