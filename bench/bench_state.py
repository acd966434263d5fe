"""What the size of a fleet costs the engine, without a broker: memory, loading, and a call's CPU time.

Each size is measured in a process of its own. Every line of the result is one JSON object.

    python -m bench.bench_state [--servers N ...] [--observers N ...] [--lists N ...] [--calls N] [--json FILE]
    python -m bench.bench_state --one 20 250 512
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import psutil

from assay_stream.model.evidence import Producer
from assay_stream.model.record import Origin, Record, Role
from bench.results import write_line
from bench.synthetic import calls, facts
from tests.support import engine
from tests.support.engine import EngineState
from tests.support.fleet import START, a_listing

_BATCH = 1_000
_WARM_UP_CALLS = 20_000
_ZIPF_EXPONENT = 1.1
_REGISTRY_WARM_UP = 2
"""Lists of each observer before a registry is measured."""


class Joined(NamedTuple):
    """What joining took on average: CPU time, bytes in, bytes out."""

    cpu_us: float
    call_bytes: int
    evidence_bytes: int


def one_size(servers: int, observers: int, lists: int, count: int) -> dict[str, Any]:
    """Return what a fleet of one size costs.

    Args:
        servers: how many servers.
        observers: observers of each.
        lists: lists that each of these has seen.
        count: calls to measure with.
    """
    gc.set_threshold(50_000, 50, 100)  # as the worker does
    state = EngineState(producer=Producer(version="bench"))
    # One server first, so that what every process needs once is not counted as a fleet's.
    _load(state, facts(1, 1))
    _join(state, calls(1, 1, _WARM_UP_CALLS))
    memory = psutil.Process().memory_info
    before_bytes = memory().rss
    fact_count, topic_bytes, load_s = _load(state, facts(servers, observers, lists))
    unread_bytes = memory().rss - before_bytes
    read_s = _read_all(state)
    state_bytes = memory().rss - before_bytes
    _join(state, calls(servers, observers, min(count, _WARM_UP_CALLS)))
    evenly = _join(state, calls(servers, observers, count))
    skewed = _join(state, calls(servers, observers, count, zipf_exponent=_ZIPF_EXPONENT))
    return {
        "servers": servers,
        "observers": servers * observers,
        "lists": servers * observers * lists,
        "facts": fact_count,
        "topic_mib": topic_bytes / 2**20,
        "unread_mib": unread_bytes / 2**20,
        "state_mib": state_bytes / 2**20,
        "load_us_per_fact": load_s / fact_count * 1e6,
        "read_us_per_fact": read_s / fact_count * 1e6,
        "load_us_per_list": (load_s + read_s) / (servers * observers * lists) * 1e6,
        "topic_bytes_per_list": topic_bytes / (servers * observers * lists),
        "load_s": load_s,
        "call_us": evenly.cpu_us,
        "call_us_zipf": skewed.cpu_us,
        "call_bytes": evenly.call_bytes,
        "evidence_bytes": evenly.evidence_bytes,
        "state_mib_after_calls": (memory().rss - before_bytes) / 2**20,
    }


def one_registry(observers: int, lists: int) -> dict[str, Any]:
    """Return what a registry of one server costs after repeated lists, as it keeps them while it works.

    Args:
        observers: how many observe the server, in turn.
        lists: lists that each of these has seen, all the same.
    """
    gc.set_threshold(50_000, 50, 100)  # as the worker does
    state = EngineState(producer=Producer(version="bench"))
    for number in range(_REGISTRY_WARM_UP):
        _registry_round(state, observers, number)
    gc.collect()
    before_bytes = psutil.Process().memory_info().rss
    rounds = [_registry_round(state, observers, number) for number in range(_REGISTRY_WARM_UP, lists)]
    gc.collect()
    count = observers * (lists - _REGISTRY_WARM_UP)
    return {
        "observers": observers,
        "lists": observers * lists,
        "state_mib": (psutil.Process().memory_info().rss - before_bytes) / 2**20,
        "us_per_list": sum(rounds) / count * 1e6,
    }


def _registry_round(state: EngineState, observers: int, number: int) -> float:
    """Let each observer see the list once more, and return the CPU seconds that it took."""
    cpu_s = 0.0
    for observer in range(observers):
        at = START + timedelta(seconds=number * observers + observer)
        offset = number * observers + observer
        _, key, value = a_listing(0, observer, 0, offset, at)
        value = value.replace(b'"snapshot-%d"' % offset, b'"00000000-0000-4000-8000-%012x"' % offset)
        record = Record(Role.SNAPSHOTS, Origin("mcp.tools.list", 0, offset), key, value)
        started_s = time.process_time()
        engine.process(state, record)
        cpu_s += time.process_time() - started_s
    return cpu_s


def _load(state: EngineState, written: Iterable[tuple[bytes, bytes]]) -> tuple[int, int, float]:
    count = size = 0
    cpu_s = 0.0
    for batch in _batched(written):
        records = [Record(Role.BINDINGS, Origin("bindings", 0, 0), key, value) for key, value in batch]
        started_s = time.process_time()
        for record in records:
            state.view.take(record)
        cpu_s += time.process_time() - started_s
        count += len(batch)
        size += sum(len(key) + len(value) for key, value in batch)
    return count, size, cpu_s


def _read_all(state: EngineState) -> float:
    started_s = time.process_time()
    assert state.view.servers
    return time.process_time() - started_s


def _join(state: EngineState, values: Iterable[bytes]) -> Joined:
    cpu_s = 0.0
    count = call_bytes = evidence_bytes = 0
    for batch in _batched(values):
        records = [
            Record(Role.CALLS, Origin("calls", 0, count + index), None, value) for index, value in enumerate(batch)
        ]
        started_s = time.process_time()
        for record in records:
            outputs = engine.process(state, record)
            assert outputs[0].label.startswith("bound:")
            evidence_bytes += len(outputs[0].value or b"")
        cpu_s += time.process_time() - started_s
        count += len(batch)
        call_bytes += sum(map(len, batch))
    return Joined(cpu_s / count * 1e6, call_bytes // count, evidence_bytes // count)


def _batched(items: Iterable[Any]) -> Iterable[list[Any]]:
    batch = []
    for item in items:
        batch.append(item)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def main() -> None:
    """Measure each size in a child process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, nargs="*", default=[10, 100, 1_000, 10_000, 100_000])
    parser.add_argument(
        "--observers", type=int, nargs="*", default=[1, 10, 100, 1_000], help="of each of 1,000 servers"
    )
    parser.add_argument(
        "--lists", type=int, nargs="*", default=[1, 8, 64, 512], help="of each of 2 observers of 100 servers"
    )
    parser.add_argument(
        "--full", type=int, nargs="*", default=[10, 20], help="servers of 250 observers with 512 lists each"
    )
    parser.add_argument(
        "--registry", type=int, nargs="*", default=[8, 64, 512], help="lists of each of 100 observers, in a registry"
    )
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--json", type=Path, help="append the result to this file")
    parser.add_argument(
        "--one", type=int, nargs=3, help="servers, observers of each and lists of these: this size only"
    )
    parser.add_argument("--one-registry", type=int, nargs=2, help="observers and lists of each: this registry only")
    arguments = parser.parse_args()
    if arguments.one is not None:
        servers, observers, lists = arguments.one
        print(orjson.dumps(one_size(servers, observers, lists, arguments.calls)).decode())
        return
    if arguments.one_registry is not None:
        print(orjson.dumps(one_registry(*arguments.one_registry)).decode())
        return
    sizes = [("servers", count, 2, 1) for count in arguments.servers]
    sizes += [("observers", 1_000, count, 1) for count in arguments.observers]
    sizes += [("lists", 100, 2, count) for count in arguments.lists]
    sizes += [("full", servers, 250, 512) for servers in arguments.full]
    for curve, servers, observers, lists in sizes:
        command = ["-m", "bench.bench_state", "--calls", str(arguments.calls)]
        command += ["--one", str(servers), str(observers), str(lists)]
        _measured(curve, command, arguments.json)
    for count in arguments.registry:
        command = ["-m", "bench.bench_state", "--one-registry", "100", str(count)]
        _measured("registry", command, arguments.json)


def _measured(curve: str, command: list[str], file: Path | None) -> None:
    """Run one size in a child process, and write its line."""
    done = subprocess.run([sys.executable, *command], capture_output=True, check=True)
    found = {"bench": "state", "curve": curve, **orjson.loads(done.stdout)}
    print(orjson.dumps(found).decode(), flush=True)
    write_line(file, found)


if __name__ == "__main__":
    main()
