"""Alerts as their readers see them, and those that are asked for."""

from typing import Any

import pytest

from assay_stream.alerts.view import AlertSelection, SeverityLevel, read_alert, row_of, short_uids, view_of
from tests.support.alerts import alert_of, alert_records, finding_of
from tests.support.errors import raises_code


def test_the_key_is_uid_count_and_activity() -> None:
    first, second = alert_records(finding_of(offset=0), finding_of(offset=1))
    uid = finding_of().uid()
    assert view_of(read_alert(first.value)).key() == f"{uid}:1:1"
    assert view_of(read_alert(second.value)).key() == f"{uid}:2:2"


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (None, "not_an_alert"),
        (b"[]", "not_an_alert"),
        (b"{}", "not_an_alert"),
        (b'{"class_uid":2004}', "not_an_alert"),
        (b'{"class_uid":2004,"finding_info":{"uid":"u"},"severity_id":"high"}', "not_an_alert"),
        (b'{"class_uid":2004,"finding_info":{"uid":"a\\nb"},"severity_id":1,"activity_id":1,"time":1}', "not_an_alert"),
        (b'{"class_uid":2004,"class_uid":2004}', "duplicate_key"),
        (b"\xff", "not_utf8"),
    ],
)
def test_what_is_no_alert_is_refused(raw: bytes | None, code: str) -> None:
    with raises_code(code):
        read_alert(raw)


@pytest.mark.parametrize(
    ("given", "activity", "status"),
    [
        ({"activity_id": 3, "status_id": 3}, "Close", "Suppressed"),
        ({"activity_id": 3, "status_id": 4}, "Close", "Resolved"),
        ({"activity_id": 7, "status_id": 77}, "Other", "Other"),
        ({"activity_id": 99, "activity_name": "Muted", "status_id": 99, "status": "Muted"}, "Muted", "Muted"),
    ],
)
def test_activities_and_statuses_to_come_have_names(given: dict[str, Any], activity: str, status: str) -> None:
    alert = {key: value for key, value in alert_of().items() if key not in ("activity_name", "status")} | given
    view = view_of(alert)
    assert (view.activity, view.status) == (activity, status)


def test_members_of_the_wrong_type_are_as_good_as_absent() -> None:
    alert = alert_of() | {"unmapped": [1], "status": 5, "message": None, "metadata": "x"}
    alert["finding_info"] = {"uid": "u", "types": "tool_changed", "attacks": 3, "first_seen_time": True}
    view = view_of(alert)
    assert (view.kind, view.flat, view.version, view.attacks) == ("unknown", {}, "unknown", [])
    assert view.first_seen_ms == alert["time"]


@pytest.mark.parametrize("repeats", ["1\r\nX-Other: y", "\xe9", True, 1.5])
def test_an_idempotency_key_is_safe_in_a_header(repeats: object) -> None:
    """Whatever a record says of itself: a key that no header takes would hold up every alert behind it."""
    alert = alert_of()
    plain = view_of(alert).key()
    alert["unmapped"]["mcp_repeats"] = repeats
    assert view_of(alert).key() == plain


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
        "item_name": "",
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
