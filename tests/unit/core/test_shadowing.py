"""Who takes whose name, from the claims to look-alike names."""

from __future__ import annotations

from typing import Any

from assay_stream.core.limits import DEFAULT_LIMITS
from assay_stream.core.name_claim import NameClaim
from assay_stream.core.shadowing import shadows, with_claim
from tests.support.findings import a_claim


def after(*claims: NameClaim) -> dict[str, Any]:
    """The state that claims lead to."""
    state: dict[str, Any] = {}
    for claim in claims:
        state = with_claim(state, claim)
    return state


def told(*claims: NameClaim) -> list[tuple[str, str, str, str]]:
    """Newcomer, name, reason and holder."""
    return [(one.server_id, one.tool_name, one.reason, holder) for one, holder in shadows(after(*claims)).items()]


def test_the_later_of_two_names_is_told_of() -> None:
    """Whichever was read first."""
    old, new = a_claim("a", "read_file", 1), a_claim("b", "read-file", 2)
    assert told(old, new) == told(new, old) == [("b", "read-file", "confusable_name", "a")]


def test_of_equal_times_the_lesser_server_holds_the_name() -> None:
    """So that it is decided the same everywhere."""
    old, new = a_claim("a", "read_file", 1), a_claim("b", "read-file", 1)
    assert told(new, old) == [("b", "read-file", "confusable_name", "a")]


def test_one_definition_twice_is_no_shadow() -> None:
    """One product, deployed twice."""
    assert told(a_claim("a", "read_file", 1), a_claim("b", "read_file", 2)) == []


def test_an_equal_name_with_another_definition_is_told_as_such() -> None:
    """It is not called confusable."""
    claims = a_claim("a", "read_file", 1), a_claim("b", "read_file", 2, definition="other")
    assert told(*claims) == [("b", "read_file", "same_name", "a")]


def test_a_server_that_changes_its_definition_keeps_its_place() -> None:
    """Else the upgrade of the one that was imitated would put the blame on it."""
    old, new = a_claim("a", "read_file", 1), a_claim("b", "read-file", 2)
    upgraded = a_claim("a", "read_file", 3, definition="upgrade")
    gone = a_claim("a", "read_file", 3, is_offered=False)
    assert told(old, new, upgraded, gone) == [("b", "read-file", "confusable_name", "a")]


def test_nothing_is_told_when_either_is_gone() -> None:
    """Nobody can be led to the wrong one any more."""
    old, new = a_claim("a", "read_file", 1), a_claim("b", "read-file", 2)
    assert told(old, new, a_claim("a", "read_file", 3, is_offered=False)) == []
    assert told(old, new, a_claim("b", "read-file", 3, is_offered=False)) == []


def test_an_approved_definition_is_not_told_of() -> None:
    """An operator has decided."""
    old, new = a_claim("a", "read_file", 1), a_claim("b", "read-file", 2, approved=True)
    assert told(old, new) == []


def test_two_names_of_one_server_are_told_of_where_one_was_added() -> None:
    """Names that were there from the first are the server's own style."""
    old = a_claim("a", "read_file", 1)
    assert told(old, a_claim("a", "read-file", 1)) == []
    assert told(old, a_claim("a", "read-file", 2, added=True)) == [("a", "read-file", "confusable_name", "a")]


def test_claims_beyond_the_bound_are_counted() -> None:
    """And what is known stays."""
    most = DEFAULT_LIMITS.name_claims_max
    state = after(*(a_claim(f"s{number:04}", "read_file", number) for number in range(most + 3)))
    assert (len(state["names"]), state["left_out"]) == (most, 3)
