"""Dialogues about pins and policies: what operators decide, what agents do, and what is written about it.

Digests are those of the published vectors, never our own output.
"""

import itertools
import json
from typing import Any, Self

import pytest

from assay_stream.model.record import Role
from tests.acceptance.test_binding_dialogue import (
    DIGEST_OF_FIRST,
    DIGEST_OF_SECOND,
    DIGEST_OF_THIRD,
    FIRST,
    SECOND,
    THIRD,
    Dialogue,
    findings_of,
    full_digest,
)
from tests.support.controls import DOMAIN, a_control, a_document, signature_of
from tests.support.events import SERVER, Outcome, a_snapshot

PIN: dict[str, Any] = {"tool_name": "read_file", "scheme": "assay.v1"}


class Talk(Dialogue):
    def control(self, second: float, kind: str, *, given: float | None = None, **data: Any) -> Self:
        value = a_control(kind, number=len(self.records), second=second if given is None else given, **data)
        return self._add(Role.CONTROL, value, second)

    def pins(self, second: float, value: str | None, *, act: str = "set", **data: Any) -> Self:
        return self.control(second, f"pin.{act}", **{**PIN, "value": value, **data})

    def policy(self, second: float, enforcement: str, unknown: str = "allow_degraded", **data: Any) -> Self:
        return self.control(second, "policy.set", enforcement=enforcement, unknown=unknown, **data)


def changes_of(outcome: Outcome) -> list[dict[str, Any]]:
    return [json.loads(output.value or b"")["data"] for output in outcome.of(Role.CHANGES)]


def verdicts_of(outcome: Outcome) -> dict[str | None, dict[str, Any]]:
    last = {output.key: output.value for output in outcome.of(Role.VERDICTS)}
    return {json.loads(key or b"")[1]: json.loads(value) for key, value in last.items() if value is not None}


def statuses(outcome: Outcome) -> list[str]:
    return [payload["pin"]["status"] for payload in outcome.evidence]


def found(outcome: Outcome, *kinds: str) -> list[str]:
    return [finding["kind"] for finding in findings_of(outcome) if finding["kind"] in kinds]


# --- a swap under a pin -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("enforcement", "action"), [("audit", "allow"), ("warn", "warn"), ("block", "block")])
def test_a_definition_swapped_under_its_pin_is_a_mismatch_with_the_policy_s_action(
    enforcement: str, action: str
) -> None:
    talk = Talk().policy(0, enforcement).lists(1, FIRST).pins(2, DIGEST_OF_FIRST).calls(3)
    outcome = talk.lists(4, SECOND).calls(5).ends()
    before, after = (payload["pin"] for payload in outcome.evidence)
    assert (before["status"], before["action"]) == ("match", "allow")
    assert after == {
        "status": "mismatch",
        "scheme": "assay.v1",
        "expected": DIGEST_OF_FIRST,
        "observed": DIGEST_OF_SECOND,
        "enforcement": enforcement,
        "action": action,
        "reason_code": "P_TOOL_DRIFT",
    }
    (finding,) = (one for one in findings_of(outcome) if one["kind"] == "pin_mismatch")
    assert (finding["after"], finding["action"]) == (full_digest(SECOND), action)


@pytest.mark.parametrize(
    ("decision", "enforcement", "wanted"),
    [
        ("allow", "block", ["blocked_tool_called"]),
        ("deny", "block", []),
        ("requires_approval", "block", []),
        ("allow", "warn", []),
        ("allow", "audit", []),
    ],
)
def test_a_call_that_was_allowed_and_should_not_have_been_raises_an_alert(
    decision: str, enforcement: str, wanted: list[str]
) -> None:
    """The stream blocks nothing: it says that the policy would have."""
    talk = Talk().policy(0, enforcement).pins(1, DIGEST_OF_FIRST).lists(2, SECOND)
    outcome = talk.calls(3, decision=decision).ends()
    assert found(outcome, "blocked_tool_called") == wanted
    alerts = [json.loads(output.value or b"") for output in outcome.of(Role.ALERTS)]
    raised = [alert for alert in alerts if "blocked_tool_called" in alert["finding_info"]["types"]]
    assert len(raised) == len(wanted)


def test_a_policy_taken_back_blocks_nothing_and_leaves_no_verdict() -> None:
    talk = Talk().policy(0, "block", "block").lists(1, FIRST).calls(2)
    outcome = talk.control(3, "policy.remove").calls(4).ends()
    assert [payload["pin"].get("action") for payload in outcome.evidence] == ["block", None]
    assert verdicts_of(outcome) == {}


def test_without_a_policy_nothing_would_have_been_blocked() -> None:
    outcome = Talk().pins(0, DIGEST_OF_FIRST).lists(1, SECOND).calls(2).ends()
    assert "action" not in outcome.evidence[0]["pin"]
    assert found(outcome, "pin_mismatch", "blocked_tool_called") == ["pin_mismatch"]


def test_a_blocked_call_of_a_tool_that_is_not_listed_is_found_too() -> None:
    talk = Talk().policy(0, "block", "block").lists(1, FIRST).calls(2, tool_name="ghost")
    outcome = talk.ends()
    kinds = ("call_to_unlisted_tool", "blocked_tool_called")
    assert found(outcome, *kinds) == list(kinds)


# --- unpinned tools -----------------------------------------------------------------------------------------


def test_an_unpinned_tool_is_found_where_the_policy_asks_for_pins() -> None:
    talk = Talk().policy(0, "block", "warn").lists(1, FIRST).calls(2)
    outcome = talk.pins(3, DIGEST_OF_FIRST).lists(4, FIRST, observer_id="proxy-2").calls(5).ends()
    assert found(outcome, "unpinned_tool") == ["unpinned_tool"]
    assert [payload["pin"].get("action") for payload in outcome.evidence] == ["warn", "allow"]


def test_a_policy_set_afterwards_finds_what_is_offered_already() -> None:
    talk = Talk().lists(0, FIRST).lists(1, FIRST, observer_id="proxy-2").policy(2, "block", "block")
    outcome = talk.ends()
    (finding,) = (one for one in findings_of(outcome) if one["kind"] == "unpinned_tool")
    assert finding["origin"] == {"topic": "assay.control", "partition": 0, "offset": 0}
    assert "observer_id" not in finding


# --- approve, reject, remove --------------------------------------------------------------------------------


def test_approve_reject_and_remove_in_turn() -> None:
    talk = Talk().lists(0, FIRST).calls(1)
    talk.pins(2, DIGEST_OF_SECOND).calls(3)
    talk.pins(4, DIGEST_OF_FIRST).calls(5)
    talk.pins(6, DIGEST_OF_FIRST, act="reject").calls(7)
    talk.pins(8, DIGEST_OF_FIRST, act="remove").calls(9)
    assert statuses(talk.ends()) == ["unpinned", "mismatch", "match", "rejected", "unpinned"]


def test_the_pin_of_a_scheme_can_be_removed_without_naming_its_value() -> None:
    talk = Talk().lists(0, FIRST).pins(1, DIGEST_OF_SECOND).pins(2, DIGEST_OF_FIRST, act="reject")
    talk.pins(3, None, act="remove").calls(4).lists(5, SECOND).calls(6)
    assert statuses(talk.ends()) == ["rejected", "unpinned"]


def test_a_change_that_is_approved_is_wrong_no_more() -> None:
    talk = Talk().policy(0, "block").pins(1, DIGEST_OF_FIRST).lists(2, SECOND).calls(3)
    outcome = talk.pins(4, DIGEST_OF_SECOND).lists(5, SECOND, observer_id="proxy-2").calls(6).ends()
    assert statuses(outcome) == ["mismatch", "match"]
    assert found(outcome, "pin_mismatch") == ["pin_mismatch"]
    assert verdicts_of(outcome)["read_file"]["action"] == "allow"


def test_a_tool_that_was_rejected_is_found_at_the_decision() -> None:
    outcome = Talk().lists(0, FIRST).pins(1, DIGEST_OF_FIRST, act="reject").ends()
    (finding,) = (one for one in findings_of(outcome) if one["kind"] == "pin_mismatch")
    assert (finding["reason"], finding["origin"]["topic"]) == ("rejected", "assay.control")


# --- conflicts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_of_two_decisions_that_conflict_the_later_wins_and_both_are_kept(order: tuple[int, int]) -> None:
    values = {1: DIGEST_OF_SECOND, 2: DIGEST_OF_FIRST}
    talk = Talk().lists(0, FIRST)
    for number, given in enumerate(order):
        talk.pins(3 + number, values[given], given=given)
    outcome = talk.calls(9).ends()
    assert statuses(outcome) == ["match"]
    changes = changes_of(outcome)
    assert [change["value"] for change in changes] == [values[given] for given in order]
    assert [change["superseded"] for change in changes] == [False, order == (2, 1)]


def test_both_of_two_conflicting_decisions_stand_in_the_binding_topic() -> None:
    talk = Talk().pins(1, DIGEST_OF_FIRST).pins(2, DIGEST_OF_SECOND)
    facts = [output for output in talk.joined_late().of(Role.BINDINGS) if b'"pin"' in (output.key or b"")]
    assert len({output.key for output in facts}) == 2
    assert [json.loads(output.value or b"")["value"] for output in facts] == [DIGEST_OF_FIRST, DIGEST_OF_SECOND]


def test_at_one_time_the_later_in_the_log_wins() -> None:
    talk = Talk().lists(0, FIRST).pins(1, DIGEST_OF_SECOND).pins(1, DIGEST_OF_FIRST).calls(2)
    assert statuses(talk.ends()) == ["match"]


# --- bad input ----------------------------------------------------------------------------------------------


def test_a_pin_for_a_tool_never_seen_is_reported_in_the_verdict() -> None:
    """A slip of the pen pins nothing, and is seen: its status is ``unobserved``."""
    outcome = Talk().lists(0, FIRST).pins(1, DIGEST_OF_FIRST, tool_name="raed_file").calls(2).ends()
    assert statuses(outcome) == ["unpinned"]
    verdict = verdicts_of(outcome)["raed_file"]
    assert (verdict["status"], verdict["expected"]) == ("unobserved", DIGEST_OF_FIRST)


def test_a_pin_set_before_its_tool_is_offered_waits_for_it() -> None:
    talk = Talk().pins(0, DIGEST_OF_FIRST)
    assert verdicts_of(talk.ends())["read_file"]["status"] == "unobserved"
    assert verdicts_of(talk.lists(1, FIRST).ends())["read_file"]["status"] == "match"
    assert verdicts_of(talk.lists(2, SECOND).ends())["read_file"]["status"] == "mismatch"


# --- policies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_tool_s_policy_goes_before_its_server_s(order: tuple[int, int]) -> None:
    policies = [("block", {}), ("warn", {"tool_name": "read_file"})]
    talk = Talk().pins(0, DIGEST_OF_FIRST).lists(1, SECOND)
    for number, index in enumerate(order):
        enforcement, data = policies[index]
        talk.policy(2 + number, enforcement, **data)
    outcome = talk.calls(5).ends()
    assert (outcome.evidence[0]["pin"]["action"], found(outcome, "blocked_tool_called")) == ("warn", [])
    assert verdicts_of(outcome)["read_file"]["action"] == "warn"
    assert verdicts_of(outcome)[None]["policy"]["enforcement"] == "block"


# --- event time ---------------------------------------------------------------------------------------------


def test_a_decision_leaves_the_calls_before_it_untouched() -> None:
    calls = Talk().lists(0, FIRST).calls(1)
    decided = Talk().lists(0, FIRST).calls(1).policy(2, "block").pins(3, DIGEST_OF_SECOND).calls(4)
    first, other = (talk.joined_late().of(Role.EVIDENCE)[0].value for talk in (calls, decided))
    assert other == first
    assert calls.ends().of(Role.EVIDENCE)[0] == decided.ends().of(Role.EVIDENCE)[0]


def test_a_decision_counts_from_its_own_time_and_not_from_its_publishing() -> None:
    """A replay agrees with a call that was joined when the decision was known."""
    talk = Talk().lists(0, FIRST).calls(2).calls(4).pins(6, DIGEST_OF_SECOND, given=3)
    assert statuses(talk.ends()) == ["unpinned", "mismatch"]
    assert statuses(talk.joined_late()) == ["unpinned", "mismatch"]


# --- evidence of changes ------------------------------------------------------------------------------------


def test_every_change_is_evidence_with_what_it_replaced() -> None:
    talk = Talk().pins(0, DIGEST_OF_FIRST).pins(1, DIGEST_OF_SECOND, author="bob", reason="release 2")
    talk.policy(2, "warn").policy(3, "block", "block").pins(4, None, act="remove")
    changes = changes_of(talk.ends())
    assert [change["change"] for change in changes] == ["pin.set"] * 2 + ["policy.set"] * 2 + ["pin.remove"]
    assert [change.get("replaces") for change in changes] == [
        None,
        DIGEST_OF_FIRST,
        None,
        {"enforcement": "warn", "unknown": "allow_degraded"},
        DIGEST_OF_SECOND,
    ]
    second = changes[1]
    assert (second["author"], second["reason"], second["server_id"]) == ("bob", "release 2", SERVER)
    assert second["origin"] == {"topic": "assay.control", "partition": 0, "offset": 1}


def test_a_refused_control_record_changes_nothing_and_is_kept() -> None:
    talk = Talk().lists(0, FIRST).pins(1, DIGEST_OF_FIRST).control(2, "pin.set", **PIN).calls(3)
    outcome = talk.ends()
    assert (outcome.refusals, len(changes_of(outcome)), statuses(outcome)) == (["missing_field"], 1, ["match"])


# --- verdicts -----------------------------------------------------------------------------------------------


def test_the_standing_verdict_follows_the_tool() -> None:
    talk = Talk().policy(0, "block").pins(1, DIGEST_OF_FIRST).lists(2, FIRST).lists(3, FIRST).lists(4, SECOND)
    outcome = talk.lists(5, SECOND).pins(6, DIGEST_OF_THIRD).lists(7, THIRD).ends()
    written = [
        json.loads(output.value or b"")
        for output in outcome.of(Role.VERDICTS)
        if json.loads(output.key or b"")[1] == "read_file"
    ]
    told = [(verdict["status"], verdict["action"]) for verdict in written]
    assert [status for status, _ in itertools.groupby(told)] == [
        ("unobserved", "allow"),
        ("match", "allow"),
        ("mismatch", "block"),
        ("match", "allow"),
    ]


def test_the_verdict_of_a_tool_that_nobody_decides_on_any_more_is_deleted() -> None:
    outcome = Talk().lists(0, FIRST).pins(1, DIGEST_OF_FIRST).pins(2, None, act="remove").ends()
    assert [output.value is None for output in outcome.of(Role.VERDICTS)] == [False, True]


def test_a_definition_that_is_swapped_for_one_observer_only_is_told_to_all() -> None:
    talk = Talk().policy(0, "block").pins(1, DIGEST_OF_FIRST).lists(2, FIRST)
    outcome = talk.lists(3, SECOND, observer_id="proxy-2").calls(4).ends()
    assert statuses(outcome) == ["match"]
    assert verdicts_of(outcome)["read_file"]["action"] == "block"


def test_a_list_that_comes_late_finds_nothing_twice() -> None:
    talk = Talk().lists(0, FIRST).pins(4, DIGEST_OF_SECOND)
    # Published after the pin, observed before it.
    value = a_snapshot(FIRST, number=9, second=2, snapshot_id="late", observer_id="proxy-2")
    talk._add(Role.SNAPSHOTS, value, 5)
    assert found(talk.joined_late(), "pin_mismatch") == ["pin_mismatch"]


def test_a_first_use_that_comes_late_is_held_against_others_lists() -> None:
    document: dict[str, Any] = {"status": "observed", "document": a_document()}
    talk = Talk().control(0, "discovery.observed", domain=DOMAIN, **document).lists(4, FIRST)
    signed = {"read_file": signature_of(FIRST)}
    value = a_snapshot(FIRST, number=9, second=2, snapshot_id="late", observer_id="proxy-2", signatures=signed)
    talk._add(Role.SNAPSHOTS, value, 5)
    assert found(talk.joined_late(), "signature_missing") == ["signature_missing"]
