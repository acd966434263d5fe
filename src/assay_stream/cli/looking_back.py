"""``assay-stream asof``, ``timeline`` and ``trace``: what was in force, what changed, what became of one call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from assay_stream import __version__
from assay_stream.cli.output import RowFormat, cell, print_table
from assay_stream.cli.shared import Bootstrap, quiet_client_logs, say
from assay_stream.cli.verify import Format, operator_time_us
from assay_stream.config import Settings, command_settings
from assay_stream.errors import InputError
from assay_stream.files.archive import read_files
from assay_stream.model.envelope import Producer
from assay_stream.registry.state import Bindings
from assay_stream.replay.history import history_of
from assay_stream.report.archived import archived_timeline, archived_traces
from assay_stream.report.as_of import asof_rows, check_tool
from assay_stream.report.pins import server_of
from assay_stream.report.timeline import timeline_rows
from assay_stream.report.trace import Sought, trace_rows

EXIT_GONE, EXIT_UNKNOWN = 3, 5
_UNKNOWN = frozenset({"server_not_known", "tool_not_known", "nothing_known_then", "call_not_known"})

Inputs = Annotated[
    list[Path] | None, typer.Option("--input", help="Recorded observations (NDJSON) instead of Kafka. Repeatable.")
]
ServerId = Annotated[str, typer.Option(help="Your name for the server.")]
Tool = Annotated[str | None, typer.Option("--tool", help="This tool only.")]
Result = TypeVar("Result")
Rows = Iterable[Mapping[str, Any]]

_ASOF = ("what", "state", "tool_name", "observer_id", "value", "pin", "author", "reason", "since", "origin")
_TIMELINE = ("time", "what", "kind", "tool_name", "observer_id", "detail", "author", "reason", "value", "origin")
_TRACE = ("call", "step", "time", "state", "kind", "tool_name", "observer_id", "detail", "value", "pin", "origin")


def asof(
    server_id: ServerId,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="The time (RFC 3339), inclusive. Default: now.")
    ] = None,
    tool: Tool = None,
    inputs: Inputs = None,
    from_log: Annotated[
        bool,
        typer.Option(
            "--from-log", help="Read the snapshot and control topics, which reach back further than the facts."
        ),
    ] = False,
    target: Format = RowFormat.TABLE,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Show the tools, pins, policy and keys in force on a server at a given time, with the records that prove it.

    Exit code 3: history that old has been compacted away. 5: nothing is known about the server or tool.
    """
    time_us = time.time_ns() // 1_000 if at is None else operator_time_us(at)

    def answer() -> None:
        bindings = _bindings(inputs, from_log, bootstrap_servers)
        rows = asof_rows(server_of(bindings, server_id), server_id, time_us, tool_name=tool)
        print_table(rows, _ASOF, target)
        if any(row["what"] == "forgotten" for row in rows):
            say("part of that history has been compacted away: read the log with --from-log, or files with --input")
            raise typer.Exit(EXIT_GONE)

    _answered(answer)


def timeline(
    server_id: ServerId,
    tool: Tool = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="From this time (RFC 3339) on.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Up to this time, inclusive.")] = None,
    inputs: Inputs = None,
    target: Format = RowFormat.TABLE,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Show every change on a server with its evidence: changed lists, findings, decisions, alerts.

    Exit code 5: nothing is known about the server or tool.
    """
    since_us = None if since is None else operator_time_us(since)
    until_us = None if until is None else operator_time_us(until)

    def answer() -> None:
        settings = command_settings(bootstrap_servers=bootstrap_servers)
        if inputs:
            read = partial(read_files, inputs)
            check_tool(server_of(history_of(read).view, server_id), tool)
            dated = list(archived_timeline(read, server_id, producer=_producer(settings), tool_name=tool))
        else:
            from assay_stream.kafka.lookup import timeline_from_kafka

            dated = _from_kafka(timeline_from_kafka(settings, server_id, tool_name=tool))
        rows = timeline_rows(server_id, dated, since_us=since_us, until_us=until_us)
        if not rows:
            raise InputError("nothing_known_then", "nothing changed on this server or tool in that time")
        print_table(rows, _TIMELINE, target)

    _answered(answer)


def trace(
    tool_call_id: Annotated[str | None, typer.Option(help="The call with this id.")] = None,
    trace_id: Annotated[str | None, typer.Option(help="The calls of this trace.")] = None,
    inputs: Inputs = None,
    target: Format = RowFormat.TABLE,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Follow one call from observation to evidence to alerts.

    Exit code 5: no call and no evidence has this id.
    """
    if tool_call_id is None and trace_id is None:
        raise InputError("bad_option", "name the call: give --tool-call-id or --trace-id")
    sought = Sought(tool_call_id=tool_call_id, trace_id=trace_id)

    def answer() -> None:
        settings = command_settings(bootstrap_servers=bootstrap_servers)
        if inputs:
            traces = archived_traces(
                partial(read_files, inputs),
                sought,
                producer=_producer(settings),
                redaction=settings.redaction(),
                call_profile=settings.call_profile,
            )
        else:
            from assay_stream.kafka.lookup import traces_from_kafka

            traces = _from_kafka(traces_from_kafka(settings, sought))
        if not traces:
            raise InputError("call_not_known", "no call or evidence has this id: check it")
        print_table(trace_rows(traces), _TRACE, target)

    _answered(answer)


def _answered(answer: Callable[[], None]) -> None:
    try:
        answer()
    except InputError as error:
        if error.code not in _UNKNOWN:
            raise
        say(str(error))
        raise typer.Exit(EXIT_UNKNOWN) from None


def _bindings(inputs: list[Path] | None, from_log: bool, bootstrap: str | None) -> Bindings:
    if inputs:
        return history_of(partial(read_files, inputs)).view
    from assay_stream.kafka.lookup import read_bindings, read_log_history

    settings = command_settings(bootstrap_servers=bootstrap)
    if not from_log:
        return _from_kafka(read_bindings(settings))
    bindings, begin = _from_kafka(read_log_history(settings))
    if begin:
        say(f"the logs have lost their beginning, and start at {cell([origin.as_json() for origin in begin])}")
    return bindings


def _from_kafka(reading: Coroutine[Any, Any, Result]) -> Result:
    quiet_client_logs()
    return asyncio.run(reading)


def _producer(settings: Settings) -> Producer:
    return Producer(version=__version__, git=settings.git_commit)
