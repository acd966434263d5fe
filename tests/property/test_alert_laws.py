"""Laws of the alerts: findings counted once, and records that follow from the log, however often time arrives."""

import json
import math
from collections.abc import Iterable
from itertools import cycle, pairwise
from typing import Any, get_args

import jsonschema
from hypothesis import given, strategies as st
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema

from assay_stream.alerts.processor import apply_entry, process
from assay_stream.alerts.remembered import Alerts, AlertTable, Remembered, state_json, state_of
from assay_stream.model.alert import OCSF_VERSION
from assay_stream.model.alert_state import AlertState
from assay_stream.model.fields import TriageAct
from assay_stream.model.finding import AlertAct, Entry, Finding, Resolution, Suppression, Tick
from assay_stream.model.kinds import Kind
from assay_stream.model.record import TOPIC_NAMES, Origin, Output, Record, Role
from tests.support.findings import PACING, RULES, a_finding, a_rule, an_end, at, body, place

DIGESTS = st.sampled_from([None, "sha256:" + "a" * 64, "sha256:" + "b" * 64])
OBSERVERS = ("alice", "bob", "carol")
OCSF = jsonschema.Draft202012Validator(
    OcsfJsonSchemaEmbedded(get_ocsf_schema(version=OCSF_VERSION)).get_class_schema(class_name="detection_finding")
)
Placed = tuple[int, Entry]


@st.composite
def any_findings(draw: st.DrawFn) -> Finding:
    return Finding(
        kind=draw(st.sampled_from(Kind)),
        server_id=draw(st.text(min_size=1, max_size=20)),
        tool_name=draw(st.none() | st.text(min_size=1, max_size=20)),
        observer_id=draw(st.none() | st.text(min_size=1, max_size=20)),
        time_us=draw(st.integers(0, 4_102_444_800_000_000)),
        origin=Origin(topic="mcp.tools.list", partition=draw(st.integers(0, 9)), offset=draw(st.integers(0, 9))),
        snapshot_id=draw(st.none() | st.text(min_size=1, max_size=20)),
        before=draw(DIGESTS),
        after=draw(DIGESTS),
        changed_fields=draw(st.lists(st.text(max_size=8), max_size=3).map(tuple)),
        known=draw(st.booleans()),
        reason=draw(st.none() | st.sampled_from(["not_json", "too_large"])),
    )


_ABOUT_IT = (Kind.TOOL_CHANGED, Kind.TOOL_CHANGED, Kind.PIN_MISMATCH, Kind.RISK_LEVEL_CHANGED)
"""Kinds of findings that make one alert about a definition."""


@st.composite
def lives(draw: st.DrawFn, *, plain: bool = False) -> list[Entry]:
    """What may happen to two alerts of a server, in the order of event time; some records are read twice.

    Plain lives have one kind of finding for each alert, and nobody acts on them.
    """
    second = 0
    entries: list[Entry] = []
    kinds = _ABOUT_IT[:1] if plain else _ABOUT_IT
    acts = [] if plain else ["act"]
    for offset in range(draw(st.integers(1, 25))):
        second += draw(st.sampled_from([0, 0, 1, 5, 15, 50, 100, 700]))
        tool = draw(st.sampled_from(["tool", "call"]))
        observer = draw(st.sampled_from([None, *OBSERVERS]))
        found = a_finding(
            offset,
            second,
            tool_name=tool,
            observer_id=observer,
            kind=draw(st.sampled_from(kinds)) if tool == "tool" else Kind.CALL_TO_UNLISTED_TOOL,
            known=draw(st.sampled_from([False, False, True])),
            changed_fields=draw(st.sampled_from([("title",), ("description",)])),
        )
        what = draw(st.sampled_from(["found", "found", "found", "end", "decided", "rule", "again", *acts]))
        if what == "found":
            entries.append(found)
        elif what == "end":
            everywhere = draw(st.booleans()) and observer is not None
            entries.append(
                an_end(offset, second, uids=(found.uid(),), observer_id=observer or "alice", everywhere=everywhere)
            )
        elif what == "decided":
            entries.append(an_end(offset, second, uids=(found.uid(),), observer_id=None, reason="decided"))
        elif what == "act":
            act = draw(st.sampled_from(get_args(TriageAct)))
            said = AlertAct(
                server_id="server",
                alert=found.uid(),
                act=act,
                author="ann",
                reason="seen",
                time_us=at(second),
                origin=place(offset, topic="assay.control"),
            )
            entries.append(said)
        elif what == "rule":
            rule = a_rule(field=draw(st.sampled_from([None, "title"])))
            entries.append(Suppression(rule=rule, is_set=draw(st.booleans()), time_us=at(second)))
        elif entries:
            entries.append(draw(st.sampled_from(entries)))
    return entries


def in_log(entries: Iterable[Entry]) -> list[Placed]:
    return list(enumerate(entries))


def as_stored(key: str, state: Remembered) -> Remembered:
    return state_of(key, json.loads(json.dumps(state_json(state))))


def run(states: dict[str, Any], log: Iterable[Placed]) -> list[Output]:
    alerts = Alerts(RULES, states)
    outputs = []
    for offset, entry in log:
        place_ = Origin(topic="findings", partition=0, offset=offset)
        outputs += apply_entry(alerts, entry, place=place_)
        states.update((key, as_stored(key, state)) for key, state in list(states.items()))
    return outputs


def time_of(entry: Entry) -> int:
    return entry.time_us


def with_ticks(entries: list[Entry], ticks: list[int]) -> list[Entry]:
    mixed: list[Entry] = []
    pending = sorted(ticks)
    now_us = 0
    for entry in entries:
        now_us = max(now_us, time_of(entry))
        while pending and pending[0] <= now_us:
            mixed.append(Tick(time_us=pending.pop(0)))
        mixed.append(entry)
    return [*mixed, *(Tick(time_us=time_us) for time_us in pending)]


TICKS = st.lists(st.integers(0, 4_000).map(at), max_size=12)


def by_uid(outputs: list[Output]) -> dict[str, list[Output]]:
    found: dict[str, list[Output]] = {}
    for output in outputs:
        found.setdefault(body(output)["finding_info"]["uid"], []).append(output)
    return found


@given(any_findings())
def test_every_alert_is_an_ocsf_detection_finding(finding: Finding) -> None:
    later = Tick(time_us=finding.time_us + 2 * PACING.repeat_interval_us)
    end = Resolution(
        server_id=finding.server_id,
        uids=(finding.uid(),),
        reason="decided",
        observer_id=None,
        time_us=later.time_us,
        origin=place(100, topic="control"),
    )
    outputs = run({}, in_log([finding, later, end, Tick(time_us=later.time_us + PACING.settle_us)]))
    assert bool(outputs) is (not finding.known or RULES.severity(finding) >= 4)
    for output in outputs:
        OCSF.validate(body(output))
        assert body(output)["severity_id"] == RULES.severity(finding)


@given(lives(), TICKS, st.data())
def test_a_repeat_after_a_crash_changes_nothing_and_gives_the_same_bytes(
    entries: list[Entry], ticks: list[int], data: st.DataObject
) -> None:
    """A log read again from any earlier place, from the states as stored, ends in the same states; what is written
    behind the crash is the same, and of what lay before it nothing new is."""
    log = in_log(with_ticks(entries, ticks))
    undisturbed: dict[str, Any] = {}
    expected = run(undisturbed, log)
    crash = data.draw(st.integers(0, len(log)))
    behind = data.draw(st.integers(0, crash))
    states: dict[str, Any] = {}
    before = run(states, log[:crash])
    after = run(states, log[behind:])
    assert states == undisturbed
    assert before + after == expected


@given(lives(), TICKS, st.lists(st.integers(1, 6), min_size=1))
def test_a_table_restored_after_any_batch_goes_on_as_if_it_had_never_stopped(
    entries: list[Entry], ticks: list[int], sizes: list[int]
) -> None:
    """Whoever takes over reads what was written with each batch, and writes what one table alone would have."""
    log = in_log(with_ticks(entries, ticks))
    expected = run({}, log)
    topic: dict[bytes | None, Record] = {}
    outputs: list[Output] = []
    size = cycle(sizes)
    done = 0
    while done < len(log):
        table = AlertTable(0, RULES)
        for record in topic.values():
            table.restore(record)
        assert table.restored() == {TOPIC_NAMES[Role.FINDINGS]: done or None}
        batch = log[done : done + next(size)]
        for offset, entry in batch:
            outputs += process(table.alerts, as_read(offset, entry))
        done += len(batch)
        for output in table.flush({TOPIC_NAMES[Role.FINDINGS]: done}):
            topic[output.key] = Record(Role.ALERT_STATES, Origin("states", 0, 0), output.key, output.value)
    assert outputs == expected


def as_read(offset: int, entry: Entry) -> Record:
    value = entry.encode()
    return Record(Role.FINDINGS, Origin("findings", 0, offset), b"", value)


@given(lives(), TICKS)
def test_how_often_time_arrives_changes_nothing(entries: list[Entry], ticks: list[int]) -> None:
    """Ticks at any times between the records give the same alerts, each in the same order, as one at the end."""
    ordered = [entry for number, entry in enumerate(entries) if not _is_stale(entry, entries[:number])]
    last = at(5_000)
    assert by_uid(run({}, in_log(with_ticks(ordered, [*ticks, last])))) == by_uid(
        run({}, in_log(with_ticks(ordered, [last])))
    )


def _is_stale(entry: Entry, before: list[Entry]) -> bool:
    return isinstance(entry, Suppression) or any(time_of(earlier) > time_of(entry) for earlier in before)


@given(lives(plain=True), TICKS)
def test_the_count_is_of_distinct_records(entries: list[Entry], ticks: list[int]) -> None:
    states: dict[str, Any] = {}
    outputs = run(states, in_log(with_ticks(entries, ticks)))
    for uid, state in states.items():
        if not isinstance(state, AlertState):
            continue
        found = [entry for entry in entries if isinstance(entry, Finding) and entry.uid() == uid]
        assert state.count == len({finding.origin for finding in found})
        assert sum(state.observers.values()) == state.count
        times = [finding.time_us for finding in found]
        assert (state.first_us, state.last_us) == (min(times), max(times))
        counts = [body(output)["count"] for output in by_uid(outputs).get(uid, [])]
        assert counts == sorted(counts)


@given(lives(), TICKS)
def test_there_are_never_more_records_than_the_pace_allows(entries: list[Entry], ticks: list[int]) -> None:
    """One for the creation, one a round count, two an end and return, one an interval, one when a rule ends."""
    states: dict[str, Any] = {}
    for uid, outputs in by_uid(run(states, in_log(with_ticks(entries, [*ticks, at(5_000)])))).items():
        count = states[uid].count
        bodies = [body(output) for output in outputs]
        closed = sum(told["activity_name"] == "Close" for told in bodies)
        round_counts = 3 * (int(math.log10(count)) + 1)
        span_us = max(told["time"] for told in bodies) * 1_000 - at(0)
        intervals = span_us // PACING.update_interval_us + span_us // PACING.repeat_interval_us
        assert len(outputs) <= 1 + round_counts + 3 * closed + intervals + 1


@given(lives(plain=True), TICKS)
def test_a_life_is_created_once_and_opened_as_often_as_closed(entries: list[Entry], ticks: list[int]) -> None:
    """Create comes first and once; after a Close only a finding brings an Update; ids are distinct."""
    for outputs in by_uid(run({}, in_log(with_ticks(entries, ticks)))).values():
        activities = [body(output)["activity_name"] for output in outputs]
        assert activities[0] == "Create"
        assert "Create" not in activities[1:]
        assert ("Close", "Close") not in list(pairwise(activities))
        ids = [dict(output.headers)["ce_id"] for output in outputs]
        assert len(set(ids)) == len(ids)
        for one, next_ in pairwise(outputs):
            if body(one)["activity_name"] == "Close":
                assert body(next_)["count"] > body(one)["count"]


@given(lives(), TICKS)
def test_every_record_of_an_alert_has_an_id_of_its_own(entries: list[Entry], ticks: list[int]) -> None:
    ids = [dict(output.headers)["ce_id"] for output in run({}, in_log(with_ticks(entries, ticks)))]
    assert len(set(ids)) == len(ids)


@given(st.permutations(OBSERVERS), st.integers(0, 3))
def test_it_closes_when_the_last_observer_has_returned(order: list[str], returned: int) -> None:
    entries: list[Entry] = [a_finding(number, observer_id=name) for number, name in enumerate(OBSERVERS)]
    entries += [an_end(10 + number, observer_id=name) for number, name in enumerate(order[:returned])]
    outputs = run({}, in_log([*entries, Tick(time_us=at(100))]))
    assert ("Close" in {body(output)["activity_name"] for output in outputs}) is (returned == len(OBSERVERS))


@given(lives(plain=True), TICKS)
def test_what_is_suppressed_is_written_and_says_so(entries: list[Entry], ticks: list[int]) -> None:
    plain: list[Entry] = [entry for entry in entries if not isinstance(entry, Suppression)]
    everything = Suppression(rule=a_rule(server_id="*"), is_set=True, time_us=at(0))
    as_found = run({}, in_log(with_ticks(plain, ticks)))
    suppressed = run({}, in_log([everything, *with_ticks(plain, ticks)]))
    assert {body(output)["status_id"] for output in suppressed} <= {3}
    assert [_without_status(output) for output in suppressed] == [_without_status(output) for output in as_found]


def _without_status(output: Output) -> dict[str, Any]:
    told = body(output)
    del told["status"], told["status_id"]
    told["unmapped"].pop("mcp_suppressed_by", None)
    return told


@given(st.lists(st.tuples(st.integers(-86_400, 86_400), st.booleans()), max_size=30), st.integers(-86_400, 86_400))
def test_clocks_that_disagree_lose_no_count(found: list[tuple[int, bool]], tick_s: int) -> None:
    """Whatever the times of observers and workers say, every record is counted and the alert is told."""
    entries: list[Entry] = []
    for offset, (second, ended) in enumerate(found):
        entries.append(a_finding(2 * offset, second))
        if ended:
            entries.append(an_end(2 * offset + 1, second))
        entries.append(Tick(time_us=at(tick_s + offset)))
    states: dict[str, Any] = {}
    outputs = run(states, in_log(entries))
    assert sum(state.count for state in states.values() if isinstance(state, AlertState)) == len(found)
    assert bool(outputs) is bool(found)
