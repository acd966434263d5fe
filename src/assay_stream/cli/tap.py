"""``assay-stream tap``: a transparent proxy in front of one MCP server."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from assay_stream.cli.options import (
    AuthContext,
    Bootstrap,
    ObserverId,
    Unscoped,
    observer_or_host,
    quiet_client_logs,
)
from assay_stream.config import load_settings
from assay_stream.publish import FileSink, ObservationPublisher, Sink, Vantage, run_tap
from assay_stream.stream.connection import connection_options
from assay_stream.stream.topics import topic_names


def tap(
    command: Annotated[list[str], typer.Argument(help="The MCP server's command, after `--`.")],
    server_id: Annotated[str, typer.Option(help="Your name for the server (not what it calls itself).")],
    observer_id: ObserverId = None,
    unscoped: Unscoped = False,
    auth_context: AuthContext = None,
    output: Annotated[
        Path | None, typer.Option(help="Write observations to this NDJSON file instead of Kafka.")
    ] = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Run an MCP server (stdio) behind the tap and publish what passes.

    Client and server get each other's bytes unchanged. A snapshot is published for every tools/list result, a call
    record for every tools/call. Arguments and results are redacted, hashed and dropped. If Kafka is away the tap
    goes on: it queues, then drops and says how much. Exit code: the server's.

    Example: assay-stream tap --server-id time -- uvx mcp-server-time
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="assay-stream tap: %(message)s")
    quiet_client_logs()
    vantage = Vantage(
        server_id=server_id,
        observer_id=observer_or_host(observer_id),
        server_scoped=not unscoped,
        auth_context=auth_context,
    )
    raise typer.Exit(asyncio.run(_run(command, vantage, output, bootstrap_servers)))


async def _run(command: list[str], vantage: Vantage, output: Path | None, bootstrap: str | None) -> int:
    sink: Sink
    if output is not None:
        sink = FileSink(output)
    else:
        settings = load_settings(bootstrap_servers=bootstrap)
        publisher = ObservationPublisher(connection_options(settings), topics=topic_names(settings))
        publisher.start()
        sink = publisher
    try:
        return await run_tap(command, vantage=vantage, sink=sink)
    finally:
        await sink.aclose()
        dropped = sum(sink.stats.dropped.values())
        if dropped:
            print(
                f"assay-stream tap: {dropped} observations were dropped: {dict(sink.stats.dropped)}",
                file=sys.stderr,
            )
