"""What the fast paths of the core spare: each beside its slow path, in one run, on a call and on a real list.

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

from assay_stream.core.decode import decode_json, decode_json_strict
from assay_stream.core.digest import canonicalize

CAPTURES = Path(__file__).resolve().parents[1] / "tests" / "data" / "captures"
CAPTURE = CAPTURES / "server-filesystem@2026.8.31.tools_list.json"
REPEATS = 5


def a_call() -> dict[str, Any]:
    """A call event of about 1 KB."""
    return {
        "specversion": "1.0",
        "type": "mcp.tools.call.observed",
        "source": "urn:assay-stream:observer:bench",
        "id": "call-1",
        "time": "2026-03-01T10:00:00Z",
        "data": {
            "server_id": "server",
            "observer_id": "observer",
            "tool": "write_file",
            "tool_call_id": "call-1",
            "args": {"path": "/srv/notes.txt", "content": "One line of a note, as long as lines are.\n" * 15},
            "decision": "allow",
        },
    }


def main() -> None:
    """Measure, and print microseconds of both paths and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    values = {"call event": a_call(), "tools list": orjson.loads(CAPTURE.read_bytes())["result"]["tools"]}
    for name, value in values.items():
        raw = orjson.dumps(value)
        assert canonicalize(value) == rfc8785.dumps(value)
        assert decode_json(raw) == decode_json_strict(raw)
        what = f"{name}, {len(raw) / 1024:.1f} KiB"
        _compare(
            f"canonicalize / rfc8785, {what}", partial(canonicalize, value), partial(rfc8785.dumps, value), rounds
        )
        _compare(
            f"decode_json / decode_json_strict, {what}",
            partial(decode_json, raw),
            partial(decode_json_strict, raw),
            rounds,
        )


def _compare(title: str, fast: Callable[[], Any], slow: Callable[[], Any], rounds: int) -> None:
    # In turns, so that whatever else the machine does slows both alike; the best of each is the least disturbed.
    times_us = [(_microseconds(fast, rounds), _microseconds(slow, rounds)) for _ in range(REPEATS)]
    fast_us, slow_us = (min(column) for column in zip(*times_us, strict=True))
    print(f"{title}: {fast_us:.1f} us / {slow_us:.1f} us, {slow_us / fast_us:.1f} times as fast")


def _microseconds(run: Callable[[], Any], rounds: int) -> float:
    started_s = time.process_time()
    for _ in range(rounds):
        run()
    return (time.process_time() - started_s) / rounds * 1_000_000


if __name__ == "__main__":
    main()
