"""What the commands by which an operator decides have in common: who decides, and how it gets to the log."""

from __future__ import annotations

import asyncio
import getpass
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from assay_stream.cli.output import print_json, print_line
from assay_stream.cli.shared import quiet_client_logs, say
from assay_stream.config import Settings, command_settings
from assay_stream.errors import InputError, OperatingError
from assay_stream.kafka.connection import connection_options, start_admin
from assay_stream.kafka.lookup import read_bindings
from assay_stream.kafka.topics import topic_names
from assay_stream.observe import FileSink, Observation, ObservationPublisher, Sink
from assay_stream.observe.decisions import decision_event
from assay_stream.registry.state import Bindings
from assay_stream.text.escaping import visible

Author = Annotated[
    str | None,
    typer.Option(envvar="ASSAY_STREAM_AUTHOR", help="Who decides. Default: the name you are logged in with."),
]
Reason = Annotated[str, typer.Option(help="Why; it stands in the evidence of the change.")]
ServerId = Annotated[str, typer.Option(help="Your name for the server.")]
AnyServerId = Annotated[str | None, typer.Option(help="Only this server.")]
AnyTool = Annotated[str | None, typer.Option("--tool", help="Only this tool.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]
EventFile = Annotated[
    Path | None, typer.Option("--output", help="Add the decisions to this NDJSON file instead of Kafka.")
]


def author_or_login(author: str | None) -> str:
    """Return who decides.

    Raises:
        InputError: ``author_unknown`` where nobody is logged in.
    """
    if author is not None:
        return author
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        raise InputError("author_unknown", "nobody is logged in here: say who decides with --author") from None


def decide(
    decisions: Iterable[tuple[str, Mapping[str, Any]]],
    *,
    author: str | None,
    reason: str,
    output: Path | None,
    bootstrap: str | None,
) -> int:
    """Publish some decisions, all effective from now, and return how many.

    Raises:
        InputError: where a decision is wrong; none is published then.
        OperatingError: ``not_delivered`` or ``broker_unreachable``.
    """
    who, now = author_or_login(author), datetime.now(UTC)
    observations = [
        decision_event(
            kind, {**data, "author": who, "reason": reason}, author=who, event_id=str(uuid.uuid4()), decided_at=now
        )
        for kind, data in decisions
    ]
    asyncio.run(_publish(observations, output, bootstrap))
    return len(observations)


def known_bindings(bootstrap: str | None) -> tuple[Settings, Bindings]:
    """Return the settings and everything that the registry has published."""
    quiet_client_logs()
    settings = command_settings(bootstrap_servers=bootstrap)

    async def read() -> Bindings:
        admin = await start_admin(settings, waiting=say)
        await admin.close()
        return await read_bindings(settings)

    return settings, asyncio.run(read())


def print_rows(rows: Iterable[Mapping[str, Any]], columns: Iterable[str], *, as_json: bool) -> None:
    """Print rows, for a person or for a program."""
    listed = list(rows)
    if as_json:
        for row in listed:
            print_json(row)
        return
    names = list(columns)
    table = [names, *([visible(str(row.get(name, "-"))) for name in names] for row in listed)]
    widths = [max(len(cells[index]) for cells in table) for index in range(len(names))]
    for cells in table:
        print_line("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())
    if not listed:
        say("nothing to show")


async def _publish(observations: list[Observation], output: Path | None, bootstrap: str | None) -> None:
    sink: Sink
    if output is not None:
        sink = FileSink(output)
    else:
        quiet_client_logs()
        settings = command_settings(bootstrap_servers=bootstrap)
        admin = await start_admin(settings, waiting=say)
        await admin.close()
        publisher = ObservationPublisher(connection_options(settings), topics=topic_names(settings))
        publisher.start()
        sink = publisher
    for observation in observations:
        sink.publish(observation)
    await sink.aclose(timeout_s=60.0)
    if sink.stats.delivered != len(observations):
        raise OperatingError(
            "not_delivered",
            f"{len(observations) - sink.stats.delivered} of {len(observations)} decisions were not delivered: "
            "decide again; a decision that arrives twice changes nothing",
        )
