"""Alerts as the converters read them."""

from typing import Any

import pytest

from assay_stream.alerts.formats import read_alert, view_of
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
