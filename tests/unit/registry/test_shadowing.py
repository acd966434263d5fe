"""Who takes whose name, from the claims to look-alike names."""

from typing import Any

from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.finding import NameClaim
from assay_stream.registry.name_claims import name_sketch, shadows, shadows_beyond, with_claim
from tests.support.findings import a_claim


def after(*claims: NameClaim) -> dict[str, Any]:
    state: dict[str, Any] = {}
    for claim in claims:
        state = with_claim(state, claim)
    return state


def told(*claims: NameClaim) -> list[tuple[str, str, str, str]]:
    return [(one.server_id, one.tool_name, one.reason, holder) for one, holder in shadows(after(*claims)).items()]


def test_of_equal_times_the_lesser_server_holds_the_name() -> None:
    """So that it is decided the same everywhere."""
    old, new = a_claim("a", "read_file", 1), a_claim("b", "read-file", 1)
    assert told(new, old) == [("b", "read-file", "confusable_name", "a")]


def test_a_server_that_changes_its_definition_keeps_its_place() -> None:
    """Else the upgrade of the one that was imitated would put the blame on it."""
    old, new = a_claim("a", "read_file", 1), a_claim("b", "read-file", 2)
    upgraded = a_claim("a", "read_file", 3, definition="upgrade")
    gone = a_claim("a", "read_file", 3, is_offered=False)
    assert told(old, new, upgraded, gone) == [("b", "read-file", "confusable_name", "a")]


def test_an_approval_makes_no_name_older() -> None:
    """Its time is that of a decision, which may lie before the list."""
    holder, late = a_claim("b", "read_file", 1), a_claim("a", "read-file", 2)
    assert told(holder, late, a_claim("a", "read-file", 0, approved=True)) == []


NOTES, MAIL = name_sketch(["save_note", "list_notes"]), name_sketch(["send_email", "list_mails"])


def test_a_name_that_was_there_from_the_first_is_not_taken() -> None:
    """Unrelated products have names like ``search`` in common."""
    old = a_claim("a", "search", 1, sketch=MAIL)
    new = a_claim("b", "search", 2, definition="other", sketch=NOTES)
    assert told(old, new) == [("b", "search", "same_name", "a")]


def test_many_equal_deployments_stand_for_one_another() -> None:
    """Of a product that is deployed hundreds of times, its own look-alike is still held against another server."""
    fleet = [a_claim(f"s{number}", "read_file", 1) for number in range(5)]
    own = a_claim("s0", "read-file", 2)
    assert told(*fleet, own) == [("s0", "read-file", "confusable_name", "s1")]


MOST = DEFAULT_LIMITS.name_claims_max
FULL = after(*(a_claim(f"s{number:04}", "read_file", 1) for number in range(MOST)))


def beyond(claim: NameClaim) -> list[tuple[str, str, str]]:
    return [
        (one.server_id, one.reason, holder) for one, holder in shadows_beyond(with_claim(FULL, claim), claim).items()
    ]


def test_claims_beyond_the_bound_are_counted() -> None:
    state = with_claim(with_claim(FULL, a_claim("x", "read_file", 2)), a_claim("y", "read-file", 2))
    assert (state["names"], state["left_out"]) == (FULL["names"], 2)


def test_nobody_hides_behind_the_bound() -> None:
    """What finds no room is the newest of all, also where its clock says otherwise."""
    assert beyond(a_claim("x", "read-file", 0)) == [("x", "confusable_name", "s0000")]
    assert beyond(a_claim("x", "read_file", 2, definition="other")) == [("x", "same_name", "s0000")]
    assert beyond(a_claim("x", "read_file", 2, definition="other", added=True, sketch=NOTES)) == [
        ("x", "taken_name", "s0000")
    ]


def test_beyond_the_bound_too_one_product_is_one_product() -> None:
    assert beyond(a_claim("x", "read_file", 2)) == []
    assert beyond(a_claim("x", "read-file", 2, approved=True)) == []


def test_a_holder_that_finds_no_room_for_an_upgrade_stays_the_holder() -> None:
    """It is held against those before it only."""
    assert beyond(a_claim("s0000", "read_file", 2, definition="other")) == []
    assert beyond(a_claim("s0001", "read_file", 2, definition="other")) == [("s0001", "same_name", "s0000")]
