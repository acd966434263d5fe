"""What a repeated snapshot costs the registry where every tool has a pin, and the server a policy.

python -m bench.bench_controls [--tools N] [--rounds N]
"""

from __future__ import annotations

import argparse

import orjson

from assay_stream.model.evidence import Producer
from assay_stream.model.record import Origin, Record, Role
from bench.bench_registry import a_snapshot, milliseconds
from tests.support import engine
from tests.support.engine import EngineState


def a_control(number: int, kind: str, **data: str) -> Record:
    """A control record."""
    event = {
        "specversion": "1.0",
        "type": f"assay.control.{kind}",
        "source": "urn:assay-stream:control:bench",
        "id": f"control-{number}",
        "time": "2026-03-01T09:00:00Z",
        "data": {"server_id": "server", "author": "ann", "reason": "review", **data},
    }
    return Record(
        role=Role.CONTROL,
        origin=Origin(topic="assay.control", partition=0, offset=number),
        key=b"server",
        value=orjson.dumps(event),
    )


def main() -> None:
    """Measure, and print milliseconds per record: without controls, while setting them, and with them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=300)
    arguments = parser.parse_args()
    state = EngineState(producer=Producer(version="bench"))
    first = a_snapshot(0, arguments.tools, 1)
    engine.process(state, first)
    digests = {
        name: state.registry.bindings.server("server").tools[True, str(full)].schemes["assay.v1"]
        for catalogue in state.registry.bindings.server("server").catalogues.values()
        for name, full in catalogue.tools.items()
    }
    controls = [a_control(0, "policy.set", enforcement="block", unknown="warn")] + [
        a_control(number, "pin.set", tool_name=name, scheme="assay.v1", value=value)
        for number, (name, value) in enumerate(digests.items(), start=1)
    ]
    before = [a_snapshot(1 + number, arguments.tools, 1) for number in range(arguments.rounds)]
    after = [a_snapshot(1 + arguments.rounds + number, arguments.tools, 1) for number in range(arguments.rounds)]
    print(
        f"repeated snapshot of {arguments.tools} tools: without controls {milliseconds(state, before):.3f} ms; "
        f"a control record {milliseconds(state, controls):.3f} ms; "
        f"with {arguments.tools} pins and a policy {milliseconds(state, after):.3f} ms"
    )


if __name__ == "__main__":
    main()
