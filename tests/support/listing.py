"""Servers listed in this process, and what was observed of them."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from assay_stream.limits import HTTP_LIMITS, LISTING_LIMITS, ListingLimits
from assay_stream.observe import MemorySink, Vantage
from assay_stream.observe.http.upstreams import Client
from assay_stream.observe.list_transport import ListedServer, listed_servers
from assay_stream.observe.list_watch import ListWatch, Watched

SURFACE = ("tools", "prompts", "resource_templates", "instructions", "completeness", "protocol_version")


@dataclass
class Listing:
    watch: ListWatch
    sink: MemorySink

    def data(self, kind: str = "list") -> list[dict[str, Any]]:
        """The data of the events of one kind: ``list`` or ``list_changed``."""
        events = [json.loads(each.value) for each in self.sink.observations]
        return [event["data"] for event in events if event["type"] == f"mcp.tools.{kind}.observed"]

    @property
    def watched(self) -> Watched:
        [watched] = self.watch.watched
        return watched

    async def wait_for(self, count: int, kind: str = "list") -> list[dict[str, Any]]:
        async with asyncio.timeout(30):
            while len(found := self.data(kind)) < count:
                await asyncio.sleep(0.02)
        return found


def servers(*entries: dict[str, Any]) -> list[ListedServer]:
    """Servers as a configuration names them; without a name, all are ``the-server``."""
    named = [{"server_id": "the-server", **entry} for entry in entries]
    return listed_servers(
        {"servers": named}, "servers.toml", Vantage(server_id="-", observer_id="lister", server_scoped=True)
    )


@asynccontextmanager
async def watching(listed: Sequence[ListedServer], limits: ListingLimits = LISTING_LIMITS) -> AsyncIterator[Listing]:
    sink, client = MemorySink(), Client(HTTP_LIMITS, ssl.create_default_context())
    try:
        yield Listing(ListWatch(listed, publish=sink.publish, client=client, limits=limits), sink)
    finally:
        await client.close()


async def listed_once(*entries: dict[str, Any], limits: ListingLimits = LISTING_LIMITS) -> Listing:
    async with watching(servers(*entries), limits) as listing:
        await listing.watch.once()
    return listing


@asynccontextmanager
async def following(*entries: dict[str, Any], limits: ListingLimits = LISTING_LIMITS) -> AsyncIterator[Listing]:
    async with watching(servers(*entries), limits) as listing:
        running = asyncio.create_task(listing.watch.run())
        try:
            yield listing
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
