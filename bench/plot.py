"""Draws the results of the benches, and prints them as the tables that the docs show.

.bench-venv/bin/python -m bench.plot .run/bench/results docs/performance.png
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import orjson

mpl.use("Agg")

from matplotlib import pyplot as plt

Row = dict[str, Any]

_OURS = "assay-stream"
_COLOUR, _SECOND, _GREY = "#1b6ca8", "#d1495b", "#9aa5b1"


def read(folder: Path) -> list[Row]:
    """Return every line of every result file of a folder."""
    return [orjson.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.open("rb")]


def of(rows: Iterable[Row], bench: str, **wanted: object) -> list[Row]:
    """Return the rows of one bench that have these values."""
    return [
        row
        for row in rows
        if row["bench"] == bench and all(row.get(name) == value for name, value in wanted.items())
    ]


def medians(rows: list[Row], by: str, *names: str) -> dict[Any, Row]:
    """Return the medians of some values, by the value of another."""
    groups = defaultdict(list)
    for row in rows:
        groups[row[by]].append(row)
    return {
        group: {name: statistics.median(row[name] for row in members) for name in names}
        for group, members in groups.items()
    }


def table(header: list[str], body: Iterable[Iterable[object]]) -> None:
    """Print a table in Markdown."""
    print("\n| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for cells in body:
        print("| " + " | ".join(str(cell) for cell in cells) + " |")


def draw_peers(axes: Any, rows: list[Row]) -> None:
    """CPU time of a call, by program."""
    found = medians(of(rows, "peers"), "program", "cpu_us", "calls_per_s", "memory_mib")
    if not found:
        return
    ours = found[_OURS]
    ranked = sorted(found.items(), key=lambda item: item[1]["cpu_us"])
    table(
        ["program", "CPU beside ours", "rate beside ours", "µs CPU per call", "calls/s", "MiB"],
        (
            (
                name,
                f"{one['cpu_us'] / ours['cpu_us']:.2f}",
                f"{one['calls_per_s'] / ours['calls_per_s']:.2f}",
                f"{one['cpu_us']:.1f}",
                f"{one['calls_per_s']:,.0f}",
                f"{one['memory_mib']:.0f}",
            )
            for name, one in ranked
        ),
    )
    names = [name for name, _ in ranked]
    colours = [_COLOUR if name == _OURS else _GREY for name in names]
    bars = axes.barh(names, [one["cpu_us"] for _, one in ranked], color=colours)
    axes.bar_label(bars, fmt="%.0f", padding=3)
    axes.invert_yaxis()
    axes.set(xscale="log", title="CPU time of a call, by program", xlabel="µs (log)")


def draw_latency(axes: Any, rows: list[Row]) -> None:
    """Latency at half the maximum rate, by setting."""
    found = of(rows, "latency")
    if not found:
        return
    names = [
        f"batch {row['batch_records_max']:,}, poll {row['poll_timeout_ms']} ms\n{row['snapshots_per_s']:g} lists/s"
        for row in found
    ]
    parts = ["p50_ms", "p90_ms", "p99_ms", "p99.9_ms"]
    table(
        [
            "batch_records_max",
            "poll_timeout_ms",
            "lists/s",
            "calls/s",
            *(part.removesuffix("_ms") for part in parts),
        ],
        (
            (
                f"{row['batch_records_max']:,}",
                row["poll_timeout_ms"],
                f"{row['snapshots_per_s']:g}",
                f"{row['calls_per_s']:,.0f}",
                *(f"{row[part]:.0f} ms" for part in parts),
            )
            for row in found
        ),
    )
    places = range(len(found))
    axes.barh(places, [row["p99_ms"] for row in found], color=_GREY, label="p99")
    axes.barh(places, [row["p50_ms"] for row in found], color=_COLOUR, label="p50")
    axes.set_yticks(places, names, fontsize=8)
    axes.axvline(150, color=_SECOND, linestyle="--", linewidth=1)
    axes.legend()
    axes.set(title="Call published to evidence readable", xlabel="ms")


def draw_calls(axes: Any, rows: list[Row]) -> None:
    """CPU time of a call in the engine, against the number of servers."""
    found = of(rows, "state", curve="servers")
    if not found:
        return
    table(
        [
            "servers",
            "µs per call, even",
            "µs per call, Zipf",
            "state MiB",
            "state MiB after calls",
            "µs to load a fact",
        ],
        (
            (
                f"{row['servers']:,}",
                f"{row['call_us']:.1f}",
                f"{row['call_us_zipf']:.1f}",
                f"{row['state_mib']:,.1f}",
                f"{row['state_mib_after_calls']:,.1f}",
                f"{row['load_us_per_fact']:.1f}",
            )
            for row in found
        ),
    )
    servers = [row["servers"] for row in found]
    axes.plot(servers, [row["call_us"] for row in found], "o-", color=_COLOUR, label="servers called evenly")
    axes.plot(servers, [row["call_us_zipf"] for row in found], "s--", color=_SECOND, label="Zipf 1.1")
    axes.set(xscale="log", title="A call in the engine", xlabel="servers (log)", ylabel="µs CPU")
    axes.set_ylim(bottom=0)
    axes.legend()


def draw_memory(axes: Any, rows: list[Row]) -> None:
    """Memory of the view, against servers and observers."""
    by_servers, by_observers = of(rows, "state", curve="servers"), of(rows, "state", curve="observers")
    if not by_servers or not by_observers:
        return
    table(
        ["observers on 1,000 servers", "state MiB", "µs per call, even", "binding topic MiB"],
        (
            (
                f"{row['observers']:,}",
                f"{row['state_mib']:,.1f}",
                f"{row['call_us']:.1f}",
                f"{row['topic_mib']:,.1f}",
            )
            for row in by_observers
        ),
    )
    axes.plot(
        [row["servers"] for row in by_servers],
        [row["state_mib"] for row in by_servers],
        "o-",
        color=_COLOUR,
        label="servers, 2 observers each",
    )
    axes.plot(
        [row["observers"] for row in by_observers],
        [row["state_mib"] for row in by_observers],
        "s--",
        color=_SECOND,
        label="observers, on 1,000 servers",
    )
    axes.set(
        xscale="log", yscale="log", title="Memory of the binding view", xlabel="count (log)", ylabel="MiB (log)"
    )
    axes.legend()


def draw_start(axes: Any, rows: list[Row]) -> None:
    """Time to be ready, against the state."""
    found = of(rows, "start")
    if not found:
        return
    table(
        ["servers", "facts", "role", "ready after", "CPU", "MiB"],
        (
            (
                f"{row['servers']:,}",
                f"{row['facts']:,}",
                row["role"],
                f"{row['ready_s']:.1f} s",
                f"{row['cpu_s']:.1f} s",
                f"{row['memory_mib']:,.0f}",
            )
            for row in found
        ),
    )
    for role, style, colour in (("join", "o-", _COLOUR), ("registry", "s--", _SECOND)):
        of_role = [row for row in found if row["role"] == role]
        axes.plot(
            [row["facts"] for row in of_role], [row["ready_s"] for row in of_role], style, color=colour, label=role
        )
    axes.set(xscale="log", title="Start, or start after a crash", xlabel="facts (log)", ylabel="s until ready")
    axes.set_ylim(bottom=0)
    axes.legend()


def draw_workers(axes: Any, rows: list[Row]) -> None:
    """Throughput of several workers, and lists of tools."""
    lists = of(rows, "registry")
    if lists:
        table(
            ["tools in a list", "new", "repeated", "new lists/s of a core", "repeated lists/s of a core"],
            (
                (
                    row["tools"],
                    f"{row['new_ms']:.2f} ms",
                    f"{row['repeated_ms']:.3f} ms",
                    f"{1_000 / row['new_ms']:,.0f}",
                    f"{1_000 / row['repeated_ms']:,.0f}",
                )
                for row in lists
            ),
        )
    found = of(rows, "workers")
    if not found:
        return
    table(
        ["workers", "calls/s", "µs CPU per call, all workers"],
        ((row["workers"], f"{row['calls_per_s']:,.0f}", f"{row['cpu_us']:.1f}") for row in found),
    )
    workers = [str(row["workers"]) for row in found]
    bars = axes.bar(workers, [row["calls_per_s"] for row in found], color=_COLOUR)
    axes.bar_label(bars, [f"{row['cpu_us']:.0f} µs/call" for row in found], padding=3)
    axes.set(title="Join workers beside the broker", xlabel="workers", ylabel="calls/s")


_PANELS: list[Callable[[Any, list[Row]], None]] = [
    draw_peers,
    draw_latency,
    draw_workers,
    draw_calls,
    draw_memory,
    draw_start,
]


def main() -> None:
    """Read, print, draw."""
    folder, picture = Path(sys.argv[1]), Path(sys.argv[2])
    rows = read(folder)
    figure, grid = plt.subplots(2, 3, figsize=(15, 8.5), layout="constrained")
    for axes, draw in zip(grid.flat, _PANELS, strict=True):
        draw(axes, rows)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    main()
