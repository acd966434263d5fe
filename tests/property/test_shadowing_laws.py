"""Laws of shadowing: how the claims of several servers are mixed changes nothing, nor who hands the logs in."""

from collections import Counter
from functools import cache
from typing import NamedTuple

import orjson
from hypothesis import given, strategies as st

from assay_stream.alerts.processor import apply_entry
from assay_stream.alerts.remembered import Alerts
from assay_stream.model.alert_state import AlertState
from assay_stream.model.evidence import Producer
from assay_stream.model.finding import NameClaim, decode_entry
from assay_stream.model.record import Origin, Output, Record, Role, murmur2_partition
from assay_stream.registry.name_claims import name_sketch
from assay_stream.registry.processor import Registry, process
from assay_stream.schemes.fingerprint import fingerprint
from tests.support.controls import a_control
from tests.support.events import TEN_O_CLOCK_MS, a_snapshot
from tests.support.findings import RULES, a_claim
from tests.support.replaying import replay

NAMES = ("read_file", "read-file", "re\u0430d_file", "list", "1ist")

claims = st.builds(
    a_claim,
    server_id=st.sampled_from(("a", "b", "c")),
    tool_name=st.sampled_from(NAMES),
    second=st.integers(0, 20),
    definition=st.sampled_from(("", "other")),
    is_offered=st.sampled_from((True, True, False)),
    approved=st.booleans(),
    added=st.booleans(),
    sketch=st.sampled_from(((), name_sketch(["a"]), name_sketch(["a", "b"]), name_sketch(["c"]))),
)


def open_alerts(log: list[NameClaim], partitions: int) -> set[tuple[str, int, str]]:
    found = set()
    for partition in range(partitions):
        alerts = Alerts(RULES)
        for offset, claim in enumerate(log):
            if murmur2_partition(claim.output().key or b"", partitions) == partition:
                place = Origin(topic="findings", partition=partition, offset=offset)
                apply_entry(alerts, claim, place=place)
        found |= {
            (uid, state.severity_id, state.last.server_id)
            for uid, state in alerts.states.items()
            if isinstance(state, AlertState) and state.resolved_us is None
        }
    return found


def folded(log: list[NameClaim], partitions: int) -> dict[str, AlertState]:
    found: dict[str, AlertState] = {}
    for partition in range(partitions):
        alerts = Alerts(RULES)
        for offset, claim in enumerate(log):
            if murmur2_partition(claim.output().key or b"", partitions) == partition:
                apply_entry(alerts, claim, place=Origin(topic="findings", partition=partition, offset=offset))
        found |= {uid: state for uid, state in alerts.states.items() if isinstance(state, AlertState)}
    return found


def unique(log: list[NameClaim]) -> list[NameClaim]:
    return list({claim.origin.offset: claim for claim in log}.values())


@given(log=st.lists(claims, max_size=12).map(unique), data=st.data())
def test_the_mixture_of_servers_changes_nothing(log: list[NameClaim], data: st.DataObject) -> None:
    """Each server's claims keep their order; nothing else does."""
    order = data.draw(st.permutations([claim.server_id for claim in log]))
    own = {name: iter([claim for claim in log if claim.server_id == name]) for name in set(order)}
    assert open_alerts([next(own[name]) for name in order], 1) == open_alerts(log, 1)


MANY = [f"tool_{number}" for number in range(60)]


@given(
    lists=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.sets(st.sampled_from(MANY))), max_size=4),
    partitions=st.integers(2, 9),
)
def test_what_is_folded_does_not_follow_from_the_partition_count(
    lists: list[tuple[str, int, set[str]]], partitions: int
) -> None:
    """Alerts that stand alone, members and folds are the same, states of alerts included."""
    log = [
        a_claim(server_id, name, second, definition=server_id)
        for server_id, second, names in lists
        for name in sorted(names)
    ]
    assert folded(log, partitions) == folded(log, 1)


@given(log=st.lists(claims, max_size=12).map(unique), partitions=st.integers(2, 9))
def test_the_partition_count_changes_nothing(log: list[NameClaim], partitions: int) -> None:
    assert open_alerts(log, partitions) == open_alerts(log, 1)


# --- from lists and decisions on ----------------------------------------------------------------------------

PRODUCER = Producer(version="1")
TOOLS = [
    {"name": name, "description": description, "inputSchema": {"type": "object"}}
    for name in ("read_file", "re\u0430d_file", "list")
    for description in ("Reads.", "Reads it.")
]


class Act(NamedTuple):
    server_id: str
    observer_id: str
    second: int
    tools: tuple[int, ...]
    is_complete: bool
    is_list: bool


ACTS = st.lists(
    st.builds(
        Act,
        server_id=st.sampled_from(("a", "b", "c")),
        observer_id=st.sampled_from(("proxy-1", "proxy-2")),
        second=st.integers(0, 50),
        tools=st.lists(st.integers(0, len(TOOLS) - 1), max_size=3, unique_by=lambda one: one // 2).map(tuple),
        is_complete=st.booleans(),
        is_list=st.sampled_from((True, True, True, False)),
    ),
    max_size=12,
)


@cache
def value_of(tool: int) -> str:
    return fingerprint(TOOLS[tool], server_id=None).schemes["assay.v1"]


def logged(acts: list[Act], partitions: int) -> list[Record]:
    records = []
    offsets: Counter[tuple[Role, int]] = Counter()
    for number, act in enumerate(acts):
        if act.is_list:
            role = Role.SNAPSHOTS
            value = a_snapshot(
                *(TOOLS[tool] for tool in act.tools),
                number=number,
                second=act.second,
                server_id=act.server_id,
                observer_id=act.observer_id,
                snapshot_id=f"list-{number}",
                completeness="complete" if act.is_complete else "partial",
            )
        else:
            role, tool = Role.CONTROL, (act.tools or (0,))[0]
            pin = {"tool_name": TOOLS[tool]["name"], "scheme": "assay.v1", "value": value_of(tool)}
            value = a_control("pin.set", number=number, second=act.second, server_id=act.server_id, **pin)
        partition = murmur2_partition(act.server_id.encode(), partitions)
        origin = Origin(topic=role.value, partition=partition, offset=offsets[role, partition])
        offsets[role, partition] += 1
        timestamp_ms = TEN_O_CLOCK_MS + 1_000 * act.second
        records.append(
            Record(role=role, origin=origin, key=act.server_id.encode(), value=value, timestamp_ms=timestamp_ms)
        )
    return records


def claimed(outputs: list[Output]) -> list[NameClaim]:
    entries = [decode_entry(output.value) for output in outputs if output.role is Role.FINDINGS]
    return [entry for entry in entries if isinstance(entry, NameClaim)]


def live(acts: list[Act], partitions: int) -> set[tuple[str, int, str]]:
    registries = {number: Registry(producer=PRODUCER, partitions=partitions) for number in range(partitions)}
    outputs = []
    for record in logged(acts, partitions):
        outputs += process(registries[record.origin.partition], record)
    assert not [output for output in outputs if output.role is Role.REJECTED]
    return open_alerts(claimed(outputs), partitions)


@given(acts=ACTS, partitions=st.integers(1, 3))
def test_a_replay_gives_what_stands_open_live(acts: list[Act], partitions: int) -> None:
    outputs = list(replay(logged(acts, partitions), producer=PRODUCER, snapshot_partitions=partitions))
    still_open = open_alerts(claimed(outputs), 1)
    assert still_open == live(acts, partitions) == live(acts, 1)
    bodies = [orjson.loads(output.value or b"") for output in outputs if output.role is Role.ALERTS]
    told = {
        (body["finding_info"]["uid"], body["severity_id"], body["unmapped"]["mcp_server_id"])
        for body in bodies
        if body["finding_info"]["types"] == ["tool_shadowed"]
    }
    assert still_open <= told
