"""``assay-stream asof``, ``timeline`` and ``trace``: what was in force, what changed, what became of one call."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from assay_stream.bindings.state import Bindings
from assay_stream.cli.files import files_option
from assay_stream.cli.options import AnyTool, Bootstrap, Report, ServerId, check_span, grouped, time_option
from assay_stream.cli.output import ReportFormat, cell, print_rows
from assay_stream.cli.shared import say
from assay_stream.config import Settings, command_settings
from assay_stream.errors import InputError
from assay_stream.files.archive import read_files
from assay_stream.kafka.lookup import read_bindings, read_log_history, timeline_from_kafka, traces_from_kafka
from assay_stream.model.kinds import Kind
from assay_stream.replay.history import history_of
from assay_stream.report.archived import Read, archived_timeline, archived_traces
from assay_stream.report.as_of import asof_rows, check_tool
from assay_stream.report.pins import server_of
from assay_stream.report.rows import Row
from assay_stream.report.timeline import timeline_rows
from assay_stream.report.trace import Sought, trace_rows

EXIT_GONE, EXIT_UNKNOWN = 3, 5
_UNKNOWN = frozenset({"server_not_known", "tool_not_known", "nothing_known_then", "call_not_known"})

_ASOF = ("what", "state", "tool_name", "observer_id", "value", "pin", "author", "reason", "since", "origin")
_TIMELINE = ("time", "what", "kind", "tool_name", "observer_id", "detail", "author", "reason", "value", "origin")
_TRACE = ("call", "step", "time", "state", "kind", "tool_name", "observer_id", "detail", "value", "pin", "origin")


_SCHEME_OF = {
    "catalogue": "catalogue",
    "snapshot": "catalogue",
    "tool": "assay.v1",
    "evidence": "assay.v1",
    "key": "schemapin.v1",
    "decision": "schemapin.v1",
}
"""What the digest in a row is, by what the row is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looking:
    """Where to look, and how to print what is found."""

    inputs: Annotated[
        list[Path] | None, files_option("--input", help="Recorded observations (NDJSON). Repeatable. Default: Kafka.")
    ] = None
    target: Report = ReportFormat.TABLE
    bootstrap_servers: Bootstrap = None

    @property
    def files(self) -> Read | None:
        """What reads the files, ``None`` for Kafka."""
        return partial(read_files, self.inputs) if self.inputs else None

    def settings(self) -> Settings:
        return command_settings(bootstrap_servers=self.bootstrap_servers)


def _unknown_is_an_answer(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command end with exit code 5 where nothing is known of what it looks for."""

    @wraps(command)
    def run(**options: Any) -> None:
        try:
            command(**options)
        except InputError as error:
            if error.code not in _UNKNOWN:
                raise
            say(str(error))
            raise typer.Exit(EXIT_UNKNOWN) from None

    return run


@grouped
@_unknown_is_an_answer
def asof(
    server_id: ServerId,
    looking: Looking,
    at: Annotated[int | None, time_option("The time, inclusive. Default: now.")] = None,
    tool: AnyTool = None,
    from_log: Annotated[bool, typer.Option("--from-log", help="Read the full logs, which reach further back.")] = False,
) -> None:
    """Show the tools, pins, policy and keys in force on a server at a given time, with the records that prove it.

    Exit code 3: history that old has been compacted away. 5: nothing is known about the server or tool.
    """
    time_us = time.time_ns() // 1_000 if at is None else at
    server = server_of(_bindings(looking, from_log), server_id)
    rows = asof_rows(server, server_id, time_us, tool_name=tool)
    _print(rows, _ASOF, looking.target)
    if any(row["what"] == "forgotten" for row in rows):
        say("part of that history has been compacted away: read the log with --from-log, or files with --input")
        raise typer.Exit(EXIT_GONE)


@grouped
@_unknown_is_an_answer
def timeline(
    server_id: ServerId,
    looking: Looking,
    tool: AnyTool = None,
    since: Annotated[int | None, time_option("Only from this time on.")] = None,
    until: Annotated[int | None, time_option("Only up to this time, inclusive.")] = None,
) -> None:
    """Show every change on a server with its evidence: changed lists, findings, decisions, alerts.

    Exit code 5: nothing is known about the server or tool.
    """
    check_span(since, until)
    settings, read = looking.settings(), looking.files
    if read is not None:
        check_tool(server_of(history_of(read).view, server_id), tool)
        dated = list(archived_timeline(read, server_id, producer=settings.producer(), tool_name=tool))
    else:
        dated = asyncio.run(timeline_from_kafka(settings, server_id, tool_name=tool))
    rows = timeline_rows(server_id, dated, since_us=since, until_us=until)
    if not rows:
        raise InputError("nothing_known_then", "nothing changed on this server or tool in that time")
    _print(rows, _TIMELINE, looking.target)


@grouped
@_unknown_is_an_answer
def trace(
    looking: Looking,
    tool_call_id: Annotated[str | None, typer.Option(help="The call with this id.")] = None,
    trace_id: Annotated[str | None, typer.Option(help="The calls of this trace.")] = None,
) -> None:
    """Follow one call from observation to evidence to alerts.

    Exit code 5: no call and no evidence has this id.
    """
    if tool_call_id is None and trace_id is None:
        raise InputError("bad_option", "name the call: give --tool-call-id or --trace-id")
    sought = Sought(tool_call_id=tool_call_id, trace_id=trace_id)
    settings, read = looking.settings(), looking.files
    if read is not None:
        traces = archived_traces(
            read,
            sought,
            producer=settings.producer(),
            redaction=settings.redaction(),
            call_profile=settings.call_profile,
        )
    else:
        traces = asyncio.run(traces_from_kafka(settings, sought))
    if not traces:
        raise InputError("call_not_known", "no call or evidence has this id: check it")
    _print(trace_rows(traces), _TRACE, looking.target)


def _print(rows: Iterable[Row], columns: tuple[str, ...], target: ReportFormat) -> None:
    if target is ReportFormat.TABLE:
        rows = [row | {"value": f"{_scheme(row)} {row['value']}"} if _is_digest(row) else row for row in rows]
    print_rows(rows, columns, target)


def _is_digest(row: Row) -> bool:
    return str(row.get("value")).startswith("sha256:") and _scheme(row) is not None


def _scheme(row: Row) -> str | None:
    """Return under which scheme the value of a row is, ``None`` where it is under none."""
    if row.get("scheme"):
        return str(row["scheme"])
    kind, what = row.get("kind"), row.get("what", row.get("step"))
    if what in ("finding", "alert"):
        return "catalogue" if kind == Kind.FIRST_LOOK else "full" if row.get("tool_name") else None
    return _SCHEME_OF.get(str(what))


def _bindings(looking: Looking, from_log: bool) -> Bindings:
    if looking.files is not None:
        return history_of(looking.files).view
    settings = looking.settings()
    if not from_log:
        return asyncio.run(read_bindings(settings))
    bindings, begin = asyncio.run(read_log_history(settings))
    if begin:
        say(f"the logs have lost their beginning, and start at {cell([origin.as_json() for origin in begin])}")
    return bindings
