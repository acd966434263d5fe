"""What a list costs the registry: of a new server, with every tool changed, and repeated by another observer.

python -m bench.bench_registry [--tools N] [--prompts N] [--rounds N]
"""

from __future__ import annotations

import argparse
import gc
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from assay_stream.model.evidence import Producer
from assay_stream.model.record import Origin, Record, Role
from bench.results import write_line
from tests.support import engine
from tests.support.engine import EngineState


def a_snapshot(number: int, tools: int, version: int, prompts: int = 0, *, server_id: str = "server") -> Record:
    """A snapshot of as many tools as asked for, each with a schema of some size, and of prompts with arguments."""
    offered = [
        {
            "name": f"tool_{index}",
            "title": f"Tool {index}",
            "description": f"Does thing {index} of version {version}, with care and at length. " * 5,
            "inputSchema": {
                "type": "object",
                "properties": {
                    f"parameter_{part}": {"type": "string", "description": f"Parameter {part} of {index}."}
                    for part in range(8)
                },
                "required": ["parameter_0", "parameter_1"],
            },
            "annotations": {"readOnlyHint": True, "destructiveHint": False},
        }
        for index in range(tools)
    ]
    # A minute apart, in which a server's allowance is full again.
    at = datetime(2026, 3, 1, 10, tzinfo=UTC) + timedelta(minutes=number)
    event = {
        "specversion": "1.0",
        "type": "mcp.tools.list.observed",
        "source": "urn:assay-stream:observer:bench",
        "id": f"list-{number}",
        "time": at.isoformat(),
        "data": {
            "server_id": server_id,
            "observer_id": f"observer-{number % _OBSERVERS}",
            "snapshot_id": f"snapshot-{number}",
            "server_scoped": True,
            "completeness": "complete",
            "tools": offered,
            **({"prompts": [a_prompt(index, version) for index in range(prompts)]} if prompts else {}),
        },
    }
    return Record(
        role=Role.SNAPSHOTS,
        origin=Origin(topic="mcp.tools.list", partition=0, offset=number),
        key=server_id.encode(),
        value=orjson.dumps(event),
        timestamp_ms=round(at.timestamp() * 1_000),
    )


def a_prompt(index: int, version: int) -> dict[str, Any]:
    """A prompt with two arguments."""
    return {
        "name": f"prompt_{index}",
        "title": f"Prompt {index}",
        "description": f"Asks for thing {index} of version {version}, with care and at length.",
        "arguments": [
            {"name": f"argument_{part}", "description": f"Argument {part} of {index}.", "required": part == 0}
            for part in range(2)
        ],
    }


_OBSERVERS = 10
_CHANGED = 20


def main() -> None:
    """Measure, and print milliseconds per snapshot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=int, default=50)
    parser.add_argument("--prompts", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--json", type=Path, help="append the result to this file")
    arguments = parser.parse_args()
    gc.set_threshold(50_000, 50, 100)  # as the worker does
    state = EngineState(producer=Producer(version="bench"))
    made = partial(a_snapshot, tools=arguments.tools, prompts=arguments.prompts)
    first, *changed = [made(number, version=number) for number in range(_CHANGED + 1)]
    unseen = range(_CHANGED + 1, 2 * _CHANGED + 1)
    of_new_servers = [made(number, version=number, server_id=f"server-{number}") for number in unseen]
    known = [made(unseen.stop + number, version=_CHANGED) for number in range(_OBSERVERS + arguments.rounds)]
    # What searches need is made where a text is first searched, once.
    first_ms = milliseconds(state, [first])
    changed_ms = milliseconds(state, changed)
    new_ms = milliseconds(state, of_new_servers)
    # The version that one observer was shown first is news to each of the others, once.
    milliseconds(state, known[:_OBSERVERS])
    repeated_ms = milliseconds(state, known[_OBSERVERS:])
    print(
        f"snapshot of {arguments.tools} tools and {arguments.prompts} prompts, "
        f"{len(first.value or b'') / 1024:.0f} KiB: "
        f"the first {first_ms:.2f} ms, of a new server {new_ms:.2f} ms, changed {changed_ms:.2f} ms, "
        f"repeated {repeated_ms:.3f} ms"
    )
    line = {"bench": "registry", "tools": arguments.tools, "first_ms": first_ms, "new_ms": new_ms}
    write_line(arguments.json, line | {"changed_ms": changed_ms, "repeated_ms": repeated_ms})


def milliseconds(state: EngineState, records: list[Record]) -> float:
    """Return the processor time that a record takes on average, milliseconds."""
    started_s = time.process_time()
    for record in records:
        engine.process(state, record)
    return (time.process_time() - started_s) / len(records) * 1_000


if __name__ == "__main__":
    main()
