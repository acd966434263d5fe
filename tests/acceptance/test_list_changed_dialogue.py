"""Dialogues about announced changes: a server says that its tools changed, and lists them again, or does not."""

from typing import Any

import pytest

from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.record import Role
from tests.acceptance.test_binding_dialogue import (
    DIGEST_OF_FIRST,
    DIGEST_OF_SECOND,
    FIRST,
    OTHER,
    SECOND,
    Dialogue,
    alerts_of,
    answer,
    findings_of,
)
from tests.acceptance.test_pins_dialogue import Talk
from tests.support.events import Outcome

LIMIT_S = DEFAULT_LIMITS.announced_limit_ms // 1_000


def answers(outcome: Outcome) -> list[tuple[str, str | None, str | None]]:
    return [
        (data["binding"]["scope"], data.get("tool_definition_digest"), data.get("unbound_reason"))
        for data in outcome.evidence
    ]


def found(outcome: Outcome) -> list[dict[str, Any]]:
    return [finding for finding in findings_of(outcome) if finding["kind"] == "list_change_unanswered"]


def guarded() -> Talk:
    return Talk().pins(0, DIGEST_OF_FIRST).policy(1, "block", "block").lists(2, FIRST)


ANNOUNCED = ("none", None, "list_change_announced")


def test_from_an_announced_change_until_the_next_list_no_digest_is_claimed() -> None:
    """Live in the order of the logs, replayed, or joined when all of it is known: the same."""
    talk = Dialogue().lists(1, FIRST).calls(1.5).announces(2).calls(2).calls(2.5).lists(3, SECOND).calls(3)
    expected = [("observer", DIGEST_OF_FIRST, None), ANNOUNCED, ANNOUNCED, ("observer", DIGEST_OF_SECOND, None)]
    assert answers(talk.ends()) == answers(talk.joined_late()) == answers(talk.joined_in_order()) == expected


def test_evidence_names_the_list_shown_last_and_claims_nothing_of_it() -> None:
    outcome = Dialogue().lists(1, FIRST).announces(2).calls(3).ends()
    (payload,) = outcome.evidence
    assert payload["binding"] == {
        "scope": "none",
        "snapshot_id": "list-0",
        "origin": {"topic": "mcp.tools.list", "partition": 0, "offset": 0},
    }
    assert "tool_identity" not in payload
    assert found(outcome) == []


def test_what_other_observers_saw_is_not_claimed_either() -> None:
    talk = Dialogue().lists(1, FIRST).lists(1, FIRST, observer_id="proxy-2").announces(2)
    talk.calls(3).calls(3, observer_id="proxy-2").calls(3, observer_id="proxy-3")
    assert answers(talk.ends()) == [ANNOUNCED, ("observer", DIGEST_OF_FIRST, None), ("server", DIGEST_OF_FIRST, None)]


def test_an_observer_without_a_list_who_was_told_of_a_change_is_bound_to_nothing() -> None:
    """Real servers announce before they are asked for the first time."""
    outcome = Dialogue().lists(1, FIRST, observer_id="proxy-2").announces(2).calls(3).ends()
    assert answer(outcome) == ANNOUNCED
    assert outcome.evidence[0]["binding"] == {"scope": "none"}


def test_an_announced_list_takes_no_part_in_the_agreement_of_others() -> None:
    talk = Dialogue().lists(1, FIRST).lists(1, SECOND, observer_id="proxy-2").announces(2)
    assert answer(talk.calls(3, observer_id="proxy-3").ends()) == ("server", DIGEST_OF_SECOND, None)


def test_a_publisher_that_names_a_list_is_taken_at_its_word() -> None:
    outcome = Dialogue().lists(1, FIRST).announces(2).calls(3, snapshot_id="list-0").ends()
    assert answer(outcome) == ("exact", DIGEST_OF_FIRST, None)


def test_of_an_announcement_and_a_list_at_one_moment_the_later_in_the_log_counts() -> None:
    """A server can write both in one go."""
    listed_last = Dialogue().lists(1, FIRST).announces(2).lists(2, SECOND).calls(3)
    announced_last = Dialogue().lists(1, FIRST).lists(2, SECOND).announces(2).calls(3)
    assert answer(listed_last.ends()) == ("observer", DIGEST_OF_SECOND, None)
    assert answer(announced_last.ends()) == ANNOUNCED


def test_a_recording_that_is_published_twice_changes_nothing() -> None:
    talk = Dialogue().lists(1, FIRST).announces(2).lists(2, SECOND).announces(3).lists(4, FIRST)
    again = list(talk.records)
    for number, record in enumerate(again, start=len(again)):
        talk.records.append(record._replace(origin=record.origin._replace(offset=number)))
    outcome = talk.calls(2.5).calls(3.5).calls(5).ends()
    assert answers(outcome) == [("observer", DIGEST_OF_SECOND, None), ANNOUNCED, ("observer", DIGEST_OF_FIRST, None)]


def test_announcements_that_go_on_without_a_list_are_found_once() -> None:
    talk = Dialogue().lists(0, FIRST)
    for number in range(10):
        talk.announces(number * 20)
    (finding,) = found(talk.ends())
    assert (finding["observer_id"], finding.get("tool_name")) == ("proxy-1", None)
    assert finding["time_us"] % 3_600_000_000 == (LIMIT_S + 20) * 1_000_000


def test_calls_long_after_an_announcement_without_a_list_are_found() -> None:
    talk = Dialogue().lists(0, FIRST).announces(1).calls(1 + LIMIT_S).calls(1.001 + LIMIT_S).calls(500)
    outcome = talk.ends()
    assert {finding["snapshot_id"] for finding in found(outcome)} == {"list-0"}
    assert len(found(outcome)) == 2
    assert found(talk.joined_late()) == found(outcome)
    alert = alerts_of(outcome)[-1]
    assert (alert["finding_info"]["types"], alert["count"]) == (["list_change_unanswered"], 2)


def test_a_server_that_outdates_every_list_at_once_is_found() -> None:
    """A list that does not last is no answer: else a server could keep its calls unbound for ever."""
    talk = Dialogue()
    for number in range(12):
        talk.lists(number * 10, FIRST).announces(number * 10 + 0.1)
    outcome = talk.calls(115).ends()
    assert answer(outcome) == ANNOUNCED
    by_registry, by_join = found(outcome)
    assert by_registry["origin"]["topic"] == "mcp.tools.list"
    assert by_join["origin"]["topic"] == "mcp.tools.call"


def test_a_server_that_changes_now_and_then_is_quiet() -> None:
    talk = Dialogue().lists(0, FIRST)
    for number in range(1, 6):
        talk.announces(number * 100).calls(number * 100 + 0.1).lists(number * 100 + 1, FIRST)
        talk.calls(number * 100 + 2)
    outcome = talk.ends()
    assert answers(outcome) == [ANNOUNCED, ("observer", DIGEST_OF_FIRST, None)] * 5
    assert findings_of(outcome) == []


def test_a_pinned_tool_whose_observation_was_dropped_is_unobserved() -> None:
    talk = guarded()
    talk.announces(3)
    outcome = talk.calls(4).ends()
    pin = outcome.evidence[0]["pin"]
    assert (pin["status"], pin["reason_code"], pin["action"]) == ("unobserved", "P_TOOL_UNOBSERVED", "block")


def test_verdicts_go_by_the_definition_shown_last() -> None:
    talk = guarded()
    quiet = talk.ends().all_bytes(Role.VERDICTS)
    assert talk.announces(3).ends().all_bytes(Role.VERDICTS) == quiet


def test_history_that_is_folded_away_takes_its_announcements_along() -> None:
    """A chatty server does not fill the memory, and old calls are said to be too old."""
    talk = Dialogue()
    count = DEFAULT_LIMITS.timeline_entries_max + 20
    for number in range(count):
        talk.lists(number, FIRST if number % 2 else OTHER).announces(number + 0.5)
    outcome = talk.joined_in_order()
    labels = [output.label for output in outcome.of(Role.BINDINGS)]
    facts = {output.key: output.value for output in outcome.of(Role.BINDINGS)}
    kept = [key for key, value in facts.items() if value is not None and b'"announcement"' in (key or b"")]
    assert labels.count("fact:announcement") >= count
    assert len(kept) <= DEFAULT_LIMITS.timeline_entries_max + 1
    assert answer(talk.calls(1.7).joined_late()) == ("none", None, "history_folded")


@pytest.mark.parametrize("fields", [{"observer_id": ""}, {"observer_id": None}, {"session_id": 3}])
def test_an_announcement_that_cannot_be_read_is_refused_like_a_list(fields: dict[str, Any]) -> None:
    """It must not leave the old list in force."""
    outcome = Dialogue().lists(0, FIRST).announces(1, **fields).calls(2).ends()
    assert len(outcome.refusals) == 1
    assert answer(outcome) == ("none", None, "snapshot_rejected")
