"""Who plays in the demo: released servers, or servers of our own whose texts may go into the package."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from deploy.local.servers import node_server, python_server

Calls = tuple[tuple[str, dict[str, Any]], ...]


@dataclass(frozen=True, kw_only=True)
class Cast:
    """Who plays: a server in two releases, one of whose tools is poisoned later, and a server that just works."""

    server_id: str
    releases: tuple[list[str], list[str]]
    calls: Calls
    other_id: str
    other: list[str]
    other_calls: Calls

    def rug_pull(self) -> list[str]:
        """Return the command of the newer release with the tool of the first call poisoned."""
        return [*_OWN_SERVERS, "rug-pull", self.calls[0][0], "--", *self.releases[1]]


_OWN_SERVERS = [sys.executable, "-m", "deploy.local.demo_servers"]


def real_servers() -> Cast:
    """Return released servers, from PyPI and npm."""
    return Cast(
        server_id="time",
        releases=(python_server("mcp-server-time", "0.6.2"), python_server("mcp-server-time", "2026.10.19")),
        calls=(
            ("get_current_time", {"timezone": "Europe/Amsterdam"}),
            ("convert_time", {"source_timezone": "UTC", "time": "16:30", "target_timezone": "Asia/Tokyo"}),
        ),
        other_id="thinking",
        other=node_server("@modelcontextprotocol/server-sequential-thinking", "2026.8.31"),
        other_calls=(
            (
                "sequentialthinking",
                {"thought": "Is it late in Tokyo?", "thoughtNumber": 1, "totalThoughts": 1, "nextThoughtNeeded": False},
            ),
        ),
    )


def own_servers() -> Cast:
    """Return servers of ours, whose texts may go into the package."""
    return Cast(
        server_id="notes",
        releases=([*_OWN_SERVERS, "notes", "1"], [*_OWN_SERVERS, "notes", "2"]),
        calls=(("search_notes", {"query": "milk"}), ("add_note", {"text": "buy milk"})),
        other_id="weather",
        other=[*_OWN_SERVERS, "weather", "1"],
        other_calls=(("get_forecast", {"city": "Utrecht"}),),
    )
