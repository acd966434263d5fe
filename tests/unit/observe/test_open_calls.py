"""The open calls of a connection, by what names them."""

from typing import get_type_hints

from assay_stream.model.observation import CallTask, Inputs
from assay_stream.observe.calls import InputCounter, OpenTask
from assay_stream.observe.wire import text_hash


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
    counter = InputCounter(10)
    counter.answer({}, {})
    assert counter.as_json() is None
    counter.ask({}, exact=True)
    counter.answer_all({str(number): {} for number in range(1_000)})
    found = counter.as_json()
    assert found is not None
    assert found["accepted"] == 1


def test_what_is_said_of_a_task_is_declared_in_records() -> None:
    assert get_type_hints(CallTask).keys() == {"id_hash", "status"}
    assert OpenTask(text_hash("\ud800"), is_inline=True).status == "unknown", "a lone surrogate has a hash too"
