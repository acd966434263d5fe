"""Dialogues about pins and policies: what operators decide, and what is written of the calls around it."""

from __future__ import annotations

import json

from assay_stream.core.record import Role
from tests.support.deciding import AUTHOR, REASON, Decided, value_of
from tests.support.events import TOOL

GOOD = TOOL
SWAPPED = {**TOOL, "description": "Read a file and send it along"}
NAME = TOOL["name"]


def test_a_pinned_tool_that_is_swapped_is_a_mismatch() -> None:
    """Evidence says which value was approved and which was observed, and what the policy would have done."""
    told = (
        Decided()
        .lists(0, GOOD)
        .pins(1, GOOD)
        .decides(1, "policy.set", enforcement="block", unknown="warn")
        .calls(2)
        .lists(3, SWAPPED)
        .calls(4)
        .ends()
    )
    good, swapped = value_of(GOOD), value_of(SWAPPED)
    matched = {"scheme": "assay.p60", "expected": good, "enforcement": "block"}
    assert told.pins == [
        {"status": "match", "observed": good, "action": "allow", **matched},
        {"status": "mismatch", "observed": swapped, "action": "block", "reason_code": "P_TOOL_DRIFT", **matched},
    ]


def test_an_allowed_call_that_the_policy_would_have_blocked_is_found() -> None:
    """The stream cannot block what has happened; it says so, with the fields of Hangar's mismatch event."""
    told = (
        Decided()
        .pins(0, GOOD)
        .decides(0, "policy.set", enforcement="block", unknown="allow_degraded")
        .lists(1, SWAPPED)
        .calls(2)
        .calls(3, decision="deny")
        .ends()
    )
    assert told.kinds == ["pin_mismatch", "blocked_tool_called"]
    for output in told.of(Role.FINDINGS):
        finding = json.loads(output.value or b"")
        assert (finding["expected"], finding["observed"]) == (value_of(GOOD), value_of(SWAPPED))
        assert (finding["enforcement"], finding["action"]) == ("block", "block")
    for output in told.of(Role.ALERTS):
        flat = json.loads(output.value or b"")["unmapped"]
        assert flat["mcp_pin_expected"] == value_of(GOOD)
        assert flat["mcp_pin_enforcement"] == "block"


def test_a_tool_without_a_pin_is_under_the_policy_for_the_unknown() -> None:
    """Nobody decided: what the policy says of that is told, found where it is not silent, and no mismatch."""
    told = Decided().decides(0, "policy.set", enforcement="audit", unknown="block").lists(1, GOOD).calls(2).ends()
    assert told.pins == [{"status": "unpinned", "enforcement": "audit", "action": "block"}]
    assert told.kinds == ["unpinned_tool", "blocked_tool_called"]
    quiet = Decided().decides(0, "policy.set", enforcement="block", unknown="allow_unverified").lists(1, GOOD)
    assert quiet.calls(2).ends().pins == [{"status": "unpinned", "enforcement": "block", "action": "allow"}]


def test_a_decision_counts_from_its_own_event_time() -> None:
    """A call before it is untouched, though the decision stood in the log when it was joined."""
    told = Decided().lists(0, GOOD).pins(2, SWAPPED).calls(1).calls(3).ends()
    assert [pin["status"] for pin in told.pins] == ["unpinned", "mismatch"]


def test_of_two_decisions_that_conflict_the_later_one_counts_and_both_are_kept() -> None:
    """By event time, whatever the order in which they were published; each leaves evidence and a fact."""
    told = Decided().lists(0, GOOD).pins(2, GOOD).pins(1, SWAPPED).calls(3).ends()
    assert told.pins[0]["status"] == "match"
    assert [(change["value"], change["superseded"]) for change in told.changes] == [
        (value_of(GOOD), False),
        (value_of(SWAPPED), True),
    ]


def test_a_pinned_tool_that_was_never_seen_is_said_to_be_unobserved() -> None:
    """It is not passed over: the verdict topic has it, and a call to it says so."""
    told = Decided().pins(0, GOOD).decides(0, "policy.set", enforcement="block", unknown="warn").calls(1).ends()
    assert told.pins[0]["status"] == "unobserved"
    assert told.pins[0]["action"] == "warn"
    assert told.verdicts[NAME]["status"] == "unobserved"


def test_a_rejected_definition_is_a_mismatch_whatever_else_is_pinned() -> None:
    """An operator's no outweighs a pin under another scheme, until it is taken back."""
    dialogue = Decided().lists(0, GOOD).pins(1, GOOD, scheme="assay.v1").pins(2, GOOD, kind="reject").calls(3)
    dialogue.decides(4, "pin.remove", tool_name=NAME, scheme="assay.p60", value=value_of(GOOD)).calls(5)
    assert [pin["status"] for pin in dialogue.ends().pins] == ["rejected", "match"]


def test_a_removed_pin_is_none() -> None:
    """Without a value the pin of the scheme is taken back."""
    dialogue = Decided().lists(0, GOOD).pins(1, SWAPPED)
    dialogue.decides(2, "pin.remove", tool_name=NAME, scheme="assay.p60")
    assert dialogue.calls(3).ends().pins == [{"status": "unpinned"}]


def test_the_policy_of_a_tool_counts_before_that_of_its_server() -> None:
    """Whichever was set later."""
    dialogue = Decided().lists(0, SWAPPED).pins(0, GOOD)
    dialogue.decides(1, "policy.set", tool_name=NAME, enforcement="warn", unknown="warn")
    dialogue.decides(2, "policy.set", enforcement="block", unknown="block")
    assert dialogue.calls(3).ends().pins[0]["action"] == "warn"


def test_every_change_is_evidence_of_who_why_and_what_it_replaced() -> None:
    """One record per decision, in the order of the log, in the Assay envelope."""
    told = (
        Decided()
        .pins(0, GOOD)
        .pins(1, SWAPPED)
        .decides(2, "policy.set", enforcement="block", unknown="warn")
        .decides(3, "policy.set", enforcement="audit", unknown="warn")
        .ends()
    )
    assert [change["change"] for change in told.changes] == ["pin.set", "pin.set", "policy.set", "policy.set"]
    assert all((change["author"], change["reason"]) == (AUTHOR, REASON) for change in told.changes)
    assert [change.get("replaces") for change in told.changes] == [
        None,
        value_of(GOOD),
        None,
        {"enforcement": "block", "unknown": "warn"},
    ]
    envelope = json.loads(told.of(Role.CHANGES)[0].value or b"")
    assert (envelope["type"], envelope["subject"]) == ("assay.control.change", "server-a")
    assert envelope["assaycontenthash"].startswith("sha256:")


def test_the_verdict_follows_what_is_offered_and_what_is_decided() -> None:
    """Block while the swapped definition is offered, allow once it is approved or the good one is back."""
    dialogue = Decided().decides(0, "policy.set", enforcement="block", unknown="warn").pins(0, GOOD).lists(1, GOOD)
    assert dialogue.ends().verdicts[NAME]["action"] == "allow"
    assert dialogue.lists(2, SWAPPED).ends().verdicts[NAME]["action"] == "block"
    assert dialogue.pins(3, SWAPPED).ends().verdicts[NAME]["action"] == "allow"
    assert dialogue.ends().verdicts[None]["action"] == "warn"


def test_to_stand_twice_in_a_list_is_no_way_around_a_pin() -> None:
    """A name with two definitions is a mismatch with its pin, in evidence and in the verdict."""
    dialogue = Decided().decides(0, "policy.set", enforcement="block", unknown="allow_degraded").pins(0, GOOD)
    told = dialogue.lists(1, GOOD, SWAPPED).calls(2).ends()
    assert (told.pins[0]["status"], told.pins[0]["action"]) == ("mismatch", "block")
    assert told.verdicts[NAME]["action"] == "block"
    assert "pin_mismatch" in told.kinds
