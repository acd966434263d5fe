"""Which definitions a sound signature returns to, in lists that do not name them all."""

from __future__ import annotations

from typing import Any

from tests.acceptance.test_binding_dialogue import FIRST, OTHER, SECOND
from tests.acceptance.test_signatures_dialogue import SignedTalk
from tests.support.events import Outcome


def ends(outcome: Outcome) -> int:
    return [output.label for output in outcome.outputs].count("resolution:signature_returned")


def after(*between: dict[str, Any], **fields: Any) -> int:
    """The ends told when a definition came signed, unsigned, in a list of other tools, and signed again."""
    talk = SignedTalk().discovered(0).signs(1).unsigned(2, FIRST).unsigned(3, *between, **fields)
    return ends(talk.signs(4).signs(5).ends())


def test_what_counts_is_how_the_tool_was_listed_last() -> None:
    assert after(OTHER, completeness="partial") == 1
    assert after(OTHER) == 1


def test_a_definition_that_was_another_one_in_between_has_ended_already() -> None:
    assert after(SECOND) == 0


def test_a_first_signature_ends_nothing() -> None:
    assert ends(SignedTalk().discovered(0).unsigned(1, FIRST).signs(2).ends()) == 0
