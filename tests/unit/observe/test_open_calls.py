"""The open calls of a connection, by what names them."""

from __future__ import annotations

from assay_stream.observe.jsonrpc import RequestKey
from assay_stream.observe.open_calls import HeldCalls, OpenCall, PendingCalls
from tests.support.mcp_dialogue import START


def a_call(name: str) -> OpenCall:
    """A call."""
    return OpenCall(name, name, "forwarded", START, START, None, None, None, 1)


def test_of_equal_held_calls_the_oldest_comes_first() -> None:
    """By key, and over all."""
    held = HeldCalls()
    calls = [a_call(name) for name in "abc"]
    for key, call in zip(("x", "y", "x"), calls, strict=True):
        held.put(key, call)
    assert (held.get("x"), held.oldest(), len(held)) == (calls[0], calls[0], 3)
    assert held.take("x") is calls[0]
    assert held.take_oldest() is calls[1]
    assert held.get("y") is None
    assert held.take("x") is calls[2]
    assert (held.take("x"), held.oldest(), len(held)) == (None, None, 0)


def test_the_only_call_of_an_exchange_is_clear_and_so_is_the_only_one_of_all() -> None:
    """Anything else is not."""
    pending = PendingCalls()
    one, two, three = (a_call(name) for name in "abc")
    keys: list[RequestKey] = [(False, 1, 7), (False, 1, 8), (False, 2, 8)]
    for key, call in zip(keys, (one, two, three), strict=True):
        pending.put(key, call)
    assert [pending.only_one(exchange) for exchange in (7, 8, 9)] == [one, None, None]
    pending.take(keys[0])
    pending.take(keys[1])
    assert [pending.only_one(exchange) for exchange in (7, 8, 9)] == [three, three, three]
    assert pending.with_id((False, 2)) == keys[2]
    assert pending.with_id((False, 1)) == (False, 1)
