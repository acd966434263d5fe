"""The alerts of a replay held against those that were recorded."""

from typing import Any

import orjson
import pytest

from assay_stream.canonical.digest import canonicalize
from assay_stream.model.alert import Activity
from assay_stream.model.finding import uid_of
from assay_stream.model.kinds import Kind
from assay_stream.verify.alert_ledger import (
    FROM_SEVERAL_PARTITIONS,
    AlertLedger,
    CausesByTool,
    differing_members,
    follows_order,
)
from assay_stream.verify.evidence import Difference
from tests.support.alerts import TIME_US, alert_of, alert_records, finding_of

MINUTE_US = 60_000_000
CHANGED = [finding_of(offset=number, time_us=TIME_US + number * MINUTE_US) for number in range(5)]
CALLED = [
    finding_of(offset=number, kind=Kind.CALL_TO_UNLISTED_TOOL, time_us=TIME_US + number * MINUTE_US, before=None)
    for number in range(5)
]


def values(findings: Any) -> list[bytes]:
    return [output.value or b"" for output in alert_records(*findings)]


def held(
    replayed: list[bytes],
    recorded: list[bytes | None],
    later: list[bytes] | None = None,
    causes_by_tool: CausesByTool | None = None,
) -> tuple[AlertLedger, list[Difference]]:
    ledger = AlertLedger()
    for value in replayed:
        ledger.replayed(value)
    for recorded_value in recorded:
        ledger.recorded(recorded_value)
    ledger.written_later(later or [])
    return ledger, list(ledger.differences(causes_by_tool or {}))


def causes(*sides: Any) -> list[str]:
    return [cause for found in held(*sides)[1] for cause in found.causes]


def changed(value: bytes, **members: Any) -> bytes:
    return canonicalize(orjson.loads(value) | members)


def test_a_record_that_is_gone_is_named() -> None:
    told = values(CHANGED)
    for number, activity in enumerate(("Create at 1", "Update at 2", "Update at 5")):
        _, [difference] = held(told, [*told[:number], *told[number + 1 :]])
        assert difference.causes == ("missing_record",)
        assert [record.split(" findings")[0] for record in difference.records] == [activity]


def test_a_record_on_the_way_may_be_written_at_another_moment_and_say_nothing_else() -> None:
    """A count between is told as the order of reading; one that is too high, and another text, are altered."""
    told = values(CHANGED)
    for members, cause in (
        ({"count": 3}, "order_of_reading"),
        ({"count": 6}, "altered_record"),
        ({"severity_id": 6}, "altered_record"),
        ({"message": "nothing happened"}, "altered_record"),
    ):
        _, [difference] = held(told, [told[0], changed(told[1], **members), told[2]])
        assert difference.causes == (cause,), members


def test_findings_of_calls_in_another_order_give_the_same_alert() -> None:
    """Place, observer and times follow from which partition was read first; no severity and no text does."""
    told, otherwise = values(CALLED), values([CALLED[number] for number in (3, 1, 4, 0, 2)])
    ledger, [difference] = held(told, [*otherwise])
    assert difference.causes == ("order_of_reading",)
    assert ledger.identical == 0
    graver: Any = told, [*otherwise[:-1], changed(otherwise[-1], severity_id=5)]
    assert causes(*graver) == ["altered_record"]
    late: CausesByTool = {("server", "tool"): {"policy_changed", "late_snapshot"}}
    _, [difference] = held(graver[0], graver[1], None, late)
    assert difference.causes == ("late_snapshot", "policy_changed")
    for unrelated in ((told, [*otherwise], None, late), (*graver, None, {("server", "other"): {"policy_changed"}})):
        assert not {"late_snapshot", "policy_changed"}.intersection(causes(*unrelated))


def test_another_version_is_told_as_such_and_all_else_compared() -> None:
    told = values(CHANGED)
    older = [value.replace(b'"version":"1.2.3"', b'"version":"1.2.2"') for value in told]
    assert older != told
    assert causes(told, [*older]) == ["software_changed"]
    assert causes(told, [*older[:-1], changed(older[-1], count=9)]) == ["altered_record"]


def test_what_is_no_alert_or_not_what_its_uid_says_was_altered() -> None:
    """Another tool under the same uid, no value, no JSON, members that are not there; a prompt has its own uid."""
    told = values(CHANGED)
    other = told[0].replace(b'"mcp_tool_name":"tool"', b'"mcp_tool_name":"fool"')
    for value in (other, None, b"{", b"{}"):
        assert causes(told, [*told, value]) == ["altered_record"], value
    facts = orjson.loads(told[0])["unmapped"] | {"mcp_finding_kind": "tool_changed"}
    info = orjson.loads(told[0])["finding_info"]
    without_types = changed(
        told[0], unmapped=facts, finding_info={name: info[name] for name in info.keys() - {"types"}}
    )
    fold = {"uid": uid_of(Kind.ALERTS_FOLDED, "", None, None, None), "types": ["alerts_folded"]}
    without_facts = changed(told[0], unmapped=None, finding_info=fold)
    for value in (without_types, without_facts):
        assert causes(told, [*told, value]) == ["altered_record"], value
    prompts = values([finding_of(None, kind=Kind.PROMPT_CHANGED, item_name="greeting")])
    assert held(prompts, [*prompts])[1] == []


def test_a_release_is_recognised_by_its_list() -> None:
    """Whatever part of it is the most severe, and shown."""
    told = values([finding_of(kind=Kind.SERVER_CHANGED, release="a" * 64)])
    assert held(told, [*told])[1] == []
    other = [changed(told[0], unmapped=orjson.loads(told[0])["unmapped"] | {"mcp_release": "b" * 64})]
    assert causes(told, [*other]) == ["altered_record", "missing_record"]


def test_a_shadowed_tool_that_the_other_side_folded_is_of_the_order_of_reading() -> None:
    """Where a fold of its server's names differs; without one it is missing, as is a fold of other findings."""
    alone = values([finding_of(kind=Kind.TOOL_SHADOWED, before=None)])
    fold, other = (
        values([finding_of(None, kind=Kind.ALERTS_FOLDED, before=None, after=None, reason=reason)])
        for reason in ("names-1@17", "mcp.tools.list/0/17")
    )
    for told, recorded in ((alone, fold), (fold, alone)):
        assert set(causes([*told], [*recorded])) == {"order_of_reading"}
        assert causes([*told], []) == ["missing_record"]
    assert causes(alone, [*other]) == ["missing_record", "unexpected_record"]
    fewer = changed(fold[0], message="21 low")
    assert causes(fold, [fewer]) == ["order_of_reading"]
    assert causes(other, [changed(other[0], message="21 low")]) == ["altered_record"]
    assert "missing_record" in causes([*alone, *fold], [*fold])


def test_a_shadowed_tool_that_ended_may_be_on_one_side_only() -> None:
    """Which names met on the way follows from the order of reading; one that is open must be on both."""
    told = values([finding_of(kind=Kind.TOOL_SHADOWED, before=None)])
    closed = changed(told[0], activity_id=3)
    assert causes(told, []) == ["missing_record"]
    assert causes(told, [], [closed]) == ["order_of_reading"]
    assert causes([], [*told]) == ["order_of_reading"]


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
