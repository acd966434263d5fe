"""``assay-stream list-watch``: list servers without waiting for an agent to do it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay_stream.cli.options import Bootstrap, ObserverId
from assay_stream.cli.tap import observing
from assay_stream.config import load_settings
from assay_stream.errors import ConfigurationError, needing_extra
from assay_stream.files.toml_file import read_toml
from assay_stream.limits.serving import HTTP_LIMITS
from assay_stream.observe import Vantage

if TYPE_CHECKING:
    from assay_stream.observe.listing.servers import ListedServer
    from assay_stream.observe.listing.watch import Watched


def list_watch(
    config: Annotated[Path, typer.Option(help="The servers to list (TOML): docs/list-watch.md.")],
    observer_id: ObserverId = None,
    unscoped: Annotated[bool, typer.Option("--unscoped", help="Keep the server's id out of definition digests.")] = (
        False
    ),
    once: Annotated[
        bool, typer.Option("--once", help="List every server once, and exit with 1 if one failed.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option(help="With --once: append observations to this NDJSON file, not to Kafka.")
    ] = None,
    ca: Annotated[
        Path | None, typer.Option("--ca", help="CA certificates used to verify the servers. Default: the system's.")
    ] = None,
    web_port: Annotated[
        int | None, typer.Option(min=1, max=65_535, help="Serve /healthz, /readyz and /metrics on this port.")
    ] = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """List MCP servers regularly, and publish what they offer.

    Each server is listed when it announces a change, when its list is out of date (ttlMs), or after an interval. A
    server that is down, hangs or misbehaves costs only itself. Credentials come from files, and are never published.

    Example: assay-stream list-watch --config servers.toml
    """
    from assay_stream.observe.listing.servers import listed_servers

    if output is not None and not once:
        raise ConfigurationError("bad_option", "--output needs --once")
    # By default not the name of a tap on this machine: these lists are not what its clients were shown.
    name = f"{socket.gethostname()}-lister" if observer_id is None else observer_id
    observer = Vantage(server_id="-", observer_id=name, server_scoped=not unscoped)
    servers = listed_servers(read_toml(config, "bad_servers"), str(config), observer)
    try:
        tls = ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise ConfigurationError("bad_servers", f"--ca cannot be used: {error.strerror}") from None
    if once:
        watched = asyncio.run(_once(servers, tls, output, bootstrap_servers))
        raise typer.Exit(int(any(each.failing is not None for each in watched)))
    with needing_extra("worker"):
        from assay_stream.worker.listing import run_list_watch
    run_list_watch(load_settings(bootstrap_servers=bootstrap_servers), servers, tls=tls, web_port=web_port)


async def _once(
    servers: Sequence[ListedServer], tls: ssl.SSLContext, output: Path | None, bootstrap: str | None
) -> Sequence[Watched]:
    from assay_stream.observe.http.client import Client
    from assay_stream.observe.listing.watch import ListWatch

    client = Client(HTTP_LIMITS, tls)
    try:
        async with observing("list-watch", output, bootstrap) as (sink, _):
            watch = ListWatch(servers, publish=sink.publish, client=client)
            await watch.once()
    finally:
        await client.close()
    return watch.watched
