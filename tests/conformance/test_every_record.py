"""Every record that the engine writes, over random histories, satisfies the schema that is published for it."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
from jsonschema import Draft202012Validator

from assay_stream.agents import Agent, AgentState, Detection, Event, Memory, Rekeying
from assay_stream.alerts.processor import process as process_finding
from assay_stream.alerts.remembered import AlertTable
from assay_stream.alerts.rules import AlertRules
from assay_stream.files.lines import rejected_line
from assay_stream.limits import Limits
from assay_stream.model.checkpoint import encode
from assay_stream.model.evidence import Producer
from assay_stream.model.facts import JoinProgress, write_progress
from assay_stream.model.record import TOPIC_NAMES, Origin, Output, Record, Role
from assay_stream.model.rejected import mark_of, write_accepted
from assay_stream.model.schemas import FACT_KEY, OUTPUTS, SUFFIX
from assay_stream.model.state_table import write_level
from assay_stream.registry.step import progress
from tests.golden.histories import History
from tests.support import engine
from tests.support.agents import a_set
from tests.support.controls import a_control
from tests.support.engine import EngineState
from tests.support.events import record_of
from tests.support.seals import Fleet

SEEDS = range(2_000, 2_012)
LIMITS = Limits(
    timeline_entries_max=2,
    seen_run_rows_min=2,
    former_tools_max=3,
    allowance_burst_units=400_000,
    alerts_per_record_max=20,
)
"""Small ones, so that histories are folded and analyses rationed."""
PRODUCER = Producer(version="0.1.0")
FOLDER = Path(__file__).resolve().parents[2] / "schemas"
_ENTRIES = ("alert_act", "flood_end", "name_claim", "resolution", "suppression", "tick")


def named(output: Output) -> Iterator[tuple[str, Any]]:
    """The schemas that a record has to satisfy, each with what must satisfy it; fails where there is none."""
    key, value = output.key or b"", output.value
    headers = {name: content.decode() for name, content in output.headers}
    content: Any = None if value is None or output.role is Role.REJECTED else orjson.loads(value)
    match output.role:
        case Role.EVIDENCE | Role.CHANGES:
            yield content["type"], content
        case Role.VERDICTS:
            yield "assay.tool.verdict", content
        case Role.DEFINITIONS:
            yield "assay.tool.definition", content
        case Role.FINDINGS:
            kind = content["kind"]
            yield f"assay.tool.finding.{kind}" if kind in _ENTRIES else "assay.tool.finding", content
        case Role.ALERTS:
            yield "assay.tool.drift", content
            yield "assay.tool.drift.headers", headers
        case Role.BINDINGS:
            yield FACT_KEY, orjson.loads(key)
            yield f"assay.tool.binding.{orjson.loads(key)[0]}", content
        case Role.ALERT_STATES:
            kind, slash, _ = key.decode().partition("/")
            yield f"assay.alert.state{f'.{kind}' if slash or kind == 'progress' else ''}", content
        case Role.AGENT_INPUTS:
            return
        case Role.AGENT_STATES:
            kind, slash, _ = key.decode().partition("/")
            name = "definition" if kind == "definition" else kind if not slash else ""
            yield f"assay.agent.state{f'.{name}' if name else ''}", content
        case Role.REJECTED:
            yield "assay.rejected.headers", {name: content for name, content in headers.items() if "error." in name}
            yield "assay.rejected.line", orjson.loads(rejected_line(output))
        case _:
            raise AssertionError(f"no schema is known for records of the role {output.role}")


def of_history(seed: int) -> Iterator[Output]:
    history = History(seed, 60)
    partitions = history.archive.partitions
    registries = [
        EngineState(producer=PRODUCER, limits=LIMITS, snapshot_partitions=partitions) for _ in range(partitions)
    ]
    join = EngineState(producer=PRODUCER)
    alerts = AlertTable(0, AlertRules(version=PRODUCER.version), now_us=lambda: 2**52)
    offset = 0
    for record in history.archive.records:
        state = join if record.role is Role.CALLS else registries[record.origin.partition]
        for output in engine.process(state, record):
            yield output
            offset += 1
            place = Origin("made", output.partition or 0 if output.role is Role.BINDINGS else 0, offset)
            again = Record(output.role, place, output.key, output.value, output.headers, output.timestamp_ms)
            if output.role is Role.BINDINGS:
                engine.process(join, again)
            elif output.role is Role.FINDINGS:
                raised = process_finding(alerts.alerts, again)
                yield from raised
                for alert in raised:
                    yield from _assigned(registries[0], alerts, alert, offset)
        yield from alerts.flush({TOPIC_NAMES[Role.FINDINGS]: offset})
    yield from alerts.punctuate()
    yield progress(topic="mcp.tools.list", partition=0, position=offset)


def _assigned(registry: EngineState, alerts: AlertTable, alert: Output, offset: int) -> Iterator[Output]:
    about = orjson.loads(alert.value or b"")
    data = {"server_id": about["unmapped"]["mcp_server_id"], "alert": about["finding_info"]["uid"], "assignee": "bob"}
    value = a_control("alert.assign", **data)
    key = data["server_id"].encode()
    for output in engine.process(registry, record_of(Role.CONTROL, value, key=key, offset=offset)):
        yield output
        if output.role is Role.FINDINGS:
            place = Origin("made", 0, offset)
            yield from process_finding(alerts.alerts, Record(output.role, place, output.key, output.value))


def of_agents(outputs: Iterable[Output]) -> Iterator[Output]:
    agent = Agent("witness", title="Seen")
    agent.definitions(lambda definition: definition["name"])

    def see(_event: Event[Any], memory: Memory) -> Iterator[Detection]:
        memory.state["seen"] = memory.state.get("seen", 0) + 1
        yield Detection()

    agent.evidence(key=lambda event: event.server_id)(see)
    agents = a_set(agent)
    rekeying, state = Rekeying(agents, partitions=1), AgentState(agents, 0, input_topic="internal")
    read: list[Output] = []
    for offset, output in enumerate(output for output in outputs if output.role in agents.roles):
        place = Origin("written", 0, offset)
        read += rekeying.process(Record(output.role, place, output.key, output.value, output.headers))
    for offset, output in enumerate(read):
        yield output
        yield from state.process(
            Record(output.role, Origin("internal", 0, offset), output.key, output.value, output.headers)
        )
    yield from state.flush({"internal": len(read)})


@cache
def written() -> dict[str, dict[bytes, Any]]:
    found: dict[str, dict[bytes, Any]] = defaultdict(dict)
    for seed in SEEDS:
        outputs = list(of_history(seed))
        for output in [*outputs, *of_agents(outputs)]:
            for name, content in named(output):
                if content is not None:
                    found[name][orjson.dumps(content)] = content
    accepted = write_accepted([mark_of("gw-1", "urn:assay-stream:observer:gw-1", "event-1")])
    found["assay.ingest.accepted"][accepted] = orjson.loads(accepted)
    joined = write_progress(JoinProgress(calls=1, rerouted=0))
    found["assay.call.progress"][joined] = orjson.loads(joined)
    finalised = write_level(2)
    found["assay.format"][finalised] = orjson.loads(finalised)
    fleet = Fleet(2)
    for partition in (0, 1, 0):
        fleet.grow(partition, 3)
        fleet.seal(partition)
    for sealed in (*fleet.chains[0], *fleet.chains[1]):
        found["assay.evidence.checkpoint"][encode(sealed)] = orjson.loads(encode(sealed))
        payload = sealed.checkpoint.payload()
        found["assay.evidence.checkpoint.payload"][payload] = orjson.loads(payload)
    return found


@pytest.mark.parametrize("name", sorted(OUTPUTS))
def test_what_is_written_satisfies_its_schema(name: str) -> None:
    schema = json.loads((FOLDER / f"{name}{SUFFIX}").read_text(encoding="utf-8"))
    validator = Draft202012Validator(schema)
    contents = written()[name].values()
    assert contents, "no history leads to such a record"
    for content in contents:
        problems = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(content)]
        assert not problems, content


def test_every_record_that_is_written_has_a_schema() -> None:
    assert written().keys() <= OUTPUTS.keys()
