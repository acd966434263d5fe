"""``assay-stream servers``, ``tools``, ``observers``, ``coverage``: what there is, who saw it, what is missing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, TypeVar

import typer

from assay_stream.cli.options import AnyServerId, AsJson, Bootstrap, FromKafka, Inputs, Report, check_span, time_option
from assay_stream.cli.output import Colour, Painter, ReportFormat, cell, print_json, print_rows
from assay_stream.cli.parameters import flag, option
from assay_stream.cli.shared import NOTHING_FOUND, collecting_seldom, on_kafka, say
from assay_stream.cli.sources import make_source
from assay_stream.cli.store_sources import EvidenceOptions, every_row, open_store
from assay_stream.config import Settings, command_settings
from assay_stream.kafka.lookup import read_records
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.model.record import Origin, Role
from assay_stream.readmodel.queries import Store
from assay_stream.readmodel.rows import DigestValue, Page, Paging
from assay_stream.replay.selection import Selection
from assay_stream.report.coverage import GRAVE, CoverageCounts
from assay_stream.report.pins import time_text
from assay_stream.text.escaping import LineSpan, shown
from assay_stream.verify.evidence import Recorded, of_record

_COLUMNS = (
    *("what", "name", "lists", "calls", "lost", "exact", "observer", "server", "unbound", "bound_share"),
    *("last_list", "last_call", "silent_since", "gaps"),
)
_HOUR_US = 3_600_000_000


def coverage(
    inputs: Inputs = None,
    from_kafka: FromKafka = False,
    since: int | None = time_option("Only calls of this time or later. Every list counts."),
    until: int | None = time_option("Only records of this time or earlier."),
    silent_after: float = option(
        "Hours without a record after which a server or observer is silent.", default=48, min=0
    ),
    target: Report = ReportFormat.TABLE,
    bootstrap_servers: Bootstrap = None,
) -> None:
    """Report lists and calls by server and observer, how calls were bound, and what nobody observed.

    Times are event times; what is silent shows from --until or, without it, the latest record. Exit code 0: every
    call rests on a list, and nobody is silent. 1: a row has the gap never_listed, calls_unlisted,
    observations_lost or silent.
    5: nothing is recorded.
    """
    check_span(since, until)
    settings = command_settings(bootstrap_servers=bootstrap_servers)
    counted = CoverageCounts(since_us=since, until_us=until)
    source = make_source(inputs, from_kafka, Selection(), settings)
    with collecting_seldom():
        if from_kafka:
            on_kafka(settings, lambda settings: _from_topics(settings, counted, since))
        else:
            with source.spool() as spool:
                source.read(lambda record: counted.take_snapshot(record) if record.role is Role.SNAPSHOTS else None)
                for outputs in source.replay(spool).steps():
                    for output in outputs:
                        if output.role is Role.EVIDENCE:
                            counted.take_evidence(Recorded("replayed", output.value or b""))
    rows = list(counted.rows(silent_after_us=int(silent_after * _HOUR_US)))
    if not rows:
        say("no list and no call is recorded: check the source and the times")
        raise typer.Exit(NOTHING_FOUND)
    print_rows(rows, _COLUMNS, target)
    if any(GRAVE.intersection(row["gaps"]) for row in rows):
        raise typer.Exit(1)


async def _from_topics(settings: Settings, counted: CoverageCounts, since_us: int | None) -> None:
    async for record in read_records(settings, Role.SNAPSHOTS):
        counted.take_snapshot(record)
    # Event times may lie after the record's own.
    since_ms = None if since_us is None else max(since_us // 1_000 - DEFAULT_LIMITS.future_max_ms, 0)
    async for record in read_records(settings, Role.EVIDENCE, since_ms=since_ms):
        counted.take_evidence(of_record(record))


servers_app = typer.Typer(help="List observed servers.", no_args_is_help=True)
tools_app = typer.Typer(help="List tools with their definitions, pins and calls.", no_args_is_help=True)
observers_app = typer.Typer(help="List observers: taps, gateways and list-watch.", no_args_is_help=True)

Wide = Annotated[bool, flag("One line for each row, digests whole, however narrow the terminal.", "--wide")]

_ROLES = (Role.BINDINGS, Role.VERDICTS, Role.EVIDENCE)
_SECOND_CHARS = len("2026-03-01T10:00:00")
_DIGITS = 12
_Row = TypeVar("_Row")


def short_time(time_us: int | None) -> str:
    """Format a time to the second, for tables."""
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


def print_listed(
    rows: Sequence[_Row],
    cells_of: Callable[[_Row], Mapping[str, str]],
    *,
    as_json: bool,
    flexible: Collection[str],
    optional: Sequence[str] = (),
    wide: bool = False,
) -> None:
    """Print rows of the store as JSON lines, or as a table with server-supplied text escaped for terminals.

    Args:
        cells_of: a row as headings and cells.
        flexible: headings of columns that may be truncated.
        optional: headings of columns that may be left out, least important first.
    """
    if as_json:
        for row in rows:
            print_json(as_object(row))
        return
    cells = [cells_of(row) for row in rows]
    head = list(cells[0]) if cells else []
    table = [[LineSpan(name, "dim") for name in head]]
    table += [[LineSpan(shown(text) if wide else cell(text)) for text in each.values()] for each in cells]
    if cells:
        columns = [[head.index(name) for name in names] for names in (flexible, optional)]
        Painter(Colour.AUTO).table(table, flexible=columns[0], optional=columns[1], wide=wide)


def nothing_found(what: str) -> None:
    """Say that nothing was found, and exit with the code for that."""
    say(f"{what}. Check the options, and where you look (--store, --input, --evidence, the brokers)")
    raise typer.Exit(NOTHING_FOUND)


def _list(
    looking: EvidenceOptions,
    ask: Callable[[Store, int, Paging], Page[_Row]],
    cells_of: Callable[[_Row], dict[str, str]],
    *,
    flexible: tuple[str, ...],
    optional: tuple[str, ...],
    none: str,
    as_json: bool,
    wide: bool,
) -> None:
    """Print all rows of one kind."""
    with open_store(looking, *_ROLES) as opened:
        now_us = opened.now_us()
        rows = list(every_row(lambda paging: ask(opened.store, now_us, paging)))
        print_listed(rows, cells_of, as_json=as_json, flexible=flexible, optional=optional, wide=wide)
        if not rows:
            nothing_found(none)
        opened.end()


@servers_app.command("list")
def list_servers(looking: EvidenceOptions, as_json: AsJson = False, wide: Wide = False) -> None:
    """List servers: tools in force, pinned tools, observers, calls in the last day and in total, last seen.

    In recorded input, the last day ends with its latest call. Exit code 3: not everything could be read. 5: none found.
    """
    _list(
        looking,
        lambda store, now_us, paging: store.servers(now_us=now_us, paging=paging),
        lambda row: {
            "server": row.server_id,
            "tools": f"{row.tools:,}",
            "pinned": f"{row.pinned:,}",
            "observers": f"{row.observers:,}",
            "calls/day": f"{row.calls_day:,}",
            "calls": f"{row.calls:,}",
            "last list": short_time(row.listed_us),
            "last call": short_time(row.called_us),
        },
        flexible=("server",),
        optional=("calls", "observers", "last list"),
        none="no servers found",
        as_json=as_json,
        wide=wide,
    )


@tools_app.command("list")
def list_tools(
    looking: EvidenceOptions, server_id: AnyServerId = None, as_json: AsJson = False, wide: Wide = False
) -> None:
    """List tools: the definition in force, versions seen so far, how it compares with its pins, calls, last seen.

    If a tool has several definitions in force, the table shows the first; --json has all of them, under every scheme.
    Exit code 3: not everything could be read. 5: none found.
    """
    _list(
        looking,
        lambda store, now_us, paging: store.tools(now_us=now_us, server_id=server_id, paging=paging),
        lambda row: {
            "server": row.server_id,
            "tool": row.tool_name,
            "pin": row.pin_status,
            "versions": f"{row.versions:,}",
            "calls/day": f"{row.calls_day:,}",
            "definition": short_digest(row.digests, "assay.v1", "full", wide=wide) if row.is_listed else "not listed",
            "last call": short_time(row.called_us),
            "last list": short_time(row.listed_us),
        },
        flexible=("tool", "server"),
        optional=("last list", "last call", "versions"),
        none="no tools found",
        as_json=as_json,
        wide=wide,
    )


@observers_app.command("list")
def list_observers(looking: EvidenceOptions, as_json: AsJson = False, wide: Wide = False) -> None:
    """List observers (taps, gateways, list-watch): servers they watch, calls in the last day and in total, last seen.

    Exit code 3: not everything could be read. 5: none found.
    """
    _list(
        looking,
        lambda store, now_us, paging: store.observers(now_us=now_us, paging=paging),
        lambda row: {
            "observer": row.observer_id,
            "servers": f"{row.servers:,}",
            "calls/day": f"{row.calls_day:,}",
            "calls": f"{row.calls:,}",
            "last list": short_time(row.listed_us),
            "last call": short_time(row.called_us),
        },
        flexible=("observer",),
        optional=("calls", "last list"),
        none="no observers found",
        as_json=as_json,
        wide=wide,
    )
