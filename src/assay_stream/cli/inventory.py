"""What there is, and what there was: servers, tools, observers and coverage; ``asof``, ``timeline`` and ``trace``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import typer

from assay_stream.cli.options import (
    AnyServerId,
    AnyTool,
    AsJson,
    Bootstrap,
    FromKafka,
    Inputs,
    Report,
    ServerId,
    time_option,
)
from assay_stream.cli.output import Painter, ReportFormat, cell, print_json, print_rows
from assay_stream.cli.shared import NOTHING_FOUND, Refusals, flag, name_refused, note_incomplete, on_kafka, option, say
from assay_stream.cli.sources import make_source, noted
from assay_stream.cli.store_sources import (
    EvidenceOptions,
    HistoryOptions,
    StoreOptions,
    about,
    every_row,
    not_calls,
    open_store,
)
from assay_stream.config import Settings, command_settings
from assay_stream.errors import ConfigurationError, InputError
from assay_stream.files.archive import read_files
from assay_stream.kafka.ranges import LogRanges, read_records
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.kinds import Kind
from assay_stream.model.record import Origin, Record, Role
from assay_stream.readmodel.queries import Store
from assay_stream.readmodel.rows import DigestValue, Page
from assay_stream.replay.order import Selection
from assay_stream.report.coverage import GRAVE, CoverageCounts
from assay_stream.report.pins import Row, server_of
from assay_stream.report.timeline import (
    TRACED_MAX,
    Sought,
    asof_rows,
    changes,
    check_tool,
    pending_rows,
    timeline_rows,
    trace_rows,
    traced,
)
from assay_stream.text.escaping import shown
from assay_stream.text.times import time_text
from assay_stream.verify.evidence import Recorded, of_record

_COLUMNS = (
    *("what", "name", "lists", "calls", "lost", "exact", "observer", "server", "unbound", "bound_share"),
    *("last_list", "last_call", "silent_since", "gaps"),
)
_HOUR_US = 3_600_000_000


def coverage(
    inputs: Inputs = None,
    from_kafka: FromKafka = False,
    store: Path | None = option("Read a store, which does not count refused and lost records.", metavar="FOLDER"),
    since: int | None = time_option("Only calls of this time or later. Every list counts."),
    until: int | None = time_option("Only records of this time or earlier."),
    silent_after: float = option(
        "Hours without a record after which a server or observer is silent.", default=48, min=0, max=1_000_000
    ),
    target: Report = "table",
    bootstrap_servers: Bootstrap = None,
) -> int:
    """Report lists and calls by server and observer, how calls were bound, and the gaps.

    Times are event times; silence is measured back from --until or, without it, from the latest record. Exit code 0:
    every call is based on a list, and no observer is silent. 1: a row has the gap never_listed, calls_unlisted,
    observations_lost, silent or names_beyond_limit. 3: a line could not be read. 5: nothing is recorded.
    """
    settings = command_settings(bootstrap_servers=bootstrap_servers)
    counted = CoverageCounts(since_us=since, until_us=until)
    if [bool(inputs), from_kafka, store is not None].count(True) != 1:
        raise ConfigurationError("no_source", "give one of --input, --from-kafka and --store")

    async def read_topics(settings: Settings) -> None:
        async for record in read_records(settings, Role.SNAPSHOTS):
            counted.take_snapshot(record)
        # Event times may lie after the record's own.
        since_ms = None if since is None else max(since // 1_000 - DEFAULT_LIMITS.future_max_ms, 0)
        async for record in read_records(settings, Role.EVIDENCE, since_ms=since_ms):
            counted.take_evidence(of_record(record))

    if store is not None:
        with open_store(StoreOptions(store=store)) as opened:
            counted.take_store(opened.store)
    elif from_kafka:
        on_kafka(settings, read_topics)
    else:
        source, refused = make_source(inputs, False, Selection(), settings), Refusals()
        with source.spool() as spool:
            source.read(lambda record: counted.take_snapshot(record) if record.role is Role.SNAPSHOTS else None)
            for outputs in source.replay(spool).steps():
                for output in noted(outputs, refused):
                    if output.role is Role.EVIDENCE:
                        counted.take_evidence(Recorded("replayed", output.value or b""))
        name_refused(refused)
    rows = list(counted.rows(silent_after_us=int(silent_after * _HOUR_US)))
    if not rows:
        say("no list and no call is recorded: check the source and the times")
        return NOTHING_FOUND
    print_rows(rows, _COLUMNS, target)
    return any(GRAVE.intersection(row["gaps"]) for row in rows)


servers_app = typer.Typer(help="List observed servers.", no_args_is_help=True)
tools_app = typer.Typer(help="List tools with their definitions, pins and calls.", no_args_is_help=True)
observers_app = typer.Typer(help="List observers: taps, gateways and list-watch.", no_args_is_help=True)

_ROLES = (Role.BINDINGS, Role.VERDICTS, Role.EVIDENCE)
_SECOND_CHARS = len("2026-03-01T10:00:00")
_DIGITS = 12
_HEADINGS = {"pin_status": "pin", "digests": "definition", "calls_day": "calls/day", "place": "where"}
_HEADINGS |= {"time_us": "time", "listed_us": "last list", "called_us": "last call"}
_FLEXIBLE = ("tool", "server", "observer", "agent")
"""Headings of columns that may be truncated."""
_Row = TypeVar("_Row")
Column = str | tuple[str, Callable[[Any], str]]
"""A member of a row, or a heading and what its cells say."""


def short_time(time_us: int | None) -> str:
    return "-" if time_us is None else f"{time_text(time_us)[:_SECOND_CHARS]}Z"


def short_digest(digests: Iterable[DigestValue], *schemes: str, wide: bool = False) -> str:
    """Return the digest under the first of ``schemes`` that is present, with its scheme; shortened unless ``wide``."""
    by_scheme = {digest.scheme: digest.value for digest in digests if digest.role in ("tool_definition", "definition")}
    for scheme in schemes:
        value = by_scheme.get(scheme)
        if value:
            bare = value.removeprefix("sha256:")
            return f"{scheme} {value}" if wide else f"{scheme} {bare[:_DIGITS]}" + ("…" if len(bare) > _DIGITS else "")
    return "-"


def as_object(row: Any) -> dict[str, Any]:
    """Return a row of the store for JSON output: times as RFC 3339, absent values left out."""
    found = {}
    for name, value in asdict(row).items():
        if name.endswith("_us"):
            name, value = name.removesuffix("_us"), None if value is None else time_text(value)
        if value is not None:
            found[name] = value.as_json() if isinstance(value, Origin) else value
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """How rows of the store are printed."""

    as_json: AsJson = False
    wide: bool = flag("One line per row with full digests, even on a narrow terminal.")

    def print(self, rows: Sequence[Any], *columns: Column, optional: Sequence[str] = ()) -> None:
        """Print rows as JSON lines, or as a table with server-supplied text escaped for terminals.

        Args:
            optional: columns that may be left out, least important first.
        """
        if self.as_json:
            for row in rows:
                print_json(as_object(row))
        elif rows:
            escaped = shown if self.wide else cell
            Painter("auto").table(
                [_heading(each) for each in columns],
                ([escaped(text) for text in self.cells(row, *columns)] for row in rows),
                flexible=_FLEXIBLE,
                optional=[_heading(each) for each in optional],
                wide=self.wide,
            )

    def cells(self, row: Any, *columns: Column) -> Iterator[str]:
        for column in columns:
            if not isinstance(column, str):
                yield column[1](row)
            elif column == "digests":
                is_listed = getattr(row, "is_listed", True)
                yield short_digest(row.digests, "assay.v1", "full", wide=self.wide) if is_listed else "not listed"
            elif column.endswith("_us"):
                yield short_time(getattr(row, column))
            else:
                value = getattr(row, column)
                yield f"{value:,}" if isinstance(value, int) else value or "-"


def _heading(column: Column) -> str:
    name = column if isinstance(column, str) else column[0]
    return _HEADINGS.get(name) or name.removesuffix("_id").removesuffix("_name")


def nothing_found(what: str) -> None:
    """Say that nothing was found, and exit with the code for that."""
    say(f"{what}. Check the options, and where you look (--store, --input, --evidence, the brokers)")
    raise typer.Exit(NOTHING_FOUND)


def _list(
    looking: EvidenceOptions,
    how: Listing,
    kind: str,
    ask: Callable[..., Page[_Row]],
    *columns: Column,
    optional: Sequence[str],
) -> None:
    with open_store(looking, *_ROLES) as opened:
        asked = partial(ask, opened.store, now_us=opened.now_us())
        rows = list(every_row(lambda paging: asked(paging=paging)))
        how.print(rows, *columns, optional=optional)
        if not rows:
            nothing_found(f"no {kind} found")


@servers_app.command("list")
def list_servers(looking: EvidenceOptions, how: Listing) -> None:
    """List servers: tools in the latest lists, pinned tools, observers, calls in the last day and in total, last seen.

    In recorded input, the last day ends with its latest call. Exit code 3: not everything could be read. 5: none found.
    """
    columns = ("server_id", "tools", "pinned", "observers", "calls_day", "calls", "listed_us", "called_us")
    _list(looking, how, "servers", Store.servers, *columns, optional=("calls", "observers", "listed_us"))


@tools_app.command("list")
def list_tools(looking: EvidenceOptions, server_id: AnyServerId = None, how: Listing = Listing()) -> None:
    """List tools: the definition listed last, versions seen so far, how it compares with its pins, calls, last seen.

    A refused list or an announced change ends what was in force: see `asof`.

    If observers were shown several definitions, the table shows the first; --json has all of them, under every scheme.
    Exit code 3: not everything could be read. 5: none found.
    """
    ask = partial(Store.tools, server_id=server_id)
    columns = ("server_id", "tool_name", "pin_status", "versions", "calls_day", "digests", "called_us", "listed_us")
    _list(looking, how, "tools", ask, *columns, optional=("listed_us", "called_us", "versions"))


@observers_app.command("list")
def list_observers(looking: EvidenceOptions, how: Listing) -> None:
    """List observers (taps, gateways, list-watch): servers they watch, calls in the last day and in total, last seen.

    Exit code 3: not everything could be read. 5: none found.
    """
    columns = ("observer_id", "servers", "calls_day", "calls", "listed_us", "called_us")
    _list(looking, how, "observers", Store.observers, *columns, optional=("calls", "listed_us"))


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


@contextmanager
def _unknown_is_an_answer() -> Iterator[None]:
    """Exit with code 5 if nothing is known about what a command was asked for."""
    try:
        yield
    except InputError as error:
        if error.code not in _UNKNOWN:
            raise
        say(str(error))
        raise typer.Exit(NOTHING_FOUND) from None


@_unknown_is_an_answer()
def asof(
    server_id: ServerId,
    looking: HistoryOptions,
    at: int | None = time_option("The time, inclusive. Default: now."),
    tool: AnyTool = None,
    from_log: bool = flag("Read the full logs, which reach further back."),
    target: Report = "table",
) -> None:
    """Show the tools, pins, policy and keys in force on a server at a given time, with the records that prove it.

    Exit code 3: history that old has been compacted away, or a line could not be read. 5: nothing is known about the
    server or tool.
    """
    time_us = time.time_ns() // 1_000 if at is None else at
    wanted = not_calls(server_id)
    source = None
    if from_log and not looking.inputs:
        settings = looking.settings()

        async def look(settings: Settings) -> LogRanges:
            async with LogRanges(settings, (Role.SNAPSHOTS, Role.CONTROL)) as logs:
                return logs

        logs = on_kafka(settings, look)
        begin = [Origin(*place, first).as_json() for place, first in logs.starts().items() if first > 0]
        if begin:
            say(f"the logs have lost their beginning, and start at {cell(begin)}")
        source = make_source(None, True, Selection(), settings, ends=logs.ends())
    with open_store(looking, replayed=wanted, source=source) as opened:
        opened.read(Role.BINDINGS, wanted=about(server_id))
        server = server_of(opened.store.bindings(server_id), server_id)
    rows = asof_rows(server, server_id, time_us, tool_name=tool)
    _print(rows, _ASOF, target)
    if any(row["what"] == "forgotten" for row in rows):
        say("part of that history has been compacted away: read the log with --from-log, or files with --input")
        note_incomplete()


@_unknown_is_an_answer()
def timeline(
    server_id: ServerId,
    looking: HistoryOptions,
    tool: AnyTool = None,
    since: int | None = time_option("Only from this time on."),
    until: int | None = time_option("Only up to this time, inclusive."),
    target: Report = "table",
) -> None:
    """Show every change on a server with its evidence: changed lists, findings, decisions, alerts.

    Exit code 3: a line could not be read. 5: nothing is known about the server or tool.
    """
    lists, profile = not_calls(server_id), looking.settings().call_profile
    name = server_id.encode("utf-8", "surrogatepass")

    def wanted(record: Record) -> bool:
        if record.role is not Role.CALLS or record.key is None:
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


@_unknown_is_an_answer()
def trace(
    looking: HistoryOptions,
    tool_call_id: str | None = option("The call with this id."),
    trace_id: str | None = option("The calls of this trace."),
    target: Report = "table",
) -> None:
    """Follow one call from observation to evidence to alerts.

    Exit code 3: a line could not be read. 5: no call and no evidence has this id.
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
        if record.role is Role.CALLS:
            return record.key is None or sought.may_be_in(record.value)
        return record.key in keys

    with open_store(looking, replayed=wanted) as opened:
        opened.read(Role.EVIDENCE, wanted=lambda record: sought.may_be_in(record.value))
        found = traced(opened.store, sought)
        if found:
            servers = {whole.row.server_id for whole in found}
            opened.read(Role.BINDINGS, Role.FINDINGS, Role.ALERTS, wanted=about(*servers))
        if len(found) == TRACED_MAX:
            say(f"at most {TRACED_MAX:,} calls are shown, the latest: name one with --tool-call-id")
        rows = trace_rows(opened.store, found) or pending_rows(opened.pending_calls(sought))
    if not rows:
        raise InputError("call_not_known", "no call or evidence has this id: check it")
    _print(rows, _TRACE, target)


def _print(rows: Iterable[Row], columns: tuple[str, ...], target: ReportFormat) -> None:
    def with_scheme(row: Row) -> Row:
        what, scheme = row.get("what", row.get("step")), row.get("scheme")
        if not str(row.get("value")).startswith("sha256:"):
            return row
        if not scheme and what in ("finding", "alert"):
            scheme = "catalogue" if row.get("kind") == Kind.FIRST_LOOK else "full" if row.get("tool_name") else None
        elif not scheme:
            scheme = _SCHEME_OF.get(str(what))
        return row | {"value": f"{scheme} {row['value']}"} if scheme else row

    print_rows(map(with_scheme, rows) if target == "table" else rows, columns, target)
