"""Laws of the engine as a whole: a deployment of stages is the same function of its logs, however it runs."""

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import orjson
import rfc8785
from hypothesis import given, strategies as st

from assay_stream.model.evidence import Producer
from assay_stream.model.record import TOPIC_NAMES, Origin, Output, Record, Role, murmur2_partition
from assay_stream.schemes import assay_tool as assay
from tests.support import engine
from tests.support.controls import a_control
from tests.support.engine import EngineState, evidence_by_partition
from tests.support.events import TOOL, an_event, call_data, snapshot_data
from tests.support.replaying import replay

PRODUCER = Producer(version="1")
START_MS = 1_772_359_200_000
SERVERS = ("server-a", "server-b", "server-c")
LISTS: tuple[list[dict[str, Any]], ...] = (
    [],
    [TOOL],
    [{**TOOL, "description": "Read a file, then send it away"}],
    [TOOL, {"name": "write_file", "inputSchema": {"type": "object"}}],
    [TOOL, {**TOOL, "title": "again"}],
    [{"name": "read_file", "inputSchema": "no object"}],
)
GARBAGE = (None, b"", b"{", b"\xff", b"[]", b'{"a":1,"a":2}', b'{"x":NaN}')
PARTITIONS = 3


@dataclass
class Logs:
    records: list[Record] = field(default_factory=list)
    offsets: Counter[tuple[Role, int]] = field(default_factory=Counter)

    def publish(self, role: Role, partition: int, key: bytes | None, value: bytes | None) -> None:
        place = Origin(topic=TOPIC_NAMES[role], partition=partition, offset=self.offsets[role, partition])
        self.offsets[role, partition] += 1
        now_ms = START_MS + self.now * 1_000
        self.records.append(Record(role=role, origin=place, key=key, value=value, timestamp_ms=now_ms))

    @property
    def now(self) -> int:
        return len(self.records)

    def of(self, *roles: Role) -> list[Record]:
        return [record for record in self.records if record.role in roles]


def a_pin(number: int, server: str, value: str | None) -> bytes:
    given = {"server_id": server, "tool_name": "read_file", "scheme": "assay.v1", "value": value}
    return a_control("pin.remove" if value is None else "pin.set", number=number, second=number, **given)


@st.composite
def logs(draw: st.DrawFn, max_size: int = 22) -> Logs:
    made = Logs()
    for number in range(draw(st.integers(0, max_size))):
        server = draw(st.sampled_from(SERVERS))
        observer = draw(st.sampled_from(["proxy-1", "proxy-2"]))
        own = murmur2_partition(server.encode(), PARTITIONS)
        match draw(st.integers(0, 9)):
            case 0 | 1 | 2:
                data = snapshot_data(
                    *draw(st.sampled_from(LISTS)),
                    server_id=server,
                    observer_id=observer,
                    snapshot_id=f"snapshot-{number}",
                    completeness=draw(st.sampled_from(["complete", "partial", "unknown"])),
                    server_scoped=draw(st.booleans()),
                )
                # Now and then a producer that partitions otherwise.
                partition = draw(st.sampled_from([own, own, own, (own + 1) % PARTITIONS]))
                value = an_event(Role.SNAPSHOTS, number, number, data)
                made.publish(Role.SNAPSHOTS, partition, server.encode(), value)
            case 3:
                value = a_pin(number, server, draw(st.sampled_from([None, "0" * 64, "f" * 64])))
                made.publish(Role.CONTROL, own, server.encode(), value)
            case 4:
                role = draw(st.sampled_from([Role.SNAPSHOTS, Role.CONTROL, Role.CALLS]))
                made.publish(role, own, server.encode(), draw(st.sampled_from(GARBAGE)))
            case _:
                earlier = [json.loads(r.value or b"0") for r in made.of(Role.SNAPSHOTS) if r.value not in GARBAGE]
                named = draw(st.none() | st.sampled_from(earlier)) if earlier else None
                data = call_data(
                    server_id=server,
                    observer_id=draw(st.sampled_from(["proxy-1", "proxy-2", "proxy-3"])),
                    tool_name=draw(st.sampled_from(["read_file", "write_file", "ghost"])),
                    tool_call_id=f"call-{number}",
                    **({} if named is None else {"snapshot_id": named["data"]["snapshot_id"]}),
                )
                made.publish(Role.CALLS, draw(st.integers(0, 2)), None, an_event(Role.CALLS, number, number, data))
    return made


class Deployment:
    def __init__(self) -> None:
        self.registries = [a_state() for _ in range(PARTITIONS)]
        self.bindings: list[Record] = []
        self.join = a_state()
        self.alerts = a_state()
        self.findings = 0
        self.written: list[Output] = []

    def take(self, record: Record) -> None:
        state = self.join if record.role is Role.CALLS else self.registries[record.origin.partition]
        for output in engine.process(state, record):
            if output.role is Role.BINDINGS:
                fact = self._read_back(output, len(self.bindings))
                self.bindings.append(fact)
                engine.process(self.join, fact)
                continue
            self.written.append(output)
            if output.role is Role.FINDINGS:
                self.written += engine.process(self.alerts, self._read_back(output, self.findings))
                self.findings += 1

    def restart(self) -> None:
        # Compaction knows keys within a partition only.
        last = {(fact.origin.partition, fact.key): index for index, fact in enumerate(self.bindings)}
        kept = [fact for index, fact in enumerate(self.bindings) if last[fact.origin.partition, fact.key] == index]
        self.join = a_state()
        self.registries = [a_state() for _ in range(PARTITIONS)]
        for fact in kept:
            engine.process(self.join, fact)
            self.registries[fact.origin.partition].registry.bindings.take(fact)

    @staticmethod
    def _read_back(output: Output, offset: int) -> Record:
        place = Origin(topic=TOPIC_NAMES[output.role], partition=output.partition or 0, offset=offset)
        return Record(role=output.role, origin=place, key=output.key, value=output.value)


def a_state() -> EngineState:
    return EngineState(producer=PRODUCER, snapshot_partitions=PARTITIONS)


def live(records: list[Record], *, restarts: frozenset[int] = frozenset()) -> list[Output]:
    deployment = Deployment()
    for number, record in enumerate(records):
        if number in restarts:
            deployment.restart()
        deployment.take(record)
    return deployment.written


def written(outputs: list[Output], role: Role) -> list[Output]:
    return sorted((output for output in outputs if output.role is role), key=repr)


def assert_same(one: list[Output], other: list[Output]) -> None:
    assert evidence_by_partition(one) == evidence_by_partition(other)
    for role in (Role.FINDINGS, Role.REJECTED, Role.DEFINITIONS):
        assert written(one, role) == written(other, role)


def alert_contents(outputs: list[Output]) -> dict[str, tuple[int, int, int]]:
    """Of every alert by uid: the highest count, the first and the last time seen."""
    found: dict[str, tuple[int, int, int]] = {}
    for output in written(outputs, Role.ALERTS):
        told = orjson.loads(output.value or b"")
        info = told["finding_info"]
        content = (told["count"], info["first_seen_time"], info["last_seen_time"])
        found[info["uid"]] = max(found.get(info["uid"], content), content)
    return found


@given(logs())
def test_a_replay_is_the_live_run_bad_records_and_all(made: Logs) -> None:
    was = live(made.records)
    again = list(replay(made.records, producer=PRODUCER, snapshot_partitions=PARTITIONS))
    assert_same(again, was)
    assert alert_contents(again) == alert_contents(was)


@given(logs(), st.frozensets(st.integers(0, 21), max_size=4))
def test_restarts_change_nothing(made: Logs, restarts: frozenset[int]) -> None:
    assert_same(live(made.records, restarts=restarts), live(made.records))


@given(logs(), st.data())
def test_calls_joined_late_give_the_same_evidence(made: Logs, data: st.DataObject) -> None:
    """A call that names no snapshot gives the same bytes joined at once, and after lists made later than it."""
    calls = [r for r in made.of(Role.CALLS) if r.value in GARBAGE or b'"snapshot_id"' not in (r.value or b"")]
    at_once = [record for record in made.records if record.role is not Role.CALLS or record in calls]
    cut = data.draw(st.integers(0, len(at_once)))
    held = [record for record in at_once[:cut] if record.role is Role.CALLS]
    late = [record for record in at_once[:cut] if record.role is not Role.CALLS]
    rest = at_once[cut:]
    upstream = [record for record in rest if record.role is not Role.CALLS]
    later = [*late, *upstream, *held, *(record for record in rest if record.role is Role.CALLS)]
    assert evidence_by_partition(live(later)) == evidence_by_partition(live(at_once))


@given(logs())
def test_every_input_record_is_accounted_for_once(made: Logs) -> None:
    told = live(made.records)
    ended = Counter[tuple[str, int, int]]()
    for output in told:
        if output.role is Role.REJECTED:
            where = dict(output.headers)
            place = (where["error.topic"], where["error.partition"], where["error.offset"])
            ended[place[0].decode(), int(place[1]), int(place[2])] += 1
        elif output.role is Role.EVIDENCE:
            origin = orjson.loads(output.value or b"")["data"]["origin"]
            ended[origin["topic"], origin["partition"], origin["offset"]] += 1
    calls = {tuple(record.origin) for record in made.of(Role.CALLS)}
    refused = {tuple(record.origin) for record in made.records if record.value in GARBAGE}
    assert set(ended) == calls | refused
    assert set(ended.values()) <= {1}


@given(logs())
def test_every_record_of_evidence_can_be_checked_by_hand(made: Logs) -> None:
    """Its bytes are JCS, its content hash is the scheme's own, and its origins lead to the records it names."""
    by_place = {tuple(record.origin): record for record in made.records}
    for output in written(live(made.records), Role.EVIDENCE):
        value = output.value or b""
        event = json.loads(value)
        assert rfc8785.dumps(event) == value
        assert event["assaycontenthash"] == str(assay.content_hash(event))
        payload = event["data"]
        call = json.loads(by_place[tuple(Origin(**payload["origin"]))].value or b"")
        assert (payload["tool"], payload["tool_call_id"]) == (call["data"]["tool_name"], call["data"]["tool_call_id"])
        if "origin" in payload["binding"]:
            listed = json.loads(by_place[tuple(Origin(**payload["binding"]["origin"]))].value or b"")["data"]
            assert payload["binding"]["snapshot_id"] == listed["snapshot_id"]
            assert payload["server_id"] == listed["server_id"]
        if "tool_definition_digest" in payload:
            scope = payload["server_id"] if listed["server_scoped"] else None
            digests = {
                str(assay.definition_digest(tool, server_id=scope))
                for tool in listed["tools"]
                if tool["name"] == payload["tool"]
            }
            assert digests == {payload["tool_definition_digest"]}


@given(logs(), st.integers(1, 3))
def test_records_delivered_again_change_no_evidence(made: Logs, times: int) -> None:
    again = Logs()
    shifted: dict[tuple[str, int, int], int] = {}
    for record in made.records:
        copies = 1 + times if record.role is Role.SNAPSHOTS and record.value not in GARBAGE else 1
        for copy in range(copies):
            offset = again.offsets[record.role, record.origin.partition]
            again.offsets[record.role, record.origin.partition] += 1
            if copy == 0:
                shifted[record.origin.topic, record.origin.partition, offset] = record.origin.offset
            again.records.append(record._replace(origin=record.origin._replace(offset=offset)))
    one, other = (
        [_at_first_place(output, places) for output in live(records) if output.role is Role.EVIDENCE]
        for records, places in ((again.records, shifted), (made.records, None))
    )
    assert one == other


def _at_first_place(output: Output, shifted: dict[tuple[str, int, int], int] | None) -> dict[str, object]:
    """The data of evidence, with offsets as they are without the copies."""
    payload: dict[str, object] = orjson.loads(output.value or b"")["data"]
    binding = payload["binding"]
    if shifted is not None and isinstance(binding, dict) and "origin" in binding:
        origin = binding["origin"]
        origin["offset"] = shifted[origin["topic"], origin["partition"], origin["offset"]]
    return payload
