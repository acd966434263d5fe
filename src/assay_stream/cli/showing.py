"""``assay-stream alerts list``, ``show`` and ``explain``: triage."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal

import typer

from assay_stream.alerts.formats.view import read_alert, time_text, view_of
from assay_stream.alerts.index import AlertRow, AlertSelection, ReviewState, by_group, row_of, short_uids
from assay_stream.alerts.page import as_json, as_markdown, as_text, explanation_of, page_of, severity_style
from assay_stream.cli.alerts import ServerFilter, SeverityFilter
from assay_stream.cli.options import Format, grouped, time_option
from assay_stream.cli.output import Colour, Painter, RowFormat, print_json, print_line
from assay_stream.cli.shared import ends_now, follow, say, show_refused
from assay_stream.cli.store_sources import AlertOptions, StoryOptions, every_row, open_store
from assay_stream.errors import InputError
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Record, Role
from assay_stream.readmodel.rows import AlertFilter
from assay_stream.text.escaping import visible
from assay_stream.text.lines import LineSpan
from assay_stream.text.visible import shown

_HEAD = ("uid", "severity", "kind", "server", "tool", "count", "seen by", "first seen", "last seen", "status")
_SERVER, _TOOL = 3, 4
_OPTIONAL = tuple(_HEAD.index(name) for name in ("seen by", "first seen", "status", "last seen"))
_NAMED_MAX = 3
_UID_CHARS = 12
_MINUTE_CHARS = len("2026-03-01T10:00")


StatusChoice = Literal["open", "closed", "suppressed", "all"]

ExplainFormat = Literal["text", "json", "markdown"]

ColourOption = Annotated[Colour, typer.Option("--color", help="auto: on a terminal, unless NO_COLOR is set.")]
Uid = Annotated[str, typer.Argument(metavar="UID", help="The alert's uid, or a prefix that no other alert has.")]


@grouped
def list_alerts(
    looking: AlertOptions,
    server_id: ServerFilter = None,
    tool: Annotated[str | None, typer.Option(help="Only tools whose name matches; *, ? and [abc].")] = None,
    kind: Annotated[Kind | None, typer.Option(help="Only this kind of finding.")] = None,
    severity: SeverityFilter = None,
    status: Annotated[StatusChoice, typer.Option(help="Only alerts with this status.")] = "open",
    since: Annotated[int | None, time_option("Only alerts last seen at this time or later.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of alerts.")] = None,
    target: Format = RowFormat.TABLE,
    each: Annotated[bool, typer.Option("--each", help="A line for each alert, not for each change.")] = False,
    follow_on: Annotated[
        bool, typer.Option("--follow", help="Then print each new record of an alert, read from the topics.")
    ] = False,
    color: ColourOption = Colour.AUTO,
) -> None:
    """List the current alerts, most severe first, then most recent. One change on many servers is one line.

    A summary counts the alerts that are not listed. Bad lines are reported, and the exit code is then 2.
    """
    since_ms = None if since is None else since // 1_000
    selection = AlertSelection(since_ms=since_ms, server_id=server_id, severity=severity)
    if follow_on and looking.file is not None:
        raise InputError("bad_option", "--follow reads the topics: leave out --input")
    settings = looking.settings()
    # Noted first: what comes while the list is read may be shown twice, but is not missed.
    starts = ends_now(settings, Role.ALERTS) if follow_on else None
    state = None if status == "all" else ReviewState(status)
    wanted = AlertFilter(selection=selection, state=state, tool_name=tool, kind=None if kind is None else kind.value)
    with open_store(replace(looking, store=None) if follow_on else looking, Role.ALERTS) as opened:
        found = list(every_row(partial(opened.store.alerts, wanted), limit))
        summary = _summary(opened.store.alert_states(wanted), len(found), state)
        short, refused = short_uids(opened.store.alert_uids()), opened.refused
    if target is RowFormat.JSON:
        for row in found:
            print_json(row.as_json(), sort_keys=True)
        say(summary)
    else:
        if found:
            head = [LineSpan(name, "dim") for name in _HEAD]
            groups = [[row] for row in found] if each else by_group(found)
            rows = [head, *(_cells(group, short[group[0].uid]) for group in groups)]
            Painter(color).table(rows, flexible=(_TOOL, _SERVER), optional=_OPTIONAL)
        typer.echo(summary if found else f"no alerts to show: {summary}")
    if follow_on:

        def take(records: Sequence[Record]) -> None:
            for row in _current(records):
                if not wanted.fits(row):
                    continue
                if target is RowFormat.JSON:
                    print_json(row.as_json(), sort_keys=True)
                else:
                    print_line("  ".join(span.text for span in _cells([row], row.uid[:_UID_CHARS])))

        follow(settings, Role.ALERTS, take, starts=starts)
    show_refused(refused)


def _summary(states: Mapping[ReviewState, int], shown: int, wanted: ReviewState | None) -> str:
    """Summarise what is shown and what is not, on one line."""
    asked = [state for state in ReviewState if wanted in (None, state)]
    told = ", ".join(f"{states[state]:,} {state}" for state in asked)
    if shown < sum(states[state] for state in asked):
        told = f"{told}; the first {shown:,} shown"
    hidden = [f"{states[state]:,} {state}" for state in ReviewState if state not in asked and states[state]]
    return f"{told}; {', '.join(hidden)} not shown" if hidden else told


def _current(records: Sequence[Record]) -> Iterator[AlertRow]:
    for record in records:
        try:
            yield row_of(view_of(read_alert(record.value)))
        except InputError as error:
            say(f"{record.origin}: {error}")


@grouped
def show(
    uid: Uid,
    sources: StoryOptions,
    full: Annotated[bool, typer.Option("--full", help="Show differences whole, up to 10,000 of them.")] = False,
    color: ColourOption = Colour.AUTO,
) -> None:
    """Show one alert: what changed, word by word, why it matters, who saw it, and which calls used the tool.

    Hidden characters, and letters that look like others, are marked: ⟦U+200B ZERO WIDTH SPACE⟧.
    """
    story, refused = sources.story(uid, full=full)
    Painter(color).lines(page_of(story))
    show_refused(refused)


@grouped
def explain(
    uid: Uid,
    sources: StoryOptions,
    output_format: Annotated[
        ExplainFormat, typer.Option("--format", help="Text, JSON, or Markdown for a ticket.")
    ] = "text",
) -> None:
    """Explain an alert in plain sentences: what is known, what is not, and what to do next."""
    story, refused = sources.story(uid)
    if output_format == "json":
        print_json(as_json(story), indented=True)
    else:
        write = as_markdown if output_format == "markdown" else as_text
        for line in write(explanation_of(story)):
            print_line(visible(line))
    show_refused(refused)


def _cells(group: list[AlertRow], short: str) -> list[LineSpan]:
    row = group[0]
    return [
        LineSpan(short),
        LineSpan(shown(row.severity.lower()), severity_style(row.severity_id)),
        LineSpan(shown(row.kind)),
        LineSpan(_named({shown(other.server_id) for other in group})),
        LineSpan(_named({shown(other.tool_name) for other in group})),
        LineSpan(f"{sum(other.count for other in group):,}"),
        LineSpan(f"{max(other.observers for other in group):,}"),
        LineSpan(_minute(min(other.first_seen_ms for other in group))),
        LineSpan(_minute(max(other.last_seen_ms for other in group))),
        LineSpan(", ".join(filter(None, (_status(row), shown(row.assigned_to))))),
    ]


def _named(names: set[str]) -> str:
    """Return the first few names, and the number of the others."""
    ordered = sorted(filter(None, names))
    more = f" and {len(ordered) - _NAMED_MAX:,} more" if len(ordered) > _NAMED_MAX else ""
    return ", ".join(ordered[:_NAMED_MAX]) + more or "-"


def _status(row: AlertRow) -> str:
    return shown(row.status.lower()) if row.state is not ReviewState.CLOSED else "closed"


def _minute(time_ms: int) -> str:
    return f"{time_text(time_ms)[:_MINUTE_CHARS]}Z"
