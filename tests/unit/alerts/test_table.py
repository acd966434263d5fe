"""The alert table of a partition: what its topic keeps, and what it is restored to."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import orjson
import pytest

from assay_stream.alerts.processor import process
from assay_stream.alerts.remembered import AlertTable
from assay_stream.errors import IntegrityError
from assay_stream.model.finding import Finding
from assay_stream.model.finding_topic import Tick
from assay_stream.model.record import TOPIC_NAMES, Origin, Output, Record, Role
from tests.support.findings import PACING, RULES, a_finding, at, body

PARTITION = 3
FINDINGS = TOPIC_NAMES[Role.FINDINGS]


def found(offset: int, finding: Finding) -> Record:
    value = finding.output().value
    return Record(Role.FINDINGS, Origin("findings", PARTITION, offset), b"server", value)


def kept(outputs: Iterable[Output]) -> list[Record]:
    place = Origin("states", PARTITION, 0)
    return [Record(Role.ALERT_STATES, place, output.key, output.value) for output in outputs]


def a_table(records: Iterable[Record] = (), now_us: Callable[[], int | None] = lambda: None) -> AlertTable:
    table = AlertTable(PARTITION, RULES, now_us=now_us)
    for record in records:
        table.restore(record)
    return table


@pytest.fixture
def written() -> list[Output]:
    table = a_table()
    assert table.restored() == {FINDINGS: None}
    process(table.alerts, found(0, a_finding()))
    process(table.alerts, found(1, a_finding(1, tool_name="other")))
    return table.flush({FINDINGS: 2})


def test_a_new_table_begins_with_the_first_finding() -> None:
    table = a_table()
    assert table.restored() == {FINDINGS: None}
    (progress,) = table.flush({FINDINGS: 0})
    assert progress.key == b"progress"


def test_what_changed_is_written_once_with_how_far_it_is(written: list[Output]) -> None:
    assert [output.key for output in written] == [
        *sorted(each.uid().encode() for each in (a_finding(), a_finding(tool_name="other"))),
        b"records/server",
        b"progress",
    ]
    assert {(output.role, output.partition) for output in written} == {(Role.ALERT_STATES, PARTITION)}
    assert orjson.loads(written[-1].value or b"") == {"position": 2, "states": 3}


def test_a_restored_table_counts_on(written: list[Output]) -> None:
    table = a_table(kept(written))
    assert table.restored() == {FINDINGS: 2}
    assert len(table) == 3
    (alert,) = process(table.alerts, found(2, a_finding(100)))
    assert body(alert)["count"] == 2
    assert [output.key for output in table.flush({FINDINGS: 3})] == [a_finding().uid().encode(), b"progress"]


def test_a_restored_table_knows_what_is_due(written: list[Output]) -> None:
    now_us = [at(2)]
    table = a_table(kept(written), lambda: now_us[0])
    table.restored()
    assert table.punctuate() == []
    due = now_us[0] = at(2) + PACING.repeat_interval_us
    (tick,) = table.punctuate()
    assert (tick.role, tick.partition, tick.value) == (Role.FINDINGS, PARTITION, Tick(time_us=due).encode())


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_table_of_which_something_is_gone_is_made_anew(written: list[Output], lost: int) -> None:
    """Any record of its topic missing: every finding is read again, and what was left of the states goes."""
    left = [*written[:lost], *written[lost + 1 :]]
    table = a_table(kept(left))
    assert table.restored() == {FINDINGS: None}
    assert len(table) == 0
    again = table.flush({FINDINGS: 0})
    gone = {output.key for output in left} - {b"progress"}
    assert {output.key for output in again if output.value is None} == gone
    healed = a_table(kept([*left, *again]))
    assert healed.restored() == {FINDINGS: 0}
    assert len(healed) == 0


def test_states_that_come_back_are_not_taken_back(written: list[Output]) -> None:
    """A table made anew that counted an alert again writes its state, not a tombstone."""
    table = a_table(kept(written[:1]))
    table.restored()
    process(table.alerts, found(0, a_finding()))
    process(table.alerts, found(1, a_finding(1, tool_name="other")))
    assert table.flush({FINDINGS: 2}) == written


@pytest.mark.parametrize(
    ("key", "value"), [(b"uid", b"{"), (b"progress", b"{}"), (b"progress", b"3"), (b"\xff", b"{}")]
)
def test_what_is_no_state_stops_the_worker(key: bytes, value: bytes) -> None:
    """Somebody else's record, or one of a later version, is no reason to guess; the error says where it stands."""
    record = Record(Role.ALERT_STATES, Origin("states", PARTITION, 7), key, value)
    with pytest.raises(IntegrityError, match="offset 7 of partition 3") as caught:
        a_table([record])
    assert caught.value.code == "unknown_state"
