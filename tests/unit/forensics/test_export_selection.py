"""Which records an operator asks for."""

from __future__ import annotations

import pytest

from assay_stream.core.errors import InputError
from assay_stream.forensics.export_input import Stored, items
from assay_stream.forensics.export_selection import Offsets, Selection, offsets_of
from tests.support.alerts import alert_records, finding_of
from tests.support.exports import NOON, NOON_US, definition, evidence

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
    """Of the calls, both ends included; alerts are not of calls."""
    raw = [*(evidence(number) for number in range(4)), ALERT]
    assert chosen(Selection(offsets=(Offsets(3, 1, 2),)), *raw) == [1, 2]
    assert chosen(Selection(offsets=(Offsets(3, 0, 0), Offsets(3, 3, 9))), *raw) == [0, 3]
    assert chosen(Selection(offsets=(Offsets(2, 0, 9),)), *raw) == []


def test_a_range_is_written_in_one_way() -> None:
    """Partition, first and last."""
    assert offsets_of("3:100-199") == Offsets(3, 100, 199)


@pytest.mark.parametrize("text", ["", "3", "3:1", "3:2-1", "x:1-2", "3:-1-2", "3:1-2 ", "٣:1-2"])
def test_another_writing_of_a_range_is_refused(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(InputError) as caught:
        offsets_of(text)
    assert caught.value.code == "bad_offsets"
