"""Folding: what one record begins beyond a bound becomes one alert."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from assay_stream.alerts.processor import process
from assay_stream.alerts.remembered import AlertTable, RecordCounts
from assay_stream.alerts.rules import AlertRules
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.finding import (
    NAME_GROUPS,
    Finding,
    FloodEnd,
    Resolution,
    Suppression,
    Tick,
    alone_max,
    decode_entry,
)
from assay_stream.model.kinds import Kind
from assay_stream.model.record import TOPIC_NAMES, Origin, Output, Record, Role
from tests.support.findings import RULES, a_finding, a_rule, an_end, at, body, place

FINDINGS = TOPIC_NAMES[Role.FINDINGS]
EACH = DEFAULT_LIMITS.alerts_per_record_max
_LEVELS = {"a": 2, "c": 5}
BY_NAME = replace(RULES, severity=lambda finding: _LEVELS.get((finding.tool_name or "a")[0], 2))


class Stage:
    def __init__(self, *, restarts: bool = False, rules: AlertRules = BY_NAME) -> None:
        self._restarts = restarts
        self._rules = rules
        self._table = AlertTable(0, rules)
        self._table.restored()
        self._topic: dict[bytes | None, bytes | None] = {}
        self._offset = 0
        self.alerts: list[dict[str, Any]] = []
        self.bytes: list[bytes | None] = []

    def reads(self, *entries: Finding | FloodEnd | Resolution | Suppression | Tick) -> Stage:
        for entry in entries:
            value = entry.encode()
            record = Record(Role.FINDINGS, Origin("findings", 0, self._offset), b"server", value)
            written = process(self._table.alerts, record)
            self._offset += 1
            self.bytes += [output.value for output in written]
            self.alerts += [body(output) for output in written]
            if self._restarts:
                self._restart()
        return self

    def _restart(self) -> None:
        self._topic.update((output.key, output.value) for output in self._table.flush({FINDINGS: self._offset}))
        self._table = AlertTable(0, self._rules)
        for key, value in self._topic.items():
            if value is not None:
                self._table.restore(Record(Role.ALERT_STATES, Origin("states", 0, 0), key, value))
        assert self._table.restored() == {FINDINGS: self._offset}


def a_list(names: Sequence[str], offset: int, second: float | None = None, **changes: Any) -> list[Finding]:
    return [a_finding(offset, second, tool_name=name, **changes) for name in names]


def an_end_of(offset: int, second: float | None = None, findings: int = 100) -> FloodEnd:
    time_us = at(offset if second is None else second)
    return FloodEnd(server_id="server", findings=findings, time_us=time_us, origin=place(offset))


def names(count: int, first: str = "a") -> list[str]:
    return [f"{first}{number:04}" for number in range(count)]


def folds(alerts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [alert for alert in alerts if alert["finding_info"]["types"] == ["alerts_folded"]]


def test_without_an_end_it_is_written_after_the_update_interval() -> None:
    stage = Stage().reads(*a_list(names(EACH + 30), 1), Tick(time_us=at(60)), Tick(time_us=at(61)))
    [fold] = folds(stage.alerts)
    assert (fold["activity_name"], fold["time"] * 1_000) == ("Create", at(61))


def test_each_severity_has_its_own_bound() -> None:
    """Whichever comes first in the list."""
    both = [*names(EACH + 5), *names(EACH + 2, "c")]
    for listed in (both, both[::-1]):
        stage = Stage().reads(*a_list(listed, 1), an_end_of(1))
        [fold] = folds(stage.alerts)
        assert fold["unmapped"]["mcp_folded_by_severity"] == "2 critical, 5 low"
        assert fold["severity_id"] == 5
        levels = [alert["severity_id"] for alert in stage.alerts[:-1]]
        assert (levels.count(5), levels.count(2)) == (EACH, EACH)


def test_a_member_that_gets_graver_is_an_alert_of_its_own() -> None:
    levels = {"a0024": 2}
    stage = Stage(rules=replace(RULES, severity=lambda finding: levels.get(finding.tool_name or "", 2)))
    stage.reads(*a_list(names(EACH + 5), 1), an_end_of(1))
    levels["a0024"] = 5
    stage.reads(a_finding(2, tool_name="a0024", observer_id="bob"))
    last = stage.alerts[-1]
    assert (last["activity_name"], last["severity_id"]) == ("Create", 5)
    assert last["unmapped"]["mcp_tool_name"] == "a0024"


def test_events_that_are_folded_are_over_when_none_is_found_again() -> None:
    gone = a_list(names(EACH + 3), 1, kind=Kind.TOOL_REMOVED)
    stage = Stage().reads(*gone, an_end_of(1), Tick(time_us=at(602)))
    assert [alert["status"] for alert in folds(stage.alerts)] == ["New", "Resolved"]
    assert folds(stage.alerts)[-1]["unmapped"]["mcp_resolved_by"] == "not_seen_again"


def test_a_flood_that_comes_back_opens_the_folded_alert_again() -> None:
    """Twenty by themselves, and the old one for the rest."""
    listed = names(EACH + 30)
    uids = tuple(one.uid() for one in a_list(listed, 1))
    stage = Stage().reads(*a_list(listed, 1), an_end_of(1), an_end(2, uids=uids), Tick(time_us=at(100)))
    assert folds(stage.alerts)[-1]["status"] == "Resolved"
    before = len(stage.alerts)
    stage.reads(*a_list(listed, 200), an_end_of(200))
    again = stage.alerts[before:]
    assert len(again) == EACH + 1
    [fold] = folds(again)
    assert (fold["status"], fold["unmapped"]["mcp_folded"]) == ("In Progress", 30)
    assert fold["finding_info"]["uid"] == folds(stage.alerts)[0]["finding_info"]["uid"]


def test_a_rule_for_everything_covers_the_folded_alert() -> None:
    stage = Stage().reads(*a_list(names(EACH + 3), 1), an_end_of(1))
    stage.reads(Suppression(rule=a_rule(), is_set=True, time_us=at(2)), Tick(time_us=at(602)))
    assert folds(stage.alerts)[-1]["status"] == "Suppressed"


def test_a_record_that_is_found_again_is_not_counted_again() -> None:
    listed = a_list(names(EACH + 30), 1)
    stage = Stage().reads(*listed, an_end_of(1))
    before = len(stage.alerts)
    stage.reads(*listed, an_end_of(1), a_finding(2, tool_name="a0025"), Tick(time_us=at(62)))
    [fold] = folds(stage.alerts[before:])
    assert (fold["count"], fold["unmapped"]["mcp_folded"]) == (31, 30)


def test_a_restart_at_any_record_changes_no_byte() -> None:
    listed = [*names(EACH + 4), *names(EACH + 2, "c")]
    uids = tuple(one.uid() for one in a_list(listed, 1))
    entries: list[Any] = [
        *(*a_list(listed, 1), an_end_of(1), *a_list(listed, 2, observer_id="bob"), an_end_of(2)),
        *(an_end(3, uids=uids), an_end(4, uids=uids, observer_id="bob"), Tick(time_us=at(100))),
        *(*a_list(listed, 200), an_end_of(200), Tick(time_us=at(900))),
    ]
    whole, restarted = Stage().reads(*entries), Stage(restarts=True).reads(*entries)
    assert restarted.bytes == whole.bytes
    assert len(folds(whole.alerts)) >= 4


@pytest.mark.parametrize(("group", "each"), [(None, EACH), ("names-1", EACH // NAME_GROUPS)])
def test_the_groups_of_names_share_the_room_of_one_record(group: str | None, each: int) -> None:
    counts = RecordCounts({}, "here", alone_max(group))
    for _ in range(each):
        assert counts.has_room(2)
        counts.count(2)
    assert not counts.has_room(2)
    assert counts.has_room(3)
    assert RecordCounts({"records": counts.records}, "there", alone_max(group)).has_room(2)


def test_counts_of_old_records_are_let_go() -> None:
    """State does not grow with the number of records."""
    records: list[dict[str, Any]] = []
    for offset in range(100):
        counts = RecordCounts({"records": records}, str(place(offset)), EACH)
        counts.count(2)
        records = counts.records
    assert [record["origin"] for record in records] == [
        str(place(offset)) for offset in range(100 - DEFAULT_LIMITS.alert_records_max, 100)
    ]


@pytest.mark.parametrize("value", [{"findings": 21}, {"findings": "many", "server_id": "server", "time_us": 1}])
def test_an_end_that_is_none_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="cannot read"):
        decode_entry(orjson.dumps({"kind": "flood_end"} | value))


def test_an_end_is_read_as_it_was_written() -> None:
    for end, key in ((an_end_of(7), b"server"), (replace(an_end_of(7), group="names-2"), b"names-2")):
        output: Output = end.output()
        assert decode_entry(output.value) == end
        assert output.key == key
