"""``assay-stream asof``, ``timeline`` and ``trace``: what was in force, what changed, what became of one call."""

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import typer

from assay_stream.cli.options import AnyTool, Report, ServerId, check_span, time_option
from assay_stream.cli.output import ReportFormat, cell, print_rows
from assay_stream.cli.parameters import flag, option
from assay_stream.cli.shared import say
from assay_stream.cli.sources import make_source
from assay_stream.cli.store_sources import HistoryOptions, about, not_calls, open_store
from assay_stream.config import Settings
from assay_stream.errors import InputError
from assay_stream.files.archive import read_files
from assay_stream.kafka.ranges import Ends, LogRanges
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin, Record, Role
from assay_stream.replay.selection import Selection
from assay_stream.report.as_of import asof_rows, check_tool
from assay_stream.report.pins import Row, server_of
from assay_stream.report.timeline import Sought, changes, pending_rows, timeline_rows, trace_rows, traced

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


def _unknown_is_an_answer(command: Callable[..., None]) -> Callable[..., None]:
    """Make a command exit with code 5 if nothing is known about what it was asked for."""

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


@_unknown_is_an_answer
def asof(
    server_id: ServerId,
    looking: HistoryOptions,
    at: int | None = time_option("The time, inclusive. Default: now."),
    tool: AnyTool = None,
    from_log: bool = flag("Read the full logs, which reach further back."),
    target: Report = "table",
) -> None:
    """Show the tools, pins, policy and keys in force on a server at a given time, with the records that prove it.

    Exit code 3: history that old has been compacted away. 5: nothing is known about the server or tool.
    """
    time_us = time.time_ns() // 1_000 if at is None else at
    wanted = not_calls(server_id)
    source = None
    if from_log and not looking.inputs:
        source = make_source(None, True, Selection(), looking.settings(), ends=_input_ends(looking.settings()))
    with open_store(looking, replayed=wanted, source=source) as opened:
        opened.read(Role.BINDINGS, wanted=about(server_id))
        server = server_of(opened.store.bindings(server_id), server_id)
    rows = asof_rows(server, server_id, time_us, tool_name=tool)
    _print(rows, _ASOF, target)
    if any(row["what"] == "forgotten" for row in rows):
        say("part of that history has been compacted away: read the log with --from-log, or files with --input")
        raise typer.Exit(EXIT_GONE)


def _input_ends(settings: Settings) -> Ends:
    """Return the end offsets of the list and decision logs, and report those whose beginning is gone."""

    async def look() -> LogRanges:
        async with LogRanges(settings, (Role.SNAPSHOTS, Role.CONTROL)) as logs:
            return logs

    logs = asyncio.run(look())
    begin = [Origin(*place, first).as_json() for place, first in logs.starts().items() if first > 0]
    if begin:
        say(f"the logs have lost their beginning, and start at {cell(begin)}")
    return logs.ends()


@_unknown_is_an_answer
def timeline(
    server_id: ServerId,
    looking: HistoryOptions,
    tool: AnyTool = None,
    since: int | None = time_option("Only from this time on."),
    until: int | None = time_option("Only up to this time, inclusive."),
    target: Report = "table",
) -> None:
    """Show every change on a server with its evidence: changed lists, findings, decisions, alerts.

    Exit code 5: nothing is known about the server or tool.
    """
    check_span(since, until)
    lists, profile = not_calls(server_id), looking.settings().call_profile
    name = server_id.encode("utf-8", "surrogatepass")

    def wanted(record: Record) -> bool:
        if record.role is not Role.CALLS:
            return lists(record)
        # Most calls are on other servers; a name that JSON may escape is looked for in each.
        if server_id.isascii() and name not in (record.value or b""):
            return False
        event = Sought().call_in(record, profile)
        return event is not None and event.data["server_id"] == server_id

    with open_store(looking, replayed=wanted) as opened:
        opened.read(Role.BINDINGS, Role.FINDINGS, Role.CHANGES, Role.ALERTS, wanted=about(server_id))
        rows = timeline_rows(
            server_id, changes(opened.store, server_id, tool_name=tool), since_us=since, until_us=until
        )
        if not rows:
            check_tool(server_of(opened.store.bindings(server_id), server_id), tool)
            raise InputError("nothing_known_then", "nothing changed on this server or tool in that time")
    _print(rows, _TIMELINE, target)


@_unknown_is_an_answer
def trace(
    looking: HistoryOptions,
    tool_call_id: str | None = option("The call with this id."),
    trace_id: str | None = option("The calls of this trace."),
    target: Report = "table",
) -> None:
    """Follow one call from observation to evidence to alerts.

    Exit code 5: no call and no evidence has this id.
    """
    if tool_call_id is None and trace_id is None:
        raise InputError("bad_option", "name the call: give --tool-call-id or --trace-id")
    sought, profile = Sought(tool_call_id=tool_call_id, trace_id=trace_id), looking.settings().call_profile
    keys = {
        event.data["server_id"].encode()
        for record in read_files(looking.inputs or ())
        if record.role is Role.CALLS and (event := sought.call_in(record, profile)) is not None
    }

    def wanted(record: Record) -> bool:
        return sought.may_be_in(record.value) if record.role is Role.CALLS else record.key in keys

    with open_store(looking, replayed=wanted) as opened:
        opened.read(Role.EVIDENCE, wanted=lambda record: sought.may_be_in(record.value))
        found = traced(opened.store, sought)
        if found:
            servers = {whole.row.server_id for whole in found}
            opened.read(Role.BINDINGS, Role.FINDINGS, Role.ALERTS, wanted=about(*servers))
        rows = trace_rows(opened.store, found) or pending_rows(opened.pending_calls(sought))
    if not rows:
        raise InputError("call_not_known", "no call or evidence has this id: check it")
    _print(rows, _TRACE, target)


def _print(rows: Iterable[Row], columns: tuple[str, ...], target: ReportFormat) -> None:
    if target == "table":
        rows = [_with_scheme(row) if str(row.get("value")).startswith("sha256:") else row for row in rows]
    print_rows(rows, columns, target)


def _with_scheme(row: Row) -> Row:
    """Put the scheme of the digest in a row before it, if it has one."""
    what, scheme = row.get("what", row.get("step")), row.get("scheme")
    if not scheme and what in ("finding", "alert"):
        scheme = "catalogue" if row.get("kind") == Kind.FIRST_LOOK else "full" if row.get("tool_name") else None
    elif not scheme:
        scheme = _SCHEME_OF.get(str(what))
    return row | {"value": f"{scheme} {row['value']}"} if scheme else row
