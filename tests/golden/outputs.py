"""What replay and the stages make of a random history: every output, so that a change of any byte shows.

python -m tests.golden.outputs                     # write the digests that test_histories.py compares with
python -m tests.golden.outputs FOLDER FIRST END    # write the outputs themselves: diff -r two checkouts' folders
"""

import json
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import orjson

from assay_stream.model.evidence import Producer
from assay_stream.model.record import Origin, Output, Record, Role
from tests.golden.histories import History
from tests.support import engine
from tests.support.engine import EngineState
from tests.support.replaying import replay

DIGESTS = Path(__file__).parents[1] / "data" / "golden" / "digests.json"
HISTORIES = range(60)
"""Seeds of the histories whose digests are kept."""
_DIGEST_CHARS = 16
_STEPS = 40
_PRODUCER = Producer(version="golden")


def outputs_of(seed: int) -> dict[str, bytes]:
    """The outputs of one history by name: of a replay, and of stages that get each record as it was published."""
    history = History(seed, _STEPS)
    records, partitions = history.archive.records, history.archive.partitions
    lines: dict[str, list[bytes]] = {}
    for output in replay(records, producer=_PRODUCER, snapshot_partitions=partitions):
        lines.setdefault(f"replay/{output.role.value}", []).append(_line(output))
    for output in _staged(records, partitions):
        lines.setdefault(f"stages/{output.role.value}", []).append(_line(output))
    return {name: b"".join(written) for name, written in lines.items()}


def digests_of(seed: int) -> dict[str, str]:
    return {name: sha256(content).hexdigest()[:_DIGEST_CHARS] for name, content in sorted(outputs_of(seed).items())}


def _staged(records: list[Record], partitions: int) -> Iterator[Output]:
    """Yield what a registry for each partition, a join and the alerts write, record by record."""
    registries = [EngineState(producer=_PRODUCER, snapshot_partitions=partitions) for _ in range(partitions)]
    join, alerts = (EngineState(producer=_PRODUCER, snapshot_partitions=partitions) for _ in range(2))
    count = 0
    for record in records:
        state = join if record.role is Role.CALLS else registries[record.origin.partition]
        for output in engine.process(state, record):
            yield output
            count += 1
            if output.role is Role.BINDINGS:
                engine.process(join, _read_back(output, count, partition=output.partition or 0))
            elif output.role is Role.FINDINGS:
                yield from engine.process(alerts, _read_back(output, count, partition=0))


def _read_back(output: Output, offset: int, *, partition: int) -> Record:
    return Record(
        role=output.role,
        origin=Origin(topic="golden", partition=partition, offset=offset),
        key=output.key,
        value=output.value,
        headers=output.headers,
        timestamp_ms=output.timestamp_ms,
    )


def _line(output: Output) -> bytes:
    parts = (
        orjson.dumps(output.partition),
        orjson.dumps(output.timestamp_ms),
        repr(output.key).encode(),
        repr(output.headers).encode(),
        repr(output.value).encode() if output.value is None else output.value,
    )
    return b" ".join(parts) + b"\n"


def main() -> None:
    if len(sys.argv) == 1:
        digests = {str(seed): digests_of(seed) for seed in HISTORIES}
        DIGESTS.write_text(json.dumps(digests, indent=1, sort_keys=True) + "\n")
        return
    folder, first, end = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for seed in range(first, end):
        for name, content in outputs_of(seed).items():
            path = folder / str(seed) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


if __name__ == "__main__":
    main()
