"""The open calls of a connection, by what names them."""

from __future__ import annotations

from typing import get_type_hints

from assay_stream.model.observation import CallTask, Inputs
from assay_stream.observe.calls import HeldCalls, InputCounter, OpenCall, OpenTask, text_hash
from assay_stream.observe.jsonrpc import RequestKey
from assay_stream.observe.wire import Pending
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
    pending = Pending[OpenCall]()
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


def test_every_kind_that_is_counted_is_declared_in_records() -> None:
    """A count that the model does not know would be lost."""
    counter = InputCounter(10)
    url = {"method": "elicitation/create", "params": {"mode": "url"}}
    for request in (
        {"method": "elicitation/create"},
        url,
        {"method": "sampling/createMessage"},
        {"method": "roots/list"},
        5,
    ):
        counter.ask(request, exact=True)
    counter.answer({}, None)
    for _ in range(10):
        counter.ask({}, exact=False)
    found = counter.as_json()
    assert found is not None
    assert found.keys() == get_type_hints(Inputs).keys()


def test_there_are_no_more_answers_than_requests() -> None:
    """Whatever a client sends."""
    counter = InputCounter(10)
    counter.answer({}, {})
    assert counter.as_json() is None
    counter.ask({}, exact=True)
    counter.answer_all({str(number): {} for number in range(1_000)})
    found = counter.as_json()
    assert found is not None
    assert found["accepted"] == 1


def test_names_are_told_apart_only_where_they_come_again() -> None:
    """A task names what it still waits for at every poll; rounds of input may use a name twice."""
    once, often = InputCounter(10), InputCounter(10)
    for _ in range(2):
        once.ask_all({"a": {}, "b": {}}, True, once=True)
        often.ask_all({"a": {}, "b": {}}, True)
    assert [counter.as_json()["other"] for counter in (once, often)] == [2, 4]  # type: ignore[index]


def test_what_is_said_of_a_task_is_declared_in_records() -> None:
    """Both members."""
    assert get_type_hints(CallTask).keys() == {"id_hash", "status"}
    assert OpenTask(text_hash("\ud800"), is_inline=True).status == "unknown", "a lone surrogate has a hash too"
