"""The alerts as they stand, and those that are asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from assay_stream.alerts.formats.view import view_of
from assay_stream.alerts.index import AlertRow, ReviewState, listing, row_of, short_uids
from assay_stream.alerts.selection import AlertSelection, SeverityLevel
from tests.support.alerts import alert_of

EVERYTHING = AlertSelection()


def an_alert(uid: str = "a" * 64, **fields: Any) -> dict[str, Any]:
    """An alert of this uid, with other members than usual."""
    alert = alert_of()
    alert["finding_info"]["uid"] = uid
    return alert | fields


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
    """For programs."""
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
    """As short as no other one allows, and never shorter than eight."""
    one, other, third = "a" * 64, "a" * 20 + "b" * 44, "c" * 64
    assert short_uids([one, other, third]) == {one: "a" * 21, other: "a" * 20 + "b", third: "c" * 8}


def rows() -> list[AlertRow]:
    """Alerts of several severities, states and times."""
    return [
        replace(ROW, uid="1", severity_id=3, last_seen_ms=10),
        replace(ROW, uid="2", severity_id=5, last_seen_ms=5),
        replace(ROW, uid="3", severity_id=3, last_seen_ms=20, tool_name="other"),
        replace(ROW, uid="4", severity_id=5, state=ReviewState.CLOSED),
        replace(ROW, uid="5", severity_id=5, state=ReviewState.SUPPRESSED),
        replace(ROW, uid="6", severity_id=99, last_seen_ms=1, server_id="else"),
    ]


def test_the_gravest_come_first_and_then_the_latest() -> None:
    """A severity that is not told may be any."""
    assert [row.uid for row in listing(rows(), EVERYTHING).rows] == ["6", "2", "3", "1"]


@pytest.mark.parametrize(
    ("asked", "uids"),
    [
        ({"state": None}, ["6", "4", "5", "2", "3", "1"]),
        ({"state": ReviewState.CLOSED}, ["4"]),
        ({"tool": "oth*"}, ["3"]),
        ({"kind": "tool_added"}, []),
        ({"limit": 1}, ["6"]),
        ({"selection": AlertSelection(server_id="else")}, ["6"]),
        ({"selection": AlertSelection(since_ms=10)}, ["3", "1"]),
        ({"selection": AlertSelection(severity=SeverityLevel.CRITICAL)}, ["6", "2"]),
    ],
)
def test_alerts_can_be_asked_for(asked: dict[str, Any], uids: list[str]) -> None:
    """By each of the options."""
    selection = asked.pop("selection", EVERYTHING)
    assert [row.uid for row in listing(rows(), selection, **asked).rows] == uids


def test_what_is_not_shown_is_counted() -> None:
    """By state, and where a limit cuts."""
    assert listing(rows(), EVERYTHING).summary(ReviewState.OPEN) == "4 open; 1 suppressed, 1 closed not shown"
    assert listing(rows(), EVERYTHING, state=None).summary(None) == "4 open, 1 suppressed, 1 closed"
    cut = listing(rows(), EVERYTHING, limit=2)
    assert cut.summary(ReviewState.OPEN) == "4 open; the first 2 shown; 1 suppressed, 1 closed not shown"
    assert listing([], EVERYTHING).summary(ReviewState.OPEN) == "0 open"
