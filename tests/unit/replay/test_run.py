"""Replay: the order in which records are taken, and what comes out."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import orjson
import pytest

from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.model.evidence import Producer
from assay_stream.model.record import Origin, Output, Record, Role
from assay_stream.replay.log_cut import History, history_of, unbounded
from assay_stream.replay.order import REFUSED_AHEAD_MAX, _NamedTimes, _names
from assay_stream.text.times import time_ms_in
from tests.support.counting import allocating, counted_calls
from tests.support.errors import raises_code
from tests.support.events import SERVER, TOOL, Story
from tests.support.fleet import START, Published, a_call_by, a_listing
from tests.support.inventory import without_inventory
from tests.support.merging import merge_by_event_time
from tests.support.replaying import replay


def at(offset: int, published: Published, partition: int = 0) -> Record:
    role, key, value = published
    place = Origin(topic=role.value, partition=partition, offset=offset)
    timestamp_ms = time_ms_in(orjson.loads(value)["time"]) or 0
    return Record(role=role, origin=place, key=key, value=value, timestamp_ms=timestamp_ms)


def listing(offset: int, minute: float, version: int = 0, number: int | None = None, observer: int = 0) -> Record:
    moment = START + timedelta(minutes=minute)
    return at(offset, a_listing(0, observer, version, offset if number is None else number, moment))


def call(offset: int, minute: int, names: str | None = None, observer: int = 0) -> Record:
    return at(offset, a_call_by(0, observer, offset * 3, START + timedelta(minutes=minute), names))


def places(records: list[Record]) -> list[tuple[str, int]]:
    return [(record.role.value, record.origin.offset) for record in merge_by_event_time(records)]


def outputs_of(*records: Record, role: Role) -> list[Output]:
    return [output for output in replay(records, producer=Producer(version="1")) if output.role is role]


def evidence(*records: Record) -> list[dict[str, Any]]:
    return [orjson.loads(output.value or b"")["data"] for output in outputs_of(*records, role=Role.EVIDENCE)]


def test_a_snapshot_goes_before_every_call_that_is_not_earlier() -> None:
    records = [listing(0, 9), listing(1, 2), call(0, 1), call(1, 3)]
    assert places(records) == [("calls", 0), ("snapshots", 0), ("snapshots", 1), ("calls", 1)]


def test_a_list_by_a_clock_that_is_ahead_takes_effect_when_the_log_had_it() -> None:
    ahead = listing(0, 9)._replace(timestamp_ms=listing(0, 2).timestamp_ms)
    assert places([call(0, 1), call(1, 3), ahead]) == [("calls", 0), ("snapshots", 0), ("calls", 1)]


def test_binary_events_are_dated_by_their_header() -> None:
    record = call(0, 0)
    binary = record._replace(value=b"{}", headers=(("ce_time", b"2026-03-01T00:05:00Z"),), timestamp_ms=0)
    assert places([binary, listing(0, 4)]) == [("snapshots", 0), ("calls", 0)]


def test_a_named_snapshot_of_a_binary_event_is_found() -> None:
    assert places([call(0, 1, "snapshot-7"), binary_form(listing(0, 5, number=7))]) == [("snapshots", 0), ("calls", 0)]


def test_findings_come_out_with_their_alerts() -> None:
    records = [listing(0, 0), listing(1, 5, version=1)]
    written = [
        output.role
        for output in without_inventory(replay(records, producer=Producer(version="1")))
        if output.label.startswith(("finding:", "alert:"))
    ]
    assert written == [Role.FINDINGS, Role.ALERTS]


def binary_form(record: Record, *, data: dict[str, Any] | None = None) -> Record:
    event = orjson.loads(record.value or b"")
    headers = tuple(
        (f"ce_{name}", str(event[name]).encode()) for name in ("specversion", "type", "source", "id", "time")
    )
    return record._replace(value=orjson.dumps(event["data"] | (data or {})), headers=headers)


@pytest.mark.parametrize("member", [{"time": "2020-01-01T00:00:00Z"}, {"time": "2027-01-01T00:00:00Z"}])
def test_a_member_of_the_data_called_time_is_not_the_event_s_time(member: dict[str, Any]) -> None:
    """An unknown field in the data of a binary event moves nothing: its time is in ce_time."""
    history = [listing(0, 0), binary_form(call(0, 1), data=member), listing(1, 5, version=1), call(1, 6)]
    assert places(history) == [("snapshots", 0), ("calls", 0), ("snapshots", 1), ("calls", 1)]


def test_a_member_of_the_data_called_data_hides_nothing() -> None:
    """An unknown field called data in a binary snapshot does not keep calls from waiting for it."""
    named = binary_form(listing(0, 5, number=7), data={"data": {}})
    assert places([call(0, 1, "snapshot-7"), named]) == [("snapshots", 0), ("calls", 0)]


def test_a_call_that_names_null_names_nothing() -> None:
    """A call whose snapshot_id is null waits for no snapshot, not for one called None either."""
    silent = call(0, 1)
    event = orjson.loads(silent.value or b"")
    event["data"]["snapshot_id"] = None
    later = listing(0, 5)
    called_none = orjson.loads(later.value or b"")
    called_none["data"]["snapshot_id"] = "None"
    records = [silent._replace(value=orjson.dumps(event)), later._replace(value=orjson.dumps(called_none))]
    assert places(records) == [("calls", 0), ("snapshots", 0)]


def test_a_call_waits_for_the_first_snapshot_of_a_name() -> None:
    records = [listing(0, 0, number=7), call(0, 1, "snapshot-7"), listing(1, 5, version=1, number=7)]
    assert places(records) == [("snapshots", 0), ("calls", 0), ("snapshots", 1)]
    assert evidence(*records)[0]["binding"]["scope"] == "exact"
    assert "tool_definition_digest" in evidence(*records)[0]


def test_two_records_at_one_place_are_an_error() -> None:
    """Two files of one name, or two logs in one archive, would give evidence that names the wrong record."""
    with raises_code("conflicting_records", match="calls"):
        merge_by_event_time([call(0, 1), call(0, 2)])


# --- time in a replay ---------------------------------------------------------------------------------------


def alerts_of(records: list[Record]) -> list[dict[str, Any]]:
    outputs = without_inventory(replay(records, producer=Producer(version="1")))
    return [orjson.loads(output.value or b"") for output in outputs if output.role is Role.ALERTS]


CHANGE = [listing(0, 0), listing(1, 1, version=1), listing(2, 2)]


def another_server(minute: float) -> Record:
    return at(3, a_listing(1, 0, 0, 3, START + timedelta(minutes=minute)))


def test_nothing_is_written_for_the_time_after_the_last_record() -> None:
    assert [alert["activity_name"] for alert in alerts_of([*CHANGE, another_server(11.99)])] == ["Create"]


# --- the history that nothing is folded away from -------------------------------------------------------------


def test_nothing_is_folded_away() -> None:
    story = Story()
    for number in range(5):
        story.lists({**TOOL, "description": str(number)})
    kept = History(limits=Limits(timeline_entries_max=2))
    whole = History()
    for record in story.records:
        kept.take(record)
        whole.take(record)
    assert len(kept.view.servers[SERVER].observers["proxy-1"]) == 2
    assert len(whole.view.servers[SERVER].observers["proxy-1"]) == 5
    assert unbounded().tools_max == DEFAULT_LIMITS.tools_max


def test_the_order_in_which_records_are_given_does_not_matter() -> None:
    story = Story().lists(TOOL).lists().calls().lists(TOOL)
    one = history_of(lambda: story.records)
    other = history_of(lambda: [*reversed(story.records), *story.records])
    seen = [list(h.view.servers[SERVER].observers["proxy-1"]) for h in (one, other)]
    assert seen[0] == seen[1]
    assert [entry.origin.offset for entry in seen[0]] == [0, 1, 2]


# --- the order of a replay: how far refused calls are held back -----------------------------------------------


def test_each_refused_call_is_looked_at_a_few_times() -> None:
    def merged(count: int) -> list[Record]:
        return merge_by_event_time([call(offset, 1)._replace(value=b"{") for offset in range(count)])

    beyond = 2 * REFUSED_AHEAD_MAX
    more = counted_calls(lambda: merged(2 * beyond)) - counted_calls(lambda: merged(beyond))
    assert more / beyond < REFUSED_AHEAD_MAX / 2


def named_times(lists: Iterable[tuple[str, str, int]]) -> _NamedTimes:
    entries = bytearray()
    for observer_id, snapshot_id, time_ms in lists:
        for name in _names("server", observer_id, snapshot_id):
            entries += name + time_ms.to_bytes(6)
    return _NamedTimes(entries)


def test_the_names_of_a_list_take_few_bytes() -> None:
    """A replay of very many lists keeps two names of each: both take no more than one id as text."""
    with allocating() as allocated:
        names = named_times(("proxy", f"00000000-0000-4000-8000-{number:012x}", number) for number in range(20_000))
        _names.cache_clear()
    assert allocated.kept_bytes / 20_000 < 40
    assert names.of("server", "proxy", f"00000000-0000-4000-8000-{7:012x}") == 7


def test_a_call_waits_for_its_own_observers_list_and_for_no_others() -> None:
    """A list under somebody else's id delays no call; an id that only others used leads to the first of theirs."""
    names = named_times([("a", "s", 50), ("b", "s", 10), ("a", "s", 70), ("b", "t", 30)])
    assert [names.of("server", who, "s") for who in "abc"] == [50, 10, 10]
    assert [names.of("server", "a", "t"), names.of("other", "a", "s")] == [30, 0]
    assert named_times([]).of("server", "a", "s") == 0
