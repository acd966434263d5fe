"""Laws of the comparison: nothing late gives no difference; what was late is named, and its cause can be shown."""

from __future__ import annotations

import random
from collections import Counter

import orjson
from hypothesis import assume, given
from hypothesis import strategies as st

from assay_stream.core.digest import canonicalize
from assay_stream.core.evidence import Producer
from assay_stream.core.record import Output, Record, Role
from assay_stream.forensics.compare import Comparison, Difference
from assay_stream.forensics.evidence_record import Recorded
from assay_stream.forensics.pairing import EVIDENCE, Pairing
from assay_stream.forensics.replay import replay
from assay_stream.schemes import assay
from tests.property.test_replay_laws import (
    FLEETS,
    LOGS,
    PRODUCER,
    Drawn,
    drawn_log,
    handed_in,
    in_time,
    live,
    logged,
)
from tests.support.fleet import Fleet


def written(outputs: list[Output]) -> list[bytes]:
    """The evidence among some outputs."""
    return [output.value or b"" for output in outputs if output.role is Role.EVIDENCE]


def compared(
    records: list[Record],
    values: list[bytes],
    alerts: list[bytes | None] | None = None,
    *,
    producer: Producer = PRODUCER,
    waiting_max: int = 50_000,
) -> tuple[Comparison, list[Difference]]:
    """A replay of some records held against recorded evidence."""
    comparison = Comparison(lambda: records, pairing=Pairing(EVIDENCE, waiting_max=waiting_max))
    again = replay(records, producer=producer, snapshot_partitions=2)
    evidence = (Recorded(f"line {number}", value) for number, value in enumerate(values))
    return comparison, list(comparison.differences(again, evidence, alerts))


def known_before(records: list[Record], difference: Difference) -> list[Record]:
    """The logs without what a difference says was left out, the call last."""
    left_out = {origin[:2]: origin.offset for origin in difference.left_out}
    kept = [
        record
        for record in records
        if record.role is not Role.CALLS and record.origin.offset < left_out.get(record.origin[:2], 2**63)
    ]
    return [*kept, *(record for record in records if record.origin == difference.call)]


@given(LOGS, st.randoms(use_true_random=False), st.integers(1, 4))
def test_where_nothing_was_late_nothing_differs(
    drawn: list[Drawn], choose: random.Random, waiting_max: int
) -> None:
    """In whatever order a run read its partitions, and a file holds its evidence, twice published or not."""
    records = drawn_log(drawn)
    values = written(live(in_time(records, choose), snapshot_partitions=2))
    choose.shuffle(values)
    comparison, found = compared(handed_in(records, choose), values, waiting_max=waiting_max)
    assert found == []
    assert comparison.identical["evidence"] == len(values)


@given(LOGS, st.randoms(use_true_random=False))
def test_what_was_late_is_named_and_shown(drawn: list[Drawn], choose: random.Random) -> None:
    """Exactly what a replay does not give differs, and each of it follows from the logs without what was late."""
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


@given(
    FLEETS, st.randoms(use_true_random=False), st.sampled_from(["altered", "hashed anew", "taken out", "twice"])
)
def test_what_somebody_did_to_a_record_is_named(fleet: Fleet, choose: random.Random, how: str) -> None:
    """An altered record, one taken out and one written twice are told from each other, and nothing else is."""
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
    """Evidence that differs in nothing but the version that wrote it was written by other software."""
    records = logged(fleet, snapshot_partitions=2, call_partitions=2)
    values = written(live(records, snapshot_partitions=2))
    comparison, found = compared(records, values, producer=Producer(version="2"))
    assert Counter(cause for difference in found for cause in difference.causes) == comparison.causes
    assert comparison.causes == Counter({"software_changed": len(values)} if values else {})


@given(FLEETS, st.randoms(use_true_random=False))
def test_alerts_are_compared_by_what_they_are_about(fleet: Fleet, choose: random.Random) -> None:
    """The same alerts are alike; one that is gone is missing, one whose tool is not its uid's is altered."""
    records = logged(fleet, snapshot_partitions=2, call_partitions=2)
    outputs = list(replay(records, producer=PRODUCER, snapshot_partitions=2))
    alerts = [output.value for output in outputs if output.role is Role.ALERTS]
    uids = sorted({orjson.loads(value or b"")["finding_info"]["uid"] for value in alerts})
    comparison, found = compared(records, written(outputs), list(alerts))
    assert found == []
    assert comparison.identical["alert"] == len(uids)
    assume(uids)
    lost = choose.choice(uids)
    kept = [value for value in alerts if lost.encode() not in (value or b"")]
    _, found = compared(records, written(outputs), list(kept))
    assert [(difference.record_id, difference.causes) for difference in found] == [(lost, ("missing_record",))]
    changed = [(value or b"").replace(b'"mcp_tool_name":"tool_', b'"mcp_tool_name":"fool_') for value in alerts]
    _, found = compared(records, written(outputs), list(changed))
    assert {difference.causes for difference in found} == {("altered_record",), ("missing_record",)}
