"""Claims to tool names: as records, and when they are written."""

import pytest

from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.finding import decode_entry
from assay_stream.model.record import Origin
from assay_stream.registry.name_claims import claims_between, name_sketch, share_names
from tests.support.findings import A, B, a_claim

ORIGIN = Origin(topic="mcp.tools.list", partition=0, offset=1)


def test_a_claim_is_read_as_it_was_written() -> None:
    claim = a_claim("server", "Read-File", 1, sketch=name_sketch(["a", "b"]))
    assert decode_entry(claim.output().value) == claim
    assert claim.output().key == a_claim("other", "read_file").output().key


def test_what_stands_as_it_stood_is_not_claimed() -> None:
    offered = {("a", A): False}
    assert list(claims_between(offered, offered, "server", (1, ORIGIN))) == []


def test_an_upgrade_comes_before_it_goes() -> None:
    claims = claims_between({("a", A): False}, {("a", B): False}, "server", (1, ORIGIN))
    assert [(claim.full, claim.is_offered) for claim in claims] == [(B, True), (A, False)]


def test_an_approval_is_claimed() -> None:
    [claim] = claims_between({("a", A): True}, {("a", A): False}, "server", (1, ORIGIN))
    assert (claim.is_offered, claim.approved) == (True, False)


def test_a_name_is_added_where_a_complete_list_lacked_it() -> None:
    before, after = {("a", A): False}, {("a", A): False, ("a", B): False, ("b", A): False}
    claims = claims_between(before, after, "server", (1, ORIGIN), had_complete=True)
    assert [(claim.tool_name, claim.added) for claim in claims] == [("a", False), ("b", True)]


def test_names_that_come_where_there_were_none_are_a_first_list() -> None:
    """As of a server that offers nothing until somebody has signed in."""
    claims = claims_between({}, {("a", A): False}, "server", (1, ORIGIN), had_complete=True)
    assert [claim.added for claim in claims] == [False]


def test_a_claim_says_what_else_the_server_offered() -> None:
    """Before, so that many names that are taken at once do not vouch for one another; of a first list, in it."""
    old, new = {("a", A): False}, {("a", A): False, ("b", A): False, ("c", A): False}
    claims = [*claims_between(old, new, "server", (1, ORIGIN), had_complete=True)]
    assert {claim.sketch for claim in claims} == {name_sketch(["a"])}
    claims = [*claims_between({}, new, "server", (1, ORIGIN))]
    assert {claim.sketch for claim in claims} == {name_sketch(["a", "b", "c"])}


MOST = DEFAULT_LIMITS.name_sketch_max


def names(*numbers: int) -> list[str]:
    return [f"tool_{number}" for number in numbers]


def test_a_sketch_is_bounded_and_has_an_order_of_its_own() -> None:
    many = names(*range(500))
    assert len(name_sketch(many)) == MOST
    assert name_sketch(many) == name_sketch(reversed(many))


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        (range(4), range(5), True),
        (range(2), range(8), True),
        (range(2), range(9), False),
        (range(4), range(3, 8), False),
        (range(4), range(4, 8), False),
        (range(1), range(1), True),
        (range(0), range(3), False),
        (range(0), range(0), False),
    ],
    ids=["one more", "a quarter", "less", "one of eight", "none", "the only one", "none offered", "nothing at all"],
)
def test_names_are_shared_where_a_quarter_of_all_is_in_both(one: range, other: range, shared: bool) -> None:
    first, second = name_sketch(names(*one)), name_sketch(names(*other))
    assert share_names(first, second) is share_names(second, first) is shared


@pytest.mark.parametrize(("added", "shared"), [(40, True), (900, False)])
def test_of_more_names_the_share_is_estimated(added: int, shared: bool) -> None:
    """A release that adds 40 tools to 100 is one product; one hundred among a thousand are not the same."""
    old = name_sketch(names(*range(100)))
    assert share_names(old, name_sketch(names(*range(100 + added)))) is shared
