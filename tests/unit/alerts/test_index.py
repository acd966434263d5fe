"""The alerts as they stand, and those that are asked for."""

from typing import Any

import pytest

from assay_stream.alerts.formats.view import row_of, view_of
from assay_stream.alerts.index import AlertSelection, SeverityLevel, short_uids
from tests.support.alerts import alert_of


def an_alert(uid: str = "a" * 64, **fields: Any) -> dict[str, Any]:
    alert = alert_of()
    alert["finding_info"]["uid"] = uid
    return alert | fields


TIME_MS = 1_772_323_200_123
ROW = row_of(view_of(an_alert()))


@pytest.mark.parametrize(
    ("activity_id", "status_id", "state"),
    [(1, 1, "open"), (2, 2, "open"), (2, 3, "suppressed"), (3, 4, "closed"), (3, 3, "closed"), (2, 5, "closed")],
)
def test_what_state_an_alert_is_in(activity_id: int, status_id: int, state: str) -> None:
    """What a rule covers is written as suppressed also when it closes: it is closed then."""
    row = row_of(view_of(an_alert(activity_id=activity_id, status_id=status_id)))
    assert row.state == state


def test_a_row_has_stable_fields() -> None:
    assert ROW.as_json() == {
        "uid": "a" * 64,
        "severity": "high",
        "severity_id": 4,
        "kind": "tool_changed",
        "server_id": "server",
        "tool_name": "tool",
        "count": 1,
        "observers": 1,
        "first_seen": "2026-03-01T00:00:00.123Z",
        "last_seen": "2026-03-01T00:00:00.123Z",
        "state": "open",
        "status": "New",
        "group": str(ROW.group),
        "assigned_to": "",
    }
    assert len(ROW.group) == 64


def test_short_uids_are_unique() -> None:
    one, other, third = "a" * 64, "a" * 20 + "b" * 44, "c" * 64
    assert short_uids([one, other, third]) == {one: "a" * 21, other: "a" * 20 + "b", third: "c" * 8}


@pytest.mark.parametrize(("since_ms", "wanted"), [(TIME_MS - 1, True), (TIME_MS, True), (TIME_MS + 1, False)])
def test_since_is_inclusive(since_ms: int, wanted: bool) -> None:
    assert AlertSelection(since_ms=since_ms).wants(ROW, TIME_MS) is wanted


@pytest.mark.parametrize(
    ("level", "severity_id", "wanted"),
    [("high", 4, True), ("critical", 4, False), ("low", 5, True), ("critical", 6, True), ("critical", 0, True)],
)
def test_a_severity_asks_for_higher_ones_too(level: str, severity_id: int, wanted: bool) -> None:
    """And for those that do not say how severe they are: nothing is hidden by not knowing."""
    selection = AlertSelection(severity=SeverityLevel(level))
    assert selection.wants(view_of(alert_of() | {"severity_id": severity_id}), TIME_MS) is wanted


def test_a_server_is_asked_for_by_its_id() -> None:
    assert AlertSelection(server_id="server").wants(ROW, TIME_MS)
    assert not AlertSelection(server_id="serve").wants(ROW, TIME_MS)
