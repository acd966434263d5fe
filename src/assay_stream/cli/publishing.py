"""``assay-stream publish``: recorded traffic as observations, to Kafka or to a file."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from assay_stream.cli.files import Force, every_line, refuse_existing_file
from assay_stream.cli.shared import (
    AuthContext,
    Bootstrap,
    ObserverId,
    Unscoped,
    observer_or_host,
    quiet_client_logs,
    say,
)
from assay_stream.config import command_settings
from assay_stream.errors import ConfigurationError, InputError, OperatingError
from assay_stream.files.aside import Aside
from assay_stream.kafka.connection import connection_options, start_admin
from assay_stream.kafka.topics import topic_names
from assay_stream.observe import (
    FileSink,
    Observation,
    ObservationPublisher,
    PublisherLimits,
    Sink,
    from_assay_log,
    from_mcp_wire,
    from_observations,
)

_ROOM_PAUSE_S = 0.01


class Format(StrEnum):
    """What the files hold."""

    MCP_WIRE = "mcp-wire"
    ASSAY_LOG = "assay-log"
    OBSERVATIONS = "observations"


def publish(
    files: Annotated[list[Path], typer.Argument(help="NDJSON files; `-` for standard input.")],
    source: Annotated[
        Format,
        typer.Option(
            "--from",
            help="mcp-wire: captured JSON-RPC lines {dir, ts, msg}; assay-log: Assay decision log; "
            "observations: our own events.",
        ),
    ],
    server_id: Annotated[
        str | None, typer.Option(help="Your name for the server. Needed for mcp-wire and assay-log.")
    ] = None,
    observer_id: ObserverId = None,
    unscoped: Unscoped = False,
    auth_context: AuthContext = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write to --output; do not contact a broker.")] = False,
    output: Annotated[
        Path | None, typer.Option(help="With --dry-run: the NDJSON file to write, which must not exist.")
    ] = None,
    force: Force = False,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Publish recorded traffic as observations.

    The same file yields the same events with the same ids, so that publishing it twice does no harm. Bad lines are
    reported and skipped; the others are published. Exit code 2 if any line was bad.
    """
    quiet_client_logs()
    if dry_run != (output is not None):
        raise ConfigurationError("bad_option", "--dry-run and --output go together")
    if source is not Format.OBSERVATIONS and server_id is None:
        raise ConfigurationError("bad_option", f"--from {source} needs --server-id")
    if output is not None:
        refuse_existing_file(output, force=force)
    errors: list[tuple[str, InputError]] = []
    observations = _read(files, source, server_id, observer_or_host(observer_id), unscoped, auth_context, errors)
    with Aside() as aside:
        target = None if output is None else aside.path(output)
        delivered = asyncio.run(deliver(observations, target, bootstrap_servers))
        if output is not None and not delivered and output.exists():
            aside.drop()
    for name, error in errors:
        say(f"{name}: {error}")
    typer.echo(f"published {delivered}, refused {len(errors)}", err=True)
    if errors:
        raise typer.Exit(2)


def _read(
    files: list[Path],
    source: Format,
    server_id: str | None,
    observer_id: str,
    unscoped: bool,
    auth_context: str | None,
    errors: list[tuple[str, InputError]],
) -> Iterator[Observation]:
    for path in files:
        name = "standard input" if str(path) == "-" else str(path)

        def collect(error: InputError, name: str = name) -> None:
            errors.append((name, error))

        lines = every_line(path)
        if source is Format.OBSERVATIONS or server_id is None:
            yield from from_observations(lines, on_error=collect)
        elif source is Format.ASSAY_LOG:
            yield from from_assay_log(lines, server_id=server_id, observer_id=observer_id, on_error=collect)
        else:
            yield from from_mcp_wire(
                lines,
                server_id=server_id,
                observer_id=observer_id,
                server_scoped=not unscoped,
                auth_context=auth_context,
                on_error=collect,
            )


async def deliver(observations: Iterator[Observation], output: Path | BinaryIO | None, bootstrap: str | None) -> int:
    """Publish observations and return how many were delivered.

    Raises:
        OperatingError: ``not_delivered`` or ``broker_unreachable``.
    """
    if output is not None:
        return await _drain(observations, FileSink(output))
    settings = command_settings(bootstrap_servers=bootstrap)
    # A tap waits for brokers for ever; someone at a command line wants to know.
    admin = await start_admin(settings, waiting=say)
    await admin.close()
    publisher = ObservationPublisher(connection_options(settings), topics=topic_names(settings))
    publisher.start()
    return await _drain(observations, publisher)


async def _drain(observations: Iterator[Observation], sink: Sink) -> int:
    limits = PublisherLimits()
    try:
        for observation in observations:
            while (
                sink.stats.queued >= limits.queue_records_max // 2
                or sink.stats.queued_bytes >= limits.queue_bytes_max // 2
            ):
                await asyncio.sleep(_ROOM_PAUSE_S)
            sink.publish(observation)
    finally:
        await sink.aclose(timeout_s=60.0)
    stats = sink.stats
    if stats.dropped:
        raise OperatingError(
            "not_delivered",
            f"{sum(stats.dropped.values())} observations were not delivered: {dict(stats.dropped)}. "
            "Publish the file again: events that arrived have the same ids",
        )
    return stats.delivered
