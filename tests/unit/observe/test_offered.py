"""Lists put together from pages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.observe.lists import Assembly, HiddenTool, Lister, Offered
from tests.support.mcp_dialogue import START


def page(lister: Lister, items: list[str], *, cursor: object = None, after: object = None) -> Assembly:
    params = {} if after is None else {"cursor": after}
    result = {"tools": items, "nextCursor": cursor} if cursor is not None else {"tools": items}
    return lister.result(lister.request(params), result, size_bytes=100)


@pytest.fixture
def lister() -> Lister:
    return Lister("tools", DEFAULT_LIMITS)


def test_pages_follow_their_cursors_and_the_empty_string_is_one(lister: Lister) -> None:
    """Partial until the last page, then complete."""
    assert page(lister, ["a"], cursor="").completeness == "partial"
    second = page(lister, ["b"], cursor="x", after="")
    assert (second.items, second.completeness) == (("a", "b"), "partial")
    last = page(lister, ["c"], after="x")
    assert (last.items, last.completeness) == (("a", "b", "c"), "complete")


def test_a_request_without_a_cursor_begins_anew(lister: Lister) -> None:
    page(lister, ["a"], cursor="x")
    assert page(lister, ["b"]).items == ("b",)


def test_a_cursor_nobody_gave_is_of_unknown_completeness_to_the_end(lister: Lister) -> None:
    page(lister, ["a"], cursor="x")
    assert page(lister, ["b"], after="y", cursor="z").completeness == "unknown"
    last = page(lister, ["c"], after="z")
    assert (last.items, last.completeness) == (("b", "c"), "unknown")


def test_two_walks_at_once_do_not_mix(lister: Lister) -> None:
    """A request keeps what it continued when it was sent."""
    page(lister, ["a"], cursor="x")
    first, second = lister.request({"cursor": "x"}), lister.request({"cursor": "x"})
    one = lister.result(first, {"tools": ["b"]}, size_bytes=1)
    two = lister.result(second, {"tools": ["b"]}, size_bytes=1)
    assert one.items == two.items == ("a", "b")
    assert one.completeness == two.completeness == "complete"


def test_a_number_is_not_the_cursor_it_looks_like(lister: Lister) -> None:
    page(lister, ["a"], cursor=1)
    assert page(lister, ["b"], after=True).completeness == "unknown"


def test_after_an_unreadable_page_nothing_is_known_of_the_rest(lister: Lister) -> None:
    lister.unreadable({"nextCursor": "x"})
    assert page(lister, ["b"], after="x").completeness == "unknown"
    lister.result(lister.request({}), {"tools": 3, "nextCursor": "y"}, size_bytes=1)
    assert page(lister, ["c"], after="y").completeness == "unknown"


def test_an_endless_list_costs_bounded_memory() -> None:
    """Entries stop at one over the limit, bytes at the size of a record."""
    limits = replace(DEFAULT_LIMITS, tools_max=3, record_bytes_max=450)
    lister = Lister("tools", limits)
    page(lister, ["a", "b"], cursor="x")
    assert page(lister, ["c", "d", "e"], after="x", cursor="y").items == ("a", "b", "c", "d")
    for _ in range(3):
        assembly = page(lister, ["f"], after="y", cursor="y")
    assert assembly.too_large
    assert assembly.items == ()


def test_what_an_endless_list_hides_costs_bounded_memory() -> None:
    """As many entries as are kept of the list itself, and none of a list that is not kept."""
    lister = Lister("tools", replace(DEFAULT_LIMITS, tools_max=3, record_bytes_max=450))
    page_ = {"tools": ["a", "b"], "nextCursor": "x"}
    hidden = [HiddenTool("a", "1"), HiddenTool("b", "2")]
    assembly, kept = Assembly(), []
    for _ in range(6):
        assembly = lister.result(assembly, page_, size_bytes=100, hidden=hidden)
        kept.append(len(assembly.hidden))
    assert kept == [2, 4, 4, 4, 0, 0]


def test_what_is_no_tool_is_passed_over() -> None:
    told = Offered()
    told.add([None, 1, "a", [], {}, {"name": 1}, {"name": ["a"]}, {"name": ""}])
    assert told.of("") == ({"name": ""},)


def test_the_longest_time_to_live_of_the_pages_counts(lister: Lister) -> None:
    """``ttlMs`` is a whole number of milliseconds (MCP 2026-07-28); anything else is not stated."""
    latest = lister.request({})
    for stated, longest in ((None, None), (5, 5), ("9", 5), (True, 5), (-1, 5), (7.5, 5), (2**54, 5), (9, 9), (6, 9)):
        latest = lister.result(latest, {"tools": [], "nextCursor": "x", "ttlMs": stated}, size_bytes=1)
        assert latest.ttl_ms == longest
    assert page(lister, ["a"]).ttl_ms is None


def of_version(version: int, *more: str) -> list[dict[str, object]]:
    tools: list[dict[str, object]] = [{"name": name} for name in more]
    return [{"name": "a", "x": version}, *tools]


def test_a_list_counts_once_the_client_was_given_it() -> None:
    """Until then the one before does, and the client may have read the new one already."""
    told = Offered()
    told.deferred = True
    told.add(of_version(1), exchange=1, snapshot=("s1", START))
    told.delivered(1)
    told.add(of_version(2), exchange=2, snapshot=("s2", START))
    assert (told.of("a"), told.on_the_way("a"), told.snapshot) == ((of_version(1)[0],), of_version(2), ("s1", START))
    told.delivered(2)
    assert (told.of("a"), told.on_the_way("a"), told.snapshot) == ((of_version(2)[0],), [], ("s2", START))


def test_lists_count_in_the_order_in_which_the_client_is_given_them() -> None:
    """Not in that in which the server answered."""
    told = Offered()
    told.deferred = True
    for version in (1, 2):
        told.add(of_version(version), exchange=version)
    told.delivered(2)
    told.delivered(1)
    assert told.of("a") == (of_version(1)[0],)


def test_a_list_that_was_cut_off_may_have_been_read_until_the_next_whole_one() -> None:
    told = Offered()
    told.deferred = True
    told.add(of_version(1), exchange=1)
    told.cut_off(1)
    told.add(of_version(2), exchange=2)
    told.delivered(2)
    assert told.on_the_way("a") == of_version(1)
    told.add(of_version(3), exchange=3, settles=0)
    told.delivered(3)
    assert (told.of("a"), told.on_the_way("a")) == ((of_version(3)[0],), [])


def test_a_tool_is_withdrawn_and_doubts_end_only_when_the_client_has_the_list() -> None:
    """What the server says to nobody changes nothing."""
    told = Offered()
    told.deferred = True
    told.add(of_version(1, "b"), exchange=1, settles=0)
    told.delivered(1)
    told.outdate()
    told.doubt()
    told.add(of_version(1), exchange=2, settles=1)
    assert (told.in_doubt, told.is_withdrawn("b")) == (True, False)
    told.delivered(2)
    assert (told.in_doubt, told.is_withdrawn("b")) == (False, True)


def test_lists_on_their_way_are_bounded() -> None:
    told = Offered(replace(DEFAULT_LIMITS, lists_on_the_way_max=2))
    told.deferred = True
    for version in range(3):
        told.add(of_version(version), exchange=version + 1)
    assert (told.of("a"), told.on_the_way("a")) == ((of_version(0)[0],), of_version(1) + of_version(2))
