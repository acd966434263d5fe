"""What a gate adds to a line: the pump of an enforcing tap beside that of a watching one, through the same pipes.

python -m bench.bench_gate [--lines N] [--rounds N]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from assay_stream.bindings.controls import VerdictTable
from assay_stream.observe import Observation, Vantage
from assay_stream.observe.gate import Gate
from assay_stream.observe.session import ClientSaid, ServerSaid, Session
from assay_stream.observe.tap import ClientOutput, Enforcer, Pump, Watch, write_all
from assay_stream.registry.step import verdict_key
from assay_stream.schemes.fingerprint import fingerprint

LIST = Path(__file__).resolve().parents[1] / "tests/data/captures/mcp-server-time@2026.10.19.tools_list.json"
VANTAGE = Vantage(server_id="time", observer_id="bench", server_scoped=True)
TOOL_NAME = "get_current_time"


def a_call(number: int, payload_bytes: int) -> bytes:
    """A line with a call, its arguments about so long."""
    params = {"name": TOOL_NAME, "arguments": {"timezone": "UTC", "text": "x" * payload_bytes}}
    return (
        json.dumps(
            {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}, separators=(",", ":")
        ).encode()
        + b"\n"
    )


def main() -> None:
    """Measure, and print microseconds a line of both pumps and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for payload_bytes in (0, 1_000, 100_000):
        lines = [a_call(number, payload_bytes) for number in range(options.lines)]
        times = [(_us(_watching, lines), _us(_enforcing, lines)) for _ in range(options.rounds)]
        plain_us, gated_us = (min(column) for column in zip(*times, strict=True))
        print(
            f"a call of {len(lines[-1])} bytes, one at a time: watching tap {plain_us:.0f} us, "
            f"enforcing tap {gated_us:.0f} us, {gated_us - plain_us:+.0f} us, ratio {gated_us / plain_us:.1f}"
        )


def _us(tap: Callable[[int, int], tuple[Pump, Callable[[], None]]], lines: list[bytes]) -> float:
    """Send lines through a tap, each after the one before has arrived; microseconds a line, in elapsed time."""
    tap_reads, client_writes = os.pipe()
    server_reads, tap_writes = os.pipe()
    pump, end = tap(tap_reads, tap_writes)
    pump.start()
    started_ns = time.perf_counter_ns()
    for line in lines:
        writer = threading.Thread(target=write_all, args=(client_writes, line)) if len(line) > 60_000 else None
        if writer is None:
            write_all(client_writes, line)
        else:
            writer.start()
        got = 0
        while got < len(line):
            got += len(os.read(server_reads, 262_144))
        if writer is not None:
            writer.join()
    elapsed_ns = time.perf_counter_ns() - started_ns
    os.close(client_writes)
    pump.join()
    end()
    for descriptor in (tap_reads, server_reads, tap_writes):
        os.close(descriptor)
    return elapsed_ns / len(lines) / 1_000


def _named() -> dict[str, Any]:
    ids = itertools.count()
    return {"session_id": "bench", "new_id": lambda: str(next(ids))}


def _watching(source: int, target: int) -> tuple[Pump, Callable[[], None]]:
    session = Session(VANTAGE, **_named())
    watch = Watch(session, publish=_ignore, clock=_now, write=lambda _, data: write_all(target, data))
    watch.start()

    def end() -> None:
        watch.finish()
        watch.join()

    return Pump(source, lambda data: watch.receive("client->server", data), done=_nothing), end


def _enforcing(source: int, target: int) -> tuple[Pump, Callable[[], None]]:
    tools = orjson.loads(LIST.read_bytes())["result"]["tools"]
    gate = Gate(VANTAGE, **_named(), decide=_table(tools).rule)
    enforcer = Enforcer(gate, server_input=target, client=ClientOutput(target), publish=_ignore, clock=_now)
    gate.receive(ClientSaid(b'{"id":"list","method":"tools/list"}'), _now())
    gate.receive(ServerSaid(orjson.dumps({"id": "list", "result": {"tools": tools}})), _now())
    gate.offered.delivered()

    def end() -> None:
        assert enforcer.blocked == enforcer.failures == 0

    return Pump(source, lambda data: enforcer.receive("client->server", data), done=_nothing), end


def _table(tools: list[dict[str, Any]]) -> VerdictTable:
    """A verdict for every tool: pinned to what it is, blocked otherwise."""
    table = VerdictTable()
    policy = {"enforcement": "block", "unknown": "block"}
    for tool in tools:
        pins = {"assay.p60": fingerprint(tool, server_id="time").schemes["assay.p60"]}
        verdict = {"action": "allow", "status": "match", "pins": pins, "policy": policy}
        table.apply(verdict_key("time", tool["name"]), orjson.dumps(verdict))
    return table


def _now() -> datetime:
    return datetime.now(UTC)


def _ignore(observation: Observation) -> None:
    """Publish nowhere."""


def _nothing(*_: object) -> None:
    """Do nothing."""


if __name__ == "__main__":
    main()
