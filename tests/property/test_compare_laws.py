"""Laws of the comparison: nothing late gives no difference; what was late is named, and its cause can be shown."""

import random
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from operator import attrgetter
from typing import Any

import orjson
from hypothesis import assume, given, strategies as st

from assay_stream.canonical.digest import canonicalize
from assay_stream.model.evidence import Producer
from assay_stream.model.finding import Tick
from assay_stream.model.record import Origin, Output, Record, Role
from assay_stream.replay.run import Replay
from assay_stream.schemes import assay_tool as assay
from assay_stream.verify.compare import ReplayComparison
from assay_stream.verify.evidence import Difference, Pairing, Recorded
from tests.property.test_engine_laws import PARTITIONS, Logs, live as deployed, logs
from tests.property.test_replay_laws import (
    CALLED,
    FLEETS,
    LOGS,
    PINNED,
    PRODUCER,
    SEEN,
    Drawn,
    drawn_log,
    handed_in,
    in_time,
    live,
    logged,
)
from tests.support import engine
from tests.support.engine import EngineState
from tests.support.fleet import START, Fleet
from tests.support.replaying import replay, spooled


def written(outputs: list[Output]) -> list[bytes]:
    return [output.value or b"" for output in outputs if output.role is Role.EVIDENCE]


def compared(
    records: list[Record],
    values: list[bytes],
    alerts: list[bytes | None] | None = None,
    *,
    producer: Producer = PRODUCER,
    waiting_max: int = 50_000,
    snapshot_partitions: int = 2,
) -> tuple[ReplayComparison, list[Difference]]:
    pairing = Pairing(attrgetter("call"), waiting_max=waiting_max)
    comparison = ReplayComparison(lambda: records, pairing=pairing, snapshot_partitions=snapshot_partitions)
    evidence = (Recorded(f"line {number}", value) for number, value in enumerate(values))
    with spooled(records) as spool:
        made = Replay(spool, producer=producer, snapshot_partitions=snapshot_partitions)
        found = comparison.differences(
            chain.from_iterable(made.steps()),
            evidence,
            alerts,
            lambda until_us: chain.from_iterable(made.advance_time(until_us)),
        )
        return comparison, list(found)


def known_before(records: list[Record], difference: Difference) -> list[Record]:
    left_out = {origin[:2]: origin.offset for origin in difference.left_out}
    kept = [
        record
        for record in records
        if record.role is not Role.CALLS and record.origin.offset < left_out.get(record.origin[:2], 2**63)
    ]
    return [*kept, *(record for record in records if record.origin == difference.call)]


@given(LOGS, st.randoms(use_true_random=False), st.integers(1, 4))
def test_where_nothing_was_late_nothing_differs(drawn: list[Drawn], choose: random.Random, waiting_max: int) -> None:
    records = drawn_log(drawn)
    values = written(live(in_time(records, choose), snapshot_partitions=2))
    choose.shuffle(values)
    comparison, found = compared(handed_in(records, choose), values, waiting_max=waiting_max)
    assert found == []
    assert comparison.identical["evidence"] == len(values)


@given(logs(), st.frozensets(st.integers(0, 21), max_size=4), st.randoms(use_true_random=False))
def test_a_run_of_workers_that_die_and_come_back_has_no_differences(
    made: Logs, restarts: frozenset[int], choose: random.Random
) -> None:
    outputs = deployed(made.records, restarts=restarts)
    given_twice = choose.sample(made.records, min(3, len(made.records)))
    records = handed_in([*made.records, *given_twice], choose)
    evidence = written(outputs)
    choose.shuffle(evidence)
    comparison, found = compared(records, evidence, alerts_of(outputs), snapshot_partitions=PARTITIONS)
    assert [difference for difference in found if difference.counts] == []
    assert comparison.identical["evidence"] == len(evidence)


@given(LOGS, st.randoms(use_true_random=False))
def test_what_was_late_is_named_and_shown(drawn: list[Drawn], choose: random.Random) -> None:
    records = drawn_log(drawn)
    values = written(live(handed_in(records, choose), snapshot_partitions=2))
    again = set(written(list(replay(records, producer=PRODUCER, snapshot_partitions=2))))
    differing = {Recorded("", value).call: value for value in values if value not in again}
    comparison, found = compared(records, values)
    assert {difference.call for difference in found} == differing.keys()
    assert comparison.identical["evidence"] == len(values) - len(differing)
    for difference in found:
        topics = {origin.topic for origin in difference.left_out}
        causes = {Role.SNAPSHOTS.value: "late_snapshot", Role.CONTROL.value: "pin_changed"}
        assert difference.causes == tuple(sorted(causes[topic] for topic in topics))
        shown = written(live(known_before(records, difference), snapshot_partitions=2))
        assert shown == [differing[difference.call]]


@given(FLEETS, st.randoms(use_true_random=False), st.sampled_from(["altered", "hashed anew", "taken out", "twice"]))
def test_what_somebody_did_to_a_record_is_named(fleet: Fleet, choose: random.Random, how: str) -> None:
    records = logged(fleet, snapshot_partitions=2, call_partitions=2)
    values = written(live(records, snapshot_partitions=2))
    assume(values)
    number = choose.randrange(len(values))
    content = orjson.loads(values[number])
    call = Recorded("", values[number]).call
    content["data"]["decision"] = "deny"
    if how == "hashed anew":
        content["assaycontenthash"] = str(assay.content_hash(content))
    match how:
        case "taken out":
            del values[number]
        case "twice":
            values.append(values[number])
        case _:
            values[number] = canonicalize(content)
    _, found = compared(records, values)
    expected = {"taken out": "missing_record", "twice": "unexpected_record"}.get(how, "altered_record")
    assert [(difference.call, difference.causes) for difference in found] == [(call, (expected,))]


@given(FLEETS)
def test_another_version_is_told_as_such(fleet: Fleet) -> None:
    records = logged(fleet, snapshot_partitions=2, call_partitions=2)
    values = written(live(records, snapshot_partitions=2))
    comparison, found = compared(records, values, producer=Producer(version="2"))
    assert Counter(cause for difference in found for cause in difference.causes) == comparison.causes
    assert comparison.causes == Counter({"software_changed": len(values)} if values else {})


def alerts_of(outputs: list[Output]) -> list[bytes | None]:
    return [output.value for output in outputs if output.role is Role.ALERTS]


THREE_DAYS_LATER_US = int(START.timestamp() + 3 * 86_400) * 1_000_000


def uid_in(value: bytes | None) -> str:
    return str(orjson.loads(value or b"")["finding_info"]["uid"])


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        for name, member in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(member, (*path, name))
    else:
        yield path


def altered(value: bytes, choose: random.Random) -> bytes:
    content = orjson.loads(value)
    *way, last = choose.choice(sorted(leaves(content), key=str))
    holder = content
    for name in way:
        holder = holder[name]
    was = holder[last]
    if isinstance(was, bool):
        holder[last] = not was
    elif isinstance(was, int):
        holder[last] = was + choose.choice([-1, 1, 1_000])
    else:
        holder[last] = was[:-1] if was and choose.random() < 0.5 else f"{was}x"
    return canonicalize(content)


@given(LOGS, st.randoms(use_true_random=False))
def test_a_replay_compared_with_itself_has_no_differences(drawn: list[Drawn], choose: random.Random) -> None:
    records = drawn_log(drawn)
    with spooled(records) as spool:
        made = Replay(spool, producer=PRODUCER, snapshot_partitions=2)
        outputs = [output for written in made.steps() for output in written]
        later = [output for written in made.advance_time(THREE_DAYS_LATER_US) for output in written]
    alerts = [value for value in alerts_of([*outputs, *later]) for _ in range(choose.choice([1, 1, 2]))]
    comparison, found = compared(handed_in(records, choose), written(outputs), alerts)
    assert found == []
    assert comparison.identical["alert"] == len(set(map(uid_in, alerts)))


@given(LOGS, st.randoms(use_true_random=False), st.sampled_from(["altered", "taken out", "put in", "reordered"]))
def test_each_single_alteration_of_an_alert_record_is_named(
    drawn: list[Drawn], choose: random.Random, how: str
) -> None:
    records = drawn_log(drawn)
    outputs = list(replay(records, producer=PRODUCER, snapshot_partitions=2))
    alerts = alerts_of(outputs)
    assume(alerts)
    number = choose.randrange(len(alerts))
    value = alerts[number] or b""
    named = {uid_in(value)}
    expected = {"altered_record", "missing_record", "order_of_reading"}
    match how:
        case "altered":
            alerts[number] = altered(value, choose)
            if orjson.loads(alerts[number] or b"")["metadata"] != orjson.loads(value)["metadata"]:
                expected |= {"software_changed"}
        case "taken out":
            del alerts[number]
            expected = {"missing_record"} | ({"order_of_reading"} if b"tool_shadowed" in value else set())
        case "put in":
            content = orjson.loads(value)
            content["unmapped"]["mcp_server_id"] = "server-9"
            alerts.insert(number, canonicalize(content))
            expected = {"altered_record"}
        case _:
            same = [place for place, other in enumerate(alerts) if uid_in(other) in named]
            assume(len(same) > 1)
            one, other = choose.sample(same, 2)
            alerts[one], alerts[other] = alerts[other], alerts[one]
            expected = {"altered_record"}
    comparison, found = compared(records, written(outputs), alerts)
    assert found
    assert {difference.what for difference in found} == {"alert"}
    others = set(map(uid_in, alerts_of(outputs))) - named
    assert others.isdisjoint(difference.record_id for difference in found)
    assert {cause for difference in found for cause in difference.causes} <= expected
    assert comparison.causes.total() == len(found)


@given(FLEETS)
def test_alerts_of_another_version_are_told_as_such(fleet: Fleet) -> None:
    records = logged(fleet, snapshot_partitions=2, call_partitions=2)
    outputs = list(replay(records, producer=PRODUCER, snapshot_partitions=2))
    _, found = compared(records, [], alerts_of(outputs), producer=Producer(version="2"))
    of_alerts = [difference.causes for difference in found if difference.what == "alert"]
    assert of_alerts == [("software_changed",)] * len(set(map(uid_in, alerts_of(outputs))))


@given(LOGS, st.randoms(use_true_random=False))
def test_alerts_of_a_live_run_in_any_order_are_no_difference(drawn: list[Drawn], choose: random.Random) -> None:
    """Where nothing was late, alerts follow from the logs; what the order of reading decides is told as that.

    Without pins: a decision that is read after the lists of its time has come late for alerts about them. And each
    server in one partition: what is found of one in two is in the order of reading, whatever it is.
    """
    records = drawn_log(
        [
            (kind, server, observer, minute, detail, second if kind.endswith("call") else bool(server))
            for kind, server, observer, minute, detail, second in drawn
            if kind != "pin"
        ]
    )
    outputs = live(in_time(records, choose), snapshot_partitions=2)
    comparison, found = compared(handed_in(records, choose), written(outputs), raised_from(outputs, choose))
    assert [difference for difference in found if difference.counts] == []
    assert set(comparison.causes) <= {"order_of_reading"}


@given(st.lists(st.one_of(SEEN, SEEN, CALLED, PINNED), max_size=14), st.randoms(use_true_random=False))
def test_when_a_reason_joined_an_alert_is_no_difference(drawn: list[Drawn], choose: random.Random) -> None:
    """A decision that is read after the lists of its time, or long after them, joins the alerts about them.

    One for each server: of two the live run judges some lists by the other one. And none at the time of a list: whether
    that replaced what the decision is about before or after it is told by the order alone.
    """
    listed = {(server, minute) for kind, server, _, minute, *_ in drawn if kind == "list"}
    first = {
        server: number
        for number, (kind, server, _, minute, *_) in reversed([*enumerate(drawn)])
        if kind == "pin" and (server, minute) not in listed
    }
    records = drawn_log(
        [
            (kind, server, observer, minute, detail, second if kind == "call" else bool(server))
            for number, (kind, server, observer, minute, detail, second) in enumerate(drawn)
            if kind != "pin" or first.get(server) == number
        ]
    )
    ordered = in_time(records, choose)
    pins = [record for record in ordered if record.role is Role.CONTROL]
    for pin in pins:
        ordered.remove(pin)
        earlier = [
            n for n, other in enumerate(ordered, 1) if other.role is Role.SNAPSHOTS and not is_before(pin, other)
        ]
        ordered.insert(choose.randint(max(earlier, default=0), len(ordered)), pin)
    outputs = live(ordered, snapshot_partitions=2)
    alerts = raised_from(outputs, choose)
    _, found = compared(handed_in(records, choose), written(outputs), alerts)
    assert [difference for difference in found if difference.counts and difference.what == "alert"] == []


def is_before(record: Record, other: Record) -> bool:
    return event_time_of(record) < event_time_of(other)


def event_time_of(record: Record) -> str:
    return str(orjson.loads(record.value or b"")["time"])


def raised_from(outputs: list[Output], choose: random.Random) -> list[bytes | None]:
    state = EngineState(producer=PRODUCER)
    findings = [output for output in outputs if output.role is Role.FINDINGS]
    of_calls = [output for output in findings if output.label.endswith(("unlisted_tool", "tool_called"))]
    entries = [output for output in findings if output not in of_calls]
    for output in of_calls:
        entries.insert(choose.randrange(len(entries) + 1), output)
    values = [output.value or b"" for output in entries]
    ticked_us = max((event_time_us_of(value) for value in values), default=0)
    alerts: list[bytes | None] = []
    for offset, value in enumerate([*values, Tick(time_us=ticked_us).encode()]):
        place = Origin(topic="findings", partition=0, offset=offset)
        record = Record(role=Role.FINDINGS, origin=place, key=b"k", value=value)
        alerts += alerts_of(engine.process(state, record))
    return alerts


def event_time_us_of(value: bytes) -> int:
    return int(orjson.loads(value)["time_us"])
