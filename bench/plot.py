"""Draws the results of the benches.

.bench-venv/bin/python -m bench.plot .run/bench/results docs/performance.png
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt

from bench.results import Row, read_lines, rows_of
from bench.tables import medians

_OURS = "assay-stream"
_SEEN_MIB = 0.5
"""Less cannot be told from what the process takes anyway."""
_COLOUR, _SECOND, _GREY = "#1b6ca8", "#d1495b", "#9aa5b1"


def draw_peers(axes: Any, rows: list[Row]) -> None:
    """CPU time of a call, by program."""
    found = medians(rows_of(rows, "peers"), "program", "cpu_us")
    if not found:
        return
    ranked = sorted(found.items(), key=lambda item: item[1]["cpu_us"])
    names = [name for name, _ in ranked]
    colours = [_COLOUR if name == _OURS else _GREY for name in names]
    bars = axes.barh(names, [one["cpu_us"] for _, one in ranked], color=colours)
    axes.bar_label(bars, fmt="%.0f", padding=3)
    axes.invert_yaxis()
    axes.set(xscale="log", title="CPU time of a call, by program", xlabel="µs (log)")


def draw_latency(axes: Any, rows: list[Row]) -> None:
    """Latency at half the maximum rate, by setting."""
    found = rows_of(rows, "latency")
    if not found:
        return
    names = [
        f"batch {row['batch_records_max']:,}, poll {row['poll_timeout_ms']} ms\n{row['snapshots_per_s']:g} lists/s"
        for row in found
    ]
    places = range(len(found))
    axes.barh(places, [row["p99_ms"] for row in found], color=_GREY, label="p99")
    axes.barh(places, [row["p50_ms"] for row in found], color=_COLOUR, label="p50")
    axes.set_yticks(places, names, fontsize=8)
    axes.axvline(150, color=_SECOND, linestyle="--", linewidth=1)
    axes.legend()
    axes.set(title="Call published to evidence readable", xlabel="ms")


def draw_calls(axes: Any, rows: list[Row]) -> None:
    """CPU time of a call in the engine, against the number of servers."""
    found = rows_of(rows, "state", curve="servers")
    if not found:
        return
    servers = [row["servers"] for row in found]
    axes.plot(servers, [row["call_us"] for row in found], "o-", color=_COLOUR, label="servers called evenly")
    axes.plot(servers, [row["call_us_zipf"] for row in found], "s--", color=_SECOND, label="Zipf 1.1")
    axes.set(xscale="log", title="A call in the engine", xlabel="servers (log)", ylabel="µs CPU")
    axes.set_ylim(bottom=0)
    axes.legend()


def draw_memory(axes: Any, rows: list[Row]) -> None:
    """Memory of the view, against servers and observers."""
    by_servers, by_observers = (
        [row for row in rows_of(rows, "state", curve=curve) if row["state_mib"] >= _SEEN_MIB]
        for curve in ("servers", "observers")
    )
    if not by_servers or not by_observers:
        return
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
    axes.set(xscale="log", yscale="log", title="Memory of the binding view", xlabel="count (log)", ylabel="MiB (log)")
    axes.legend()


def draw_start(axes: Any, rows: list[Row]) -> None:
    """Time to be ready, against the state."""
    found = rows_of(rows, "start")
    if not found:
        return
    for role, style, colour in (("join", "o-", _COLOUR), ("registry", "s--", _SECOND)):
        of_role = [row for row in found if row["role"] == role]
        axes.plot(
            [row["facts"] for row in of_role], [row["ready_s"] for row in of_role], style, color=colour, label=role
        )
    axes.set(xscale="log", title="Start, or start after a crash", xlabel="facts (log)", ylabel="s until ready")
    axes.set_ylim(bottom=0)
    axes.legend()


def draw_workers(axes: Any, rows: list[Row]) -> None:
    """Throughput of several workers."""
    found = rows_of(rows, "workers")
    if not found:
        return
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
    """Read and draw."""
    folder, picture = Path(sys.argv[1]), Path(sys.argv[2])
    rows = read_lines(folder)
    figure, grid = plt.subplots(2, 3, figsize=(15, 8.5), layout="constrained")
    for axes, draw in zip(grid.flat, _PANELS, strict=True):
        draw(axes, rows)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    main()
