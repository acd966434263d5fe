"""Puts the results of the benches into the tables of the docs.

A table stands between ``<!-- table NAME: how it is made -->`` and ``<!-- end of table -->``.

    python -m bench.tables .run/bench/results docs/performance.md docs/capacity.md
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.capacity import FLEETS, costs_of, expected, needs
from bench.results import Row, read_lines, rows_of
from bench.rounds import QUIET_BUSY_MAX, compared

_OURS = "assay-stream"
_TOLERANCE = 1.2
_ROUNDS_MIN = 3
"""Fewer rounds of a quiet machine are no result."""
_TABLE = re.compile(r"(<!-- table (\w+):[^>]*-->\n)(.*?)(<!-- end of table -->)", re.DOTALL)


def medians(rows: Iterable[Row], by: str, *names: str) -> dict[Any, dict[str, float]]:
    """Return the medians of some values, by the value of another.

    Args:
        rows: results.
        by: what they are grouped by.
        names: the values.
    """
    groups = defaultdict(list)
    for row in rows:
        groups[row[by]].append(row)
    return {
        group: {name: statistics.median(row[name] for row in members) for name in names}
        for group, members in groups.items()
    }


def markdown(header: Iterable[str], body: Iterable[Iterable[object]]) -> str:
    """Return a table in Markdown.

    Args:
        header: names of the columns.
        body: the rows.

    Raises:
        LookupError: there is no row.
    """
    names = list(header)
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(map(str, cells)) + " |" for cells in body]
    if len(lines) == 2:
        raise LookupError("results are missing")
    return "\n".join(lines) + "\n"


def peers(rows: list[Row]) -> str:
    """Rate and CPU time of every program beside ours, in the median round and its interval."""
    by_program = defaultdict(list)
    for row in rows_of(rows, "peers"):
        by_program[row["program"]].append(row)
    if not by_program[_OURS]:
        raise LookupError("results are missing")
    beside = compared(by_program, _OURS)
    found = medians(rows_of(rows, "peers"), "program", "cpu_us", "calls_per_s", "memory_mib")
    return markdown(
        ["program", "rate beside ours", "CPU beside ours", "calls/s", "µs CPU per call", "MiB", "rounds"],
        (
            (
                name,
                "1" if name == _OURS else beside[name].rate or "too few rounds",
                "1" if name == _OURS else beside[name].cpu or "too few rounds",
                f"{one['calls_per_s']:,.0f}",
                f"{one['cpu_us']:.1f}",
                f"{one['memory_mib']:.0f}",
                len(by_program[name]),
            )
            for name, one in sorted(found.items(), key=lambda item: item[1]["cpu_us"])
        ),
    )


def replays(rows: list[Row]) -> str:
    """Replay and verification beside the baseline of their longest archive."""
    of_bench = rows_of(rows, "replay")
    longest = max((row["calls"] for row in of_bench), default=0)
    by_program = defaultdict(list)
    for row in of_bench:
        if row["calls"] == longest:
            by_program[row["program"]].append(row)
    beside = compared(by_program, "baseline") if by_program["baseline"] else {}
    found = medians(rows_of(of_bench, "replay", calls=longest), "program", "calls_per_s", "cpu_us", "memory_mib")
    return markdown(
        ["program", "rate beside the baseline", "calls/s by the clock", "µs CPU per call", "MiB"],
        (
            (
                name,
                "1" if name == "baseline" else beside[name].rate or "too few rounds",
                f"{one['calls_per_s']:,.0f}",
                f"{one['cpu_us']:.1f}",
                f"{one['memory_mib']:.0f}",
            )
            for name, one in sorted(found.items(), key=lambda item: item[1]["cpu_us"])
        ),
    )


def latency(rows: list[Row]) -> str:
    """Percentiles of every setting."""
    parts = ("p50_ms", "p90_ms", "p99_ms", "p99.9_ms")
    return markdown(
        ["batch_records_max", "poll_timeout_ms", "lists/s", "calls/s", *(part.removesuffix("_ms") for part in parts)],
        (
            (
                f"{row['batch_records_max']:,}",
                row["poll_timeout_ms"],
                f"{row['snapshots_per_s']:g}",
                f"{row['calls_per_s']:,.0f}",
                *(f"{row[part]:,.0f} ms" for part in parts),
            )
            for row in rows_of(rows, "latency")
        ),
    )


def servers(rows: list[Row]) -> str:
    """CPU time of a call and memory, against servers."""
    return markdown(
        [
            "servers",
            "µs per call, even",
            "µs per call, Zipf 1.1",
            "state, loaded",
            "state, read",
            "state after calls",
            "to load a fact",
            "to read it",
        ],
        (
            (
                f"{row['servers']:,}",
                f"{row['call_us']:.1f}",
                f"{row['call_us_zipf']:.1f}",
                f"{row['unread_mib']:,.1f} MiB",
                f"{row['state_mib']:,.1f} MiB",
                f"{row['state_mib_after_calls']:,.1f} MiB",
                f"{row['load_us_per_fact']:.1f} µs",
                f"{row['read_us_per_fact']:.1f} µs",
            )
            for row in rows_of(rows, "state", curve="servers")
        ),
    )


def observers(rows: list[Row]) -> str:
    """Memory against observers, and against the lists that each has seen."""
    return markdown(
        ["servers", "observers of them", "lists", "state", "binding topic", "to load a fact"],
        (
            (
                f"{row['servers']:,}",
                f"{row['observers']:,}",
                f"{row['lists']:,}",
                f"{row['state_mib']:,.1f} MiB",
                f"{row['topic_mib']:,.1f} MiB",
                f"{row['load_us_per_fact']:.1f} µs",
            )
            for curve in ("observers", "lists")
            for row in rows_of(rows, "state", curve=curve)
        ),
    )


def registry(rows: list[Row]) -> str:
    """What a list of tools costs."""
    return markdown(
        ["tools in a list", "first", "new server", "all tools changed", "repeated", "changed/s", "repeated/s"],
        (
            (
                row["tools"],
                f"{row['first_ms']:,.0f} ms",
                f"{row['new_ms']:.2f} ms",
                f"{row['changed_ms']:.2f} ms",
                f"{row['repeated_ms']:.3f} ms",
                f"{1_000 / row['changed_ms']:,.0f}",
                f"{1_000 / row['repeated_ms']:,.0f}",
            )
            for row in rows_of(rows, "registry")
        ),
    )


def start(rows: list[Row]) -> str:
    """Time to be ready, against the state."""
    return markdown(
        ["servers", "facts", "role", "ready after", "CPU", "memory"],
        (
            (
                f"{row['servers']:,}",
                f"{row['facts']:,}",
                row["role"],
                f"{row['ready_s']:.1f} s",
                f"{row['cpu_s']:.1f} s",
                f"{row['memory_mib']:,.0f} MiB",
            )
            for row in rows_of(rows, "start")
        ),
    )


def workers(rows: list[Row]) -> str:
    """Throughput of several workers."""
    return markdown(
        ["workers", "µs CPU per call, of all", "calls/s"],
        ((row["workers"], f"{row['cpu_us']:.1f}", f"{row['calls_per_s']:,.0f}") for row in rows_of(rows, "workers")),
    )


def costs(rows: list[Row]) -> str:
    """What one of each costs."""
    return markdown(
        ["one of", "costs"], ((f"`{name}`", _rounded(value)) for name, value in vars(costs_of(rows)).items())
    )


def fleets(rows: list[Row]) -> str:
    """What fleets need."""
    found = [needs(fleet, costs_of(rows)) for fleet in FLEETS]
    return markdown(
        ["a fleet of", *(f"{fleet.proxies:,} proxies, {fleet.servers:,} servers" for fleet in FLEETS)],
        ((name, *(_rounded(one[name]) for one in found)) for name in found[0]),
    )


def simulation(rows: list[Row]) -> str:
    """A part of the largest fleet on real workers, beside what the costs say of it."""
    runs, known = rows_of(rows, "fleet"), costs_of(rows)
    found = expected(runs[-1], known) if runs else {}
    return markdown(
        ["1:100 of a million proxies", "by the costs above", "measured", "measured / expected", "within 20 %"],
        (
            (
                name,
                _rounded(said),
                _rounded(measured),
                f"{measured / said:.2f}",
                "yes" if 1 / _TOLERANCE <= measured / said <= _TOLERANCE else "**no**",
            )
            for name, (said, measured) in found.items()
        ),
    )


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


TABLES: Mapping[str, Callable[[list[Row]], str]] = {
    table.__name__: table
    for table in (peers, replays, latency, servers, observers, registry, start, workers, costs, fleets, simulation)
}


def with_tables(text: str, rows: list[Row]) -> str:
    """Return a document with its tables made anew; one whose bench has no results stays as it is.

    Args:
        text: the document.
        rows: results.
    """

    tables = {}
    for _, name, *_ in _TABLE.findall(text):
        try:
            tables[name] = TABLES[name](rows)
        except LookupError as error:
            print(f"table {name} is kept: {error}", file=sys.stderr)
    return filled(text, tables)


def filled(text: str, tables: Mapping[str, str]) -> str:
    """Return a document with these tables in their places; other tables stay as they are.

    Args:
        text: the document.
        tables: Markdown by the name of the table.
    """
    return _TABLE.sub(lambda found: found[1] + tables.get(found[2], found[3]) + found[4], text)


def quiet_rounds(rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """Return the rows of the rounds in which nobody else used the machine, and the benches of which too few are left.

    Args:
        rows: results.
    """
    busy = {(row["bench"], row.get("round")) for row in rows if row.get("busy", 0.0) > QUIET_BUSY_MAX}
    quiet = [row for row in rows if (row["bench"], row.get("round")) not in busy]
    left = {(row["bench"], row.get("round")) for row in quiet}
    benches = sorted({bench for bench, _ in busy})
    return quiet, [bench for bench in benches if sum(each == bench for each, _ in left) < _ROUNDS_MIN]


def main() -> None:
    """Rewrite the documents."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("documents", type=Path, nargs="+")
    parser.add_argument("--loaded", action="store_true", help="take results of a machine that others used meanwhile")
    arguments = parser.parse_args()
    every = read_lines(arguments.results)
    rows, loud = (every, []) if arguments.loaded else quiet_rounds(every)
    if loud:
        sys.exit(
            f"the machine was in use while {', '.join(loud)} ran: its figures are no results. Run it again on a quiet "
            "machine, or give --loaded"
        )
    for document in arguments.documents:
        document.write_text(with_tables(document.read_text(encoding="utf-8"), rows), encoding="utf-8")


if __name__ == "__main__":
    main()
