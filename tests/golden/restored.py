"""Stages restored from the golden topics as they were half-way: they go on as the old worker did.

Like ``stages.py`` this calls the engine itself; whoever changes how a stage is restored adapts it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import orjson

from assay_stream import __version__, engine
from assay_stream.alerts.processor import process
from assay_stream.alerts.rules import AlertRules
from assay_stream.alerts.table import AlertTable
from assay_stream.engine import EngineState
from assay_stream.model.envelope import Producer
from assay_stream.model.record import TOPIC_NAMES, Origin, Output, Record, Role
from tests.golden.changes import as_before
from tests.golden.histories import History
from tests.golden.live import SEED, STEPS
from tests.golden.outputs import Outputs
from tests.golden.stages import records_of

INPUT_PARTITIONS, CALL_PARTITIONS = 3, 2
_BY_KEY = ("findings", "alerts")
"""What the producer partitions by key: the order is known within a partition only."""

_COMPARED = (Role.BINDINGS, Role.FINDINGS, Role.VERDICTS, Role.EVIDENCE)


def records_in(files: Outputs, name: str) -> list[Record]:
    """The records of a golden file."""
    return list(records_of(files[name]))


class Written:
    """Keys and values that were written to topics, as outputs that can be compared."""

    def __init__(self) -> None:
        self._lines: dict[str, list[bytes]] = defaultdict(list)
        self._states: dict[bytes | None, bytes] = {}

    def add(self, role: str, partition: int | None, key: bytes | None, value: bytes | None) -> None:
        """Take a record in, unless it only says how far a reader has come."""
        if key is not None and (key == b"progress" or key.startswith(b'["progress"')):
            return
        name = orjson.dumps(None if key is None else key.decode())
        line = b"[" + name + b"," + (b"null" if value is None else value) + b"]\n"
        if role == "alert_states":
            self._states[key] = line
        else:
            self._lines[role if role in _BY_KEY else f"{role}-{partition or 0}"].append(line)

    def outputs(self, *, as_they_are: bool = False) -> Outputs:
        """One output for each log; of states what compaction leaves.

        Args:
            as_they_are: whether deliberate changes are not to be taken back.
        """
        found = {}
        for log, lines in (self._lines | {"alert_states": list(self._states.values())}).items():
            if lines:
                name = f"restored/{log}.ndjson"
                told = lines if as_they_are else [as_before(name, line) for line in lines]
                found[name] = b"".join(sorted(told) if log in (*_BY_KEY, "alert_states") else told)
        return found


def written_by_the_old_worker(files: Outputs) -> Outputs:
    """What the second half added to the topics."""
    written = Written()
    for name in sorted(files):
        folder, _, log = name.partition("/")
        role, _, number = log.removesuffix(".ndjson").partition("-")
        if folder == "end" and role in {"bindings", "findings", "verdicts", "evidence", "alerts", "alert_states"}:
            for record in records_in(files, name)[len(records_in(files, f"half/{log}")) :]:
                written.add(role, int(number), record.key, record.value)
    return written.outputs(as_they_are=True)


def written_by_restored_stages(files: Outputs) -> Outputs:
    """What today's stages write for the second half, restored from the topics as the first half left them."""
    written = Written()
    _registry_and_join(files, written)
    _alerts(files, written)
    return written.outputs()


def _registry_and_join(files: Outputs, written: Written) -> None:
    producer = Producer(version=__version__)
    partitions = INPUT_PARTITIONS
    registries = [EngineState(producer=producer, snapshot_partitions=partitions) for _ in range(partitions)]
    join = EngineState(producer=producer, snapshot_partitions=partitions)
    for number, registry in enumerate(registries):
        for fact in records_in(files, f"half/bindings-{number}.ndjson"):
            engine.process(join, fact)
            registry.registry.bindings.take(fact)
    for record in _second_half(files):
        state = join if record.role is Role.CALLS else registries[record.origin.partition]
        for output in engine.process(state, record):
            if output.role in _COMPARED:
                written.add(output.role.name.lower(), output.partition, output.key, output.value)
            if output.role is Role.BINDINGS:
                engine.process(join, _read_back(output))


def _alerts(files: Outputs, written: Written) -> None:
    for number in range(INPUT_PARTITIONS):
        table = AlertTable(number, AlertRules(version=__version__))
        for record in records_in(files, f"half/alert_states-{number}.ndjson"):
            table.restore(record)
        position = table.restored()[TOPIC_NAMES[Role.FINDINGS]]
        assert position is not None, "the table was not restored"
        for finding in records_in(files, f"end/findings-{number}.ndjson"):
            if finding.origin.offset >= position:
                for output in process(table.alerts, finding):
                    if output.role is Role.ALERTS:
                        written.add("alerts", number, output.key, output.value)
        for output in table.flush({TOPIC_NAMES[Role.FINDINGS]: 0}):
            written.add("alert_states", number, output.key, output.value)


def _second_half(files: Outputs) -> Iterator[Record]:
    """The inputs in the order in which they were published."""
    logs = {
        (role, number): iter(records_in(files, f"end/{role}-{number}.ndjson"))
        for role, count in (("snapshots", INPUT_PARTITIONS), ("control", INPUT_PARTITIONS), ("calls", CALL_PARTITIONS))
        for number in range(count)
    }
    lines = [orjson.loads(line) for line in History(SEED, STEPS).archive.lines]
    lines = [line for line in lines if "set_aside" not in line]
    for number, line in enumerate(lines):
        record = next(logs[line["role"], line["origin"]["partition"]])
        if number >= len(lines) // 2:
            yield record


def _read_back(output: Output) -> Record:
    place = Origin(topic="bindings", partition=output.partition or 0, offset=0)
    return Record(role=output.role, origin=place, key=output.key, value=output.value)
