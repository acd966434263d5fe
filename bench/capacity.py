"""What fleets of three sizes need, worked out from measured costs: the tables of docs/capacity.md.

python -m bench.capacity .run/bench/results
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from bench.results import Row, rows_of

_KIB = 1_024
_BUSY_MAX = 0.7
"""Share of a core that a worker should be busy at the peak."""
_REPLICAS = 3
_DAY_S = 86_400
_SHARING_MIN = 8
"""Join workers that share the state, though fewer would be busy enough."""
_WORKER_MIB = 100.0
"""A worker without state, as it stands after its start."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What one of each costs, measured.

    Args:
        call_us: CPU time of a call in the whole join worker, where the same was asked since the server's last list.
        first_call_us: the same where it was not, as it is where servers have many observers.
        call_bytes: bytes of a call.
        evidence_bytes: bytes of its evidence.
        server_bytes: memory of a server with three tools and two observers.
        observer_bytes: memory of one more observer of a server, with one list.
        list_bytes: memory of a list with the same tools, with its part of an observer that has seen it 512 times.
        registry_list_bytes: memory that one more list of an observer takes in a registry, with the same tools.
        fact_us: CPU time to load one fact.
        fact_read_us: CPU time to read it, once a call asks for its server.
        client_us: CPU time of a record in a worker around what the engine does with it, as of calls.
        changed_ms: CPU time of a list of 50 tools that have all changed; one of a new server costs less.
        repeated_ms: the same, repeated.
        repeated_small_ms: a repeated list of three tools.
    """

    call_us: float
    first_call_us: float
    call_bytes: float
    evidence_bytes: float
    server_bytes: float
    observer_bytes: float
    list_bytes: float
    registry_list_bytes: float
    fact_us: float
    fact_read_us: float
    client_us: float
    changed_ms: float
    repeated_ms: float
    repeated_small_ms: float


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """A fleet, and what is assumed of it.

    Args:
        proxies: how many proxies.
        servers: how many servers there are in all.
        servers_each: how many of them each proxy speaks to.
        calls_per_s: calls of one proxy, on average.
        peak: calls at the peak beside the average.
        lists_per_h: how often a proxy lists the tools of each of its servers.
        lists_kept: lists kept of each observer of a server, ``Limits.timeline_entries_max`` at most.
        changes_per_day: how often a server changes its tools.
    """

    proxies: int
    servers: int
    servers_each: int = 5
    calls_per_s: float = 0.1
    peak: float = 5.0
    lists_per_h: float = 1.0
    lists_kept: int = 512
    changes_per_day: float = 1.0


MILLION = Fleet(proxies=1_000_000, servers=10_000)
FLEETS = (
    Fleet(proxies=10, servers=5),
    Fleet(proxies=1_000, servers=100),
    Fleet(proxies=100_000, servers=2_000),
    MILLION,
)


def needs(fleet: Fleet, costs: Costs) -> dict[str, float]:
    """Return what a fleet needs.

    Args:
        fleet: its size and habits.
        costs: what one of each costs.
    """
    calls_per_s = fleet.proxies * fleet.calls_per_s
    peak_per_s = calls_per_s * fleet.peak
    observers = fleet.proxies * fleet.servers_each
    lists_per_s = observers * fleet.lists_per_h / 3_600
    join_cores = peak_per_s * costs.first_call_us / 1e6
    changed_per_s = fleet.servers * fleet.changes_per_day / _DAY_S
    client_ms = costs.client_us / 1_000
    registry_cores = (
        lists_per_s * (costs.repeated_ms + client_ms) + changed_per_s * (costs.changed_ms + client_ms)
    ) / 1_000
    sharing = max(_SHARING_MIN, ceil(join_cores / _BUSY_MAX))
    first_bytes = fleet.servers * costs.server_bytes + observers * costs.observer_bytes
    lists_mib = observers * fleet.lists_kept * costs.list_bytes / _KIB**2
    return {
        "calls/s on average": calls_per_s,
        "calls/s at the peak": peak_per_s,
        "cores of the join at the peak": join_cores,
        "join workers": max(1, ceil(join_cores / _BUSY_MAX)),
        "lists/s": lists_per_s,
        "cores of the registry": registry_cores,
        "MiB of all registry workers, all lists that are kept": (
            _WORKER_MIB + (first_bytes + observers * (fleet.lists_kept - 1) * costs.registry_list_bytes) / _KIB**2
        ),
        "GB a day, calls and evidence, on all replicas": (
            calls_per_s * _DAY_S * (costs.call_bytes + costs.evidence_bytes) * _REPLICAS / 1e9
        ),
        "observers of servers": observers,
        "MiB of all join workers, one list of each observer": _WORKER_MIB + first_bytes / _KIB**2,
        "MiB of all join workers, all lists that are kept": _WORKER_MIB + lists_mib,
        "join workers, at least eight": sharing,
        "MiB of each of these, all lists that are kept": _WORKER_MIB + lists_mib / sharing,
        "s of CPU to load one list of each observer": (observers + 4 * fleet.servers) * costs.fact_us / 1e6,
    }


def costs_of(rows: Sequence[Row]) -> Costs:
    """Return the costs that results of benches show.

    Args:
        rows: the lines of ``bench_state``, ``bench_registry`` and ``bench_workers``.

    Raises:
        LookupError: where a bench has not been run.
    """
    curves = {
        curve: sorted(rows_of(rows, "state", curve=curve), key=lambda row: int(row[curve]))
        for curve in ("servers", "observers")
    }
    for curve in ("full", "registry"):
        curves[curve] = sorted(rows_of(rows, "state", curve=curve), key=lambda row: int(row["lists"]))
    lists = rows_of(rows, "registry", tools=50)
    small = rows_of(rows, "registry", tools=3)
    workers = rows_of(rows, "workers", workers=1)
    if not (lists and small and workers and all(len(curve) > 1 for curve in curves.values())):
        raise LookupError("results are missing: make bench-curves writes them")
    # In the smallest fleet the same is asked again and again, as in that of the workers; in the largest hardly ever.
    smallest, largest = curves["servers"][0], curves["servers"][-1]
    client_us = workers[-1]["cpu_us"] - smallest["call_us"]
    return Costs(
        call_us=workers[-1]["cpu_us"],
        first_call_us=client_us + largest["call_us"],
        call_bytes=largest["call_bytes"],
        evidence_bytes=largest["evidence_bytes"],
        server_bytes=_slope(curves["servers"], "servers"),
        observer_bytes=_slope(curves["observers"], "observers"),
        list_bytes=_slope(curves["full"], "lists"),
        registry_list_bytes=_slope(curves["registry"], "lists"),
        fact_us=largest["load_us_per_fact"],
        fact_read_us=largest["read_us_per_fact"],
        client_us=client_us,
        changed_ms=lists[-1]["changed_ms"],
        repeated_ms=lists[-1]["repeated_ms"],
        repeated_small_ms=small[-1]["repeated_ms"],
    )


def expected(found: Row, costs: Costs) -> dict[str, tuple[float, float]]:
    """Return what the costs say of a run of ``bench_fleet``, beside what was measured.

    Args:
        found: its result.
        costs: what one of each costs.
    """
    observers, calls = found["observers"], found["calls"]
    fact_us = costs.client_us + costs.fact_us + costs.fact_read_us
    listed_s = observers * (costs.repeated_small_ms / 1_000 + costs.client_us / 1e6)
    state_mib = (found["servers"] * costs.server_bytes + observers * costs.observer_bytes) / _KIB**2
    return {
        "registry, s of CPU for a repeated list of each observer": (listed_s, found["again_registry_s"]),
        "join, s of CPU for the facts of these lists": (observers * fact_us / 1e6, found["again_join_s"]),
        "join, s of CPU for the calls": (calls * costs.first_call_us / 1e6, found["calls_join_s"]),
        "join, MiB with one list of each observer": (found["empty_join_mib"] + state_mib, found["first_join_mib"]),
        "bytes of a call in its topic": (costs.call_bytes, found["call_bytes"]),
        "bytes of its evidence": (costs.evidence_bytes, found["evidence_bytes"]),
    }


def _slope(curve: list[Row], of: str) -> float:
    """Return the bytes that one more of something takes, between the first and the last point of a curve."""
    first, last = curve[0], curve[-1]
    return float((last["state_mib"] - first["state_mib"]) * _KIB**2 / (last[of] - first[of]))
