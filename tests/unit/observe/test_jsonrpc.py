"""JSON-RPC messages on a line."""

import pytest

from assay_stream.observe.wire import answer_keys, request_key, trace_of

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.mark.parametrize("value", [None, True, [], {}])
def test_other_values_are_no_ids(value: object) -> None:
    """Null is for errors without a request."""
    assert request_key(value) is None
    assert answer_keys(value) == []


PADDED = ["0" * 64 + "2", "0x" + "0" * 64 + "2", "2." + "0" * 64, "0" * 5_000 + "2", "\ufeff2 ", "\u2003\ufeff\u20032"]


@pytest.mark.parametrize(
    ("text", "number"),
    [("2", 2), (" 2 ", 2), ("2.0", 2), ("0x2", 2), ("", 0), ("02", 2), *((text, 2) for text in PADDED)],
)
def test_the_text_of_an_answers_id_may_mean_a_number(text: str, number: int) -> None:
    """Clients convert it, so an answer so named arrives."""
    assert answer_keys(text) == [request_key(text), (False, number)]


def test_a_text_that_is_no_number_stays_text() -> None:
    assert answer_keys("abc") == [(True, "abc")]
    assert answer_keys("9" * 100) == [(True, "9" * 100)]
    assert answer_keys("9" * 5_000) == [request_key("9" * 5_000)]


@pytest.mark.parametrize(
    ("traceparent", "trace_id"),
    [
        (f"00-{TRACE_ID}-00f067aa0ba902b7-01", TRACE_ID),
        (f"ff-{TRACE_ID}-00f067aa0ba902b7-01", None),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", None),
        (f"00-{TRACE_ID}-{'0' * 16}-01", None),
        (f"00-{TRACE_ID.upper()}-00f067aa0ba902b7-01", None),
        (7, None),
        (None, None),
    ],
)
def test_only_a_w3c_traceparent_gives_a_trace_id(traceparent: object, trace_id: str | None) -> None:
    trace = trace_of(traceparent)
    assert (None if trace is None else trace[1]) == trace_id
