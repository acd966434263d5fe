"""Which records an operator asks for."""

from __future__ import annotations

from assay_stream.export.input import Stored, items
from assay_stream.export.selection import Selection
from assay_stream.replay.offset_ranges import offset_ranges
from tests.support.alerts import alert_records, finding_of
from tests.support.exports import NOON, NOON_US, definition, evidence

CALLS = "mcp.tools.call"
ALERT = alert_records(finding_of())[0].value or b""


def chosen(selection: Selection, *raw: bytes) -> list[int]:
    """Which of some records a selection wants."""
    return [index for index, line in enumerate(raw) if selection.wants(next(items([Stored("here", line)])))]


def test_a_range_of_time_has_its_beginning_and_not_its_end() -> None:
    """Two ranges that meet share nothing; definitions have no time."""
    times = ["2026-03-01T11:59:59.999999Z", NOON, "2026-03-01T13:00:00+01:00", "2026-03-01T12:00:00.000001Z"]
    raw = [*(evidence(time=time) for time in times), definition()]
    assert chosen(Selection(since_us=NOON_US), *raw) == [1, 2, 3, 4]
    assert chosen(Selection(until_us=NOON_US), *raw) == [0, 4]
    assert chosen(Selection(since_us=NOON_US, until_us=NOON_US + 1), *raw) == [1, 2, 4]


def test_servers_can_be_asked_for() -> None:
    """Evidence and alerts of these servers; definitions are of no server."""
    raw = [evidence(), evidence(data={"server_id": "b"}), ALERT, definition(), evidence(data={"server_id": None})]
    assert chosen(Selection(server_ids=frozenset({"b", "server"})), *raw) == [1, 2, 3]


def test_offsets_can_be_asked_for() -> None:
    """Of the calls, the end excluded; alerts are not of calls."""
    raw = [*(evidence(number) for number in range(4)), ALERT]
    assert chosen(Selection(offsets=offset_ranges([f"{CALLS}:3=1..3"])), *raw) == [1, 2]
    assert chosen(Selection(offsets=offset_ranges([f"{CALLS}:3=..1", f"{CALLS}:3=3.."])), *raw) == [0, 3]
    assert chosen(Selection(offsets=offset_ranges([f"{CALLS}:2=0..9"])), *raw) == []
    assert chosen(Selection(offsets=offset_ranges(["another:3=0..9"])), *raw) == []
