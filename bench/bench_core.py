"""What proving a fast path costs, and what it saves: the fast and the slow way side by side in one run.

python -m bench.bench_core [--rounds N]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import rfc8785

from assay_stream.canonical.decode import decode_json, decode_json_strict
from assay_stream.canonical.digest import canonicalize

Run = Callable[[], object]

CAPTURES = Path(__file__).resolve().parents[1] / "tests" / "data" / "captures"
TOOLS = 50
BYTES_PER_ROUND = 200_000
"""What one round handles at least, so that small inputs are not lost in the clock's resolution."""


def a_call() -> dict[str, Any]:
    """An observed call of about one kilobyte."""
    return {
        "specversion": "1.0",
        "type": "mcp.tools.call.observed",
        "source": "urn:assay-stream:observer:bench",
        "id": "call-1",
        "time": "2026-03-01T10:00:00Z",
        "data": {
            "server_id": "filesystem",
            "observer_id": "observer-1",
            "call_id": "call-1",
            "tool": "read_text_file",
            "ok": True,
            "duration_ms": 12,
            "args_hash": f"sha256:{'a' * 64}",
            "result_hash": f"sha256:{'b' * 64}",
            "note": "What was asked for, at some length. " * 16,
        },
    }


def captured_tools() -> dict[str, Any]:
    """A list of fifty tools, taken in turn from the captured releases of real servers."""
    files = sorted(CAPTURES.glob("*.tools_list.json"))
    tools = [tool for file in files for tool in orjson.loads(file.read_bytes())["result"]["tools"]]
    return {"tools": [tools[index % len(tools)] for index in range(TOOLS)]}


def main() -> None:
    """Measure, and print microseconds of both ways and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    rounds: int = parser.parse_args().rounds
    for name, value in (("call", a_call()), (f"{TOOLS} tools", captured_tools())):
        compact, spaced = orjson.dumps(value), orjson.dumps(value, option=orjson.OPT_INDENT_2)
        assert canonicalize(value) == rfc8785.dumps(value)
        assert decode_json(compact) == decode_json(spaced) == decode_json_strict(compact) == value
        repeats = max(1, BYTES_PER_ROUND // len(compact))
        print(f"{name}, {len(compact) / 1024:.1f} KiB")
        _compare(
            "canonicalize", partial(canonicalize, value), "rfc8785", partial(rfc8785.dumps, value), rounds, repeats
        )
        for form, raw in (("compact", compact), ("indented", spaced)):
            fast, strict = partial(decode_json, raw), partial(decode_json_strict, raw)
            _compare(f"decode_json, {form}", fast, "strict path", strict, rounds, repeats)


def _compare(name: str, run: Run, other_name: str, other: Run, rounds: int, repeats: int) -> None:
    """Take both ways in turn, so that what else the machine does falls on both, and keep the best of each."""
    times = [(_us(run, repeats), _us(other, repeats)) for _ in range(rounds)]
    ours_us, others_us = (min(column) for column in zip(*times, strict=True))
    print(f"  {name} {ours_us:.1f} us, {other_name} {others_us:.1f} us, ratio {others_us / ours_us:.1f}")


def _us(run: Run, repeats: int) -> float:
    started_ns = time.process_time_ns()
    for _ in range(repeats):
        run()
    return (time.process_time_ns() - started_ns) / repeats / 1_000


if __name__ == "__main__":
    main()
