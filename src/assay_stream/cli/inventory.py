"""``assay-stream servers``, ``tools`` and ``observers``: what there is, who saw it last, and how much it is used."""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Annotated, Any, TypeVar

import typer

from assay_stream.cli.options import AnyServerId, AsJson, grouped
from assay_stream.cli.output import Colour, Painter, cell, print_json
from assay_stream.cli.shared import NOTHING_FOUND, say
from assay_stream.cli.store_sources import EvidenceOptions, every_row, open_store
from assay_stream.model.record import Origin, Role
from assay_stream.readmodel.queries import Store
from assay_stream.readmodel.rows import DigestValue, Page, Paging
from assay_stream.report.rows import time_text
from assay_stream.text.lines import LineSpan
from assay_stream.text.visible import shown

servers_app = typer.Typer(help="List observed servers.", no_args_is_help=True)
tools_app = typer.Typer(help="List tools with their definitions, pins and calls.", no_args_is_help=True)
observers_app = typer.Typer(help="List observers: taps, gateways and list-watch.", no_args_is_help=True)

Wide = Annotated[
    bool, typer.Option("--wide", help="One line for each row, digests whole, however narrow the terminal.")
]

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
    """Return a row for JSON output: times as RFC 3339, absent values left out."""
    found = {}
    for name, value in asdict(row).items():
        if name.endswith("_us"):
            name, value = name.removesuffix("_us"), None if value is None else time_text(value)
        if value is not None:
            found[name] = value.as_json() if isinstance(value, Origin) else value
    return found


def print_table(
    head: tuple[str, ...],
    rows: Iterable[tuple[str, ...]],
    *,
    flexible: tuple[str, ...],
    optional: tuple[str, ...],
    wide: bool,
) -> None:
    """Print rows of cells; server-supplied text in them is escaped for terminals."""
    table = [[LineSpan(name, "dim") for name in head]]
    table += [[LineSpan(shown(text) if wide else cell(text)) for text in row] for row in rows]
    Painter(Colour.AUTO).table(
        table,
        flexible=[head.index(name) for name in flexible],
        optional=[head.index(name) for name in optional],
        wide=wide,
    )


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
    """Print all rows of one kind.

    Args:
        ask: the query; its time argument is the end of the last day.
        cells_of: a row as headings and cells.
        none: message if there are no rows.
    """
    with open_store(looking, *_ROLES) as opened:
        now_us = opened.now_us()
        rows = list(every_row(lambda paging: ask(opened.store, now_us, paging)))
        if as_json:
            for row in rows:
                print_json(as_object(row))
        elif rows:
            cells = [cells_of(row) for row in rows]
            table = (tuple(each.values()) for each in cells)
            print_table(tuple(cells[0]), table, flexible=flexible, optional=optional, wide=wide)
        if not rows:
            nothing_found(none)
        opened.end()


@servers_app.command("list")
@grouped
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
@grouped
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
@grouped
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
