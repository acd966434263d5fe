"""Lists put together from pages."""

from dataclasses import replace
from typing import Any

import pytest

from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.observe.lists import Assembly, HiddenTool, Offered
from tests.support.mcp_dialogue import START, Dialogue


def page(talk: Dialogue, *tools: str, after: object = None, more: object = None, **result: Any) -> dict[str, Any]:
    """The data of the snapshot after one more page of the list."""
    number = 1 + talk.observer.stats.lines
    talk.request("tools/list", number, **({} if after is None else {"cursor": after}))
    cursor = {} if more is None else {"nextCursor": more}
    [snapshot] = talk.result(number, {"tools": [{"name": name} for name in tools], **cursor, **result})
    data: dict[str, Any] = snapshot["data"]
    return data


def names(data: dict[str, Any]) -> list[str]:
    return [each["name"] for each in data["tools"]]


def test_a_cursor_nobody_gave_is_of_unknown_completeness_to_the_end() -> None:
    talk = Dialogue()
    page(talk, "a", more="x")
    assert page(talk, "b", after="y", more="z")["completeness"] == "unknown"
    last = page(talk, "c", after="z")
    assert (names(last), last["completeness"]) == (["b", "c"], "unknown")


def test_two_walks_at_once_do_not_mix() -> None:
    """A request keeps what it continued when it was sent."""
    talk = Dialogue()
    page(talk, "a", more="x")
    for number in (7, 8):
        talk.request("tools/list", number, cursor="x")
    for number in (7, 8):
        [snapshot] = talk.result(number, {"tools": [{"name": "b"}]})
        assert (names(snapshot["data"]), snapshot["data"]["completeness"]) == (["a", "b"], "complete")


def test_a_number_is_not_the_cursor_it_looks_like() -> None:
    talk = Dialogue()
    page(talk, "a", more=1)
    assert page(talk, "b", after=True)["completeness"] == "unknown"


@pytest.mark.parametrize("result", [b'{"tools":3,"nextCursor":"x"}', b'{"tools":[],"tools":[],"nextCursor":"x"}'])
def test_after_an_unreadable_page_nothing_is_known_of_the_rest(result: bytes) -> None:
    talk = Dialogue()
    talk.request("tools/list", 7)
    talk.server(b'{"id":7,"result":%s}' % result)
    assert page(talk, "b", after="x")["completeness"] == "unknown"


def test_an_endless_list_costs_bounded_memory() -> None:
    """Entries stop at one over the limit, bytes at the size of a record."""
    talk = Dialogue(limits=replace(DEFAULT_LIMITS, tools_max=3, record_bytes_max=450))
    page(talk, "a", "b", more="x")
    assert names(page(talk, "c", "d", "e", after="x", more="x")) == ["a", "b", "c", "d"]
    for _ in range(3):
        data = page(talk, "f", after="x", more="x")
    assert data["tools"] == {"unreadable": "too large"}


def test_what_an_endless_list_hides_costs_bounded_memory() -> None:
    """As many entries as are kept of the list itself, and none of a list that is not kept."""
    assembly, kept = Assembly(), []
    limits = replace(DEFAULT_LIMITS, tools_max=3, record_bytes_max=450)
    hidden = [HiddenTool("a", "1"), HiddenTool("b", "2")]
    for _ in range(6):
        assembly = assembly.with_page(["a", "b"], {"nextCursor": "x"}, limits, size_bytes=100, hidden=hidden)
        kept.append(len(assembly.hidden))
    assert kept == [2, 4, 4, 4, 0, 0]


def test_the_longest_time_to_live_of_the_pages_counts() -> None:
    """``ttlMs`` is a whole number of milliseconds (MCP 2026-07-28); anything else is not stated."""
    talk, after = Dialogue(), None
    for stated, longest in ((None, None), (5, 5), ("9", 5), (True, 5), (-1, 5), (7.5, 5), (2**54, 5), (9, 9), (6, 9)):
        assert page(talk, after=after, more="x", ttlMs=stated).get("ttl_ms") == longest
        after = "x"
    assert "ttl_ms" not in page(talk)


def test_what_is_no_tool_is_passed_over() -> None:
    told = Offered()
    told.add([None, 1, "a", [], {}, {"name": 1}, {"name": ["a"]}, {"name": ""}])
    assert told.of("") == ({"name": ""},)


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
