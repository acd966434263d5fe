"""Where two records of one alert differ, and what of it the order of reading decides."""

from __future__ import annotations

from typing import Any

import pytest

from assay_stream.model.alert import Activity
from assay_stream.model.kinds import Kind
from assay_stream.verify.alert_ledger import FROM_SEVERAL_PARTITIONS, differing_members, follows_order
from tests.support.alerts import alert_of


def other(alert: dict[str, Any], place: str, value: object) -> dict[str, Any]:
    *way, name = place.split(".")
    return alert | ({name: value} if not way else {way[0]: alert[way[0]] | {name: value}})


def holds(alert: dict[str, Any], end: dict[str, Any]) -> bool:
    """Whether what differs follows the order of reading."""
    return follows_order(alert, end, differing_members(alert, end))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("severity_id", 1),
        ("message", "other"),
        ("is_alert", 1),
        ("unmapped.mcp_server_id", "other"),
        ("unmapped.mcp_digest_after", "sha256:" + "c" * 64),
        ("finding_info.title", "other"),
    ],
)
@pytest.mark.parametrize("kind", [Kind.TOOL_CHANGED, *FROM_SEVERAL_PARTITIONS])
def test_what_was_found_and_how_grave_it_is_follows_no_order(kind: Kind, place: str, value: object) -> None:
    alert = alert_of(kind=kind)
    assert differing_members(other(alert, place, value), alert) == (f"$.{place}",)
    assert not holds(other(alert, place, value), alert)


@pytest.mark.parametrize("place", ["unmapped.mcp_origin_offset", "unmapped.mcp_observer_id", "count", "time"])
def test_place_and_pace_follow_it_where_findings_come_from_several_partitions(place: str) -> None:
    """And for those kinds only: of a changed tool they are in the order of one log."""
    for kind in (Kind.TOOL_CHANGED, *FROM_SEVERAL_PARTITIONS):
        alert = alert_of(kind=kind)
        assert holds(other(alert, place, 2), alert) is (kind in FROM_SEVERAL_PARTITIONS)


def test_who_held_a_name_first_follows_it_for_shadowed_tools_alone() -> None:
    for kind in FROM_SEVERAL_PARTITIONS:
        alert = alert_of(kind=kind, observed="one")
        assert holds(other(alert, "unmapped.mcp_pin_observed", "two"), alert) is (kind is Kind.TOOL_SHADOWED)


def test_whether_it_is_open_or_suppressed_follows_no_order() -> None:
    alert = alert_of(kind=Kind.PIN_MISMATCH)
    assert not holds(other(alert, "activity_id", int(Activity.CLOSE)), alert)
    assert not holds(other(alert, "status_id", 3), alert)
    assert holds(other(alert, "activity_id", int(Activity.UPDATE)), alert)


def test_the_time_of_an_end_follows_it() -> None:
    closed = alert_of() | {"activity_id": int(Activity.CLOSE)}
    assert holds(other(closed, "time", 1), closed)
    assert not holds(other(other(closed, "time", 1), "unmapped.mcp_resolved_by", "decided"), closed)


def test_a_count_that_was_held_back_follows_it_where_it_is_not_round() -> None:
    """Round counts are written at once."""
    for count, expected in ((7, True), (10, False)):
        end = alert_of() | {"count": count}
        assert holds(other(end, "count", count - 1), end) is expected
        assert not holds(other(end, "count", count + 1), end)


def test_an_unknown_member_is_named_by_its_object() -> None:
    """Its own name is whatever somebody wrote."""
    alert = alert_of()
    assert differing_members(alert | {"\x1b[2J": 1}, alert) == ("$",)
    assert differing_members(other(alert, "unmapped.\x1b[2J", 1), alert) == ("$.unmapped",)


def joined(*reasons: str, **flat: Any) -> dict[str, Any]:
    alert = alert_of(kind=Kind.TOOL_CHANGED)
    alert["message"] += "".join(f"; {reason}" for reason in reasons)
    kinds = [*alert["finding_info"]["types"], *(reason.partition(":")[0] for reason in reasons)]
    alert["finding_info"]["types"] = list(dict.fromkeys(kinds))
    alert["unmapped"] |= {"mcp_reasons": ",".join(reasons), **flat}
    return alert


def test_when_a_reason_joined_follows_it() -> None:
    """And with it the record's time, place and number; the reasons at the end do not."""
    alert = joined("pin_mismatch")
    assert holds(other(alert, "unmapped.mcp_repeats", 1), alert)
    assert holds(other(alert, "activity_id", int(Activity.UPDATE)), alert)
    assert not holds(alert_of(kind=Kind.TOOL_CHANGED), alert)
    assert not holds(other(joined("contract_violation"), "unmapped.mcp_repeats", 1), joined("contract_violation"))


def test_what_is_said_of_a_pin_may_come_with_it_and_is_no_other_pin() -> None:
    """An approved value that somebody changed is a difference."""
    alert = joined("pin_mismatch", mcp_pin_expected="one")
    assert holds(joined("pin_mismatch"), alert)
    assert not holds(joined("pin_mismatch", mcp_pin_expected="two"), alert)
