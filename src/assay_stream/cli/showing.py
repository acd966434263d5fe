"""``assay-stream alerts list``, ``show`` and ``explain``: for a person who has been woken by one."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from assay_stream.alerts.explanation import as_json, as_markdown, as_text, explanation_of
from assay_stream.alerts.formats.view import time_text
from assay_stream.alerts.index import AlertRow, AlertState, listing, short_uids
from assay_stream.alerts.page import page_of, severity_style
from assay_stream.alerts.selection import AlertSelection, since_of
from assay_stream.alerts.story import AlertStory
from assay_stream.cli.alerts import AlertFile, ServerId, Severity
from assay_stream.cli.output import print_json, print_line
from assay_stream.cli.painting import Colour, Painter
from assay_stream.cli.shared import Bootstrap, say
from assay_stream.cli.story_sources import Sources, index_of, story_from
from assay_stream.model.kinds import Kind
from assay_stream.text.escaping import visible
from assay_stream.text.visible import Span, shown

_HEAD = ("uid", "severity", "kind", "server", "tool", "count", "seen by", "first seen", "last seen", "status")
_SERVER, _TOOL = 3, 4
_MINUTE_CHARS = len("2026-03-01T10:00")


class StatusChoice(StrEnum):
    """Which alerts a list is about."""

    OPEN = "open"
    CLOSED = "closed"
    SUPPRESSED = "suppressed"
    ALL = "all"


class ExplainFormat(StrEnum):
    """For whom an explanation is written."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


ColourOption = Annotated[
    Colour, typer.Option("--color", help="Colours: by itself where the output is a terminal and NO_COLOR is not set.")
]
Uid = Annotated[
    str, typer.Argument(metavar="UID", help="The alert's uid, or as much of its beginning as no other one has.")
]
DefinitionFile = Annotated[
    Path | None,
    typer.Option(
        "--definitions", help="Definitions (NDJSON, as replay writes them). Default: from Kafka; none with --input."
    ),
]
EvidenceFile = Annotated[
    Path | None,
    typer.Option("--evidence", help="Evidence (NDJSON, as replay writes it). Default: from Kafka; none with --input."),
]
NoCalls = Annotated[bool, typer.Option("--no-calls", help="Do not look for calls that used the tool.")]
CallsSince = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Calls of this time (RFC 3339) or later. Default: the first finding."),
]


def list_alerts(
    server_id: ServerId = None,
    tool: Annotated[str | None, typer.Option(help="Only tools whose name fits: *, ? and [abc].")] = None,
    kind: Annotated[Kind | None, typer.Option(help="Only this kind of finding.")] = None,
    severity: Severity = None,
    status: Annotated[StatusChoice, typer.Option(help="Which alerts, as they stand now.")] = StatusChoice.OPEN,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only alerts last seen at this time (RFC 3339) or later.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="How many to show at most.")] = None,
    output_format: Annotated[
        Literal["table", "json"], typer.Option("--format", help="For a person, or one JSON object a line.")
    ] = "table",
    file: AlertFile = None,
    color: ColourOption = Colour.AUTO,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Show every alert as it stands now, the gravest first, then the latest.

    What is not shown is counted at the end. Bad lines are named, and then the exit code is 2.
    """
    selection = AlertSelection(
        since_ms=None if since is None else since_of(since), server_id=server_id, severity=severity
    )
    refused: list[str] = []
    index = asyncio.run(index_of(Sources(alerts=file, bootstrap=bootstrap_servers), refused))
    state = None if status is StatusChoice.ALL else AlertState(status.value)
    found = listing(
        index.rows.values(), selection, state=state, tool=tool, kind=None if kind is None else kind.value, limit=limit
    )
    summary = found.summary(state)
    if output_format == "json":
        for row in found.rows:
            print_json(row.as_json(), sort_keys=True)
        say(summary)
    else:
        short = short_uids(index.rows)
        painter = Painter(color)
        if found.rows:
            head = [Span(name, "dim") for name in _HEAD]
            painter.table([head, *(_cells(row, short[row.uid]) for row in found.rows)], flexible=(_TOOL, _SERVER))
        typer.echo(summary if found.rows else f"no alert to show: {summary}")
    _tell(refused)


def show(
    uid: Uid,
    no_calls: NoCalls = False,
    since: CallsSince = None,
    full: Annotated[
        bool, typer.Option("--full", help="Show everything that differs, however much. What is the same stays short.")
    ] = False,
    file: AlertFile = None,
    definitions: DefinitionFile = None,
    evidence: EvidenceFile = None,
    color: ColourOption = Colour.AUTO,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Show one alert: what changed, word by word, why it matters, who saw it, and which calls used the tool.

    Hidden characters, and letters that look like others, are marked: ⟦U+200B ZERO WIDTH SPACE⟧.
    """
    sources = Sources(
        alerts=file, definitions=definitions, evidence=evidence, bootstrap=bootstrap_servers, calls=not no_calls
    )
    story, refused = _story(uid, sources, since, full=full)
    Painter(color).lines(page_of(story))
    _tell(refused)


def explain(
    uid: Uid,
    output_format: Annotated[
        ExplainFormat, typer.Option("--format", help="For a person, a program, or a ticket.")
    ] = ExplainFormat.TEXT,
    no_calls: NoCalls = False,
    since: CallsSince = None,
    file: AlertFile = None,
    definitions: DefinitionFile = None,
    evidence: EvidenceFile = None,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Say in plain sentences what an alert is about: what is known, what is not, and what to do next."""
    sources = Sources(
        alerts=file, definitions=definitions, evidence=evidence, bootstrap=bootstrap_servers, calls=not no_calls
    )
    story, refused = _story(uid, sources, since, full=False)
    if output_format is ExplainFormat.JSON:
        print_json(as_json(story), indented=True)
    else:
        write = as_markdown if output_format is ExplainFormat.MARKDOWN else as_text
        for line in write(explanation_of(story)):
            print_line(visible(line))
    _tell(refused)


def register(alerts_app: typer.Typer) -> None:
    """Put the commands under ``assay-stream alerts``."""
    alerts_app.command("list")(list_alerts)
    alerts_app.command()(show)
    alerts_app.command()(explain)


def _story(uid: str, sources: Sources, since: str | None, *, full: bool) -> tuple[AlertStory, list[str]]:
    refused: list[str] = []
    since_ms = None if since is None else since_of(since)
    return asyncio.run(story_from(uid, sources, refused, since_ms=since_ms, full=full)), refused


def _tell(refused: list[str]) -> None:
    for text in refused:
        say(text)
    if refused:
        raise typer.Exit(2)


def _cells(row: AlertRow, short: str) -> list[Span]:
    return [
        Span(short),
        Span(shown(row.severity.lower()), severity_style(row.severity_id)),
        Span(shown(row.kind)),
        Span(shown(row.server_id) or "-"),
        Span(shown(row.tool_name) or "-"),
        Span(f"{row.count:,}"),
        Span(f"{row.observers:,}"),
        Span(_minute(row.first_seen_ms)),
        Span(_minute(row.last_seen_ms)),
        Span(shown(row.status.lower()) if row.state is not AlertState.CLOSED else "closed"),
    ]


def _minute(time_ms: int) -> str:
    return f"{time_text(time_ms)[:_MINUTE_CHARS]}Z"
