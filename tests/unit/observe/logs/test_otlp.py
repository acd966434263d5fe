"""Spans: calls, without anything that a definition could be bound by."""

from typing import Any

import pytest

from assay_stream.canonical.digest import redacted_digest
from assay_stream.errors import InputError
from tests.support.logs import PROTOBUF, SPANS, one_span, read, spans, texts, whose


def test_both_forms_of_the_spans_of_the_sdk_yield_the_same_calls() -> None:
    """Names, outcome, times and trace; no digest of anything."""
    pytest.importorskip("opentelemetry.proto", reason="the extra otlp is not installed")
    calls, lacking = read("otlp-json", SPANS.read_bytes())
    assert (calls, lacking) == read("otlp-proto", PROTOBUF.read_bytes())
    assert [(call["tool_name"], call["ok"]) for call in calls] == [("add", True), ("fail", False), ("missing", False)]
    assert calls[0]["not_observed"] == ["arguments", "decision", "result"]
    assert calls[0]["tool_call_id"].startswith(f"{calls[0]['trace_id']}:")
    assert not any(name.endswith(("_hash", "_digest")) for call in calls for name in call)


def test_one_side_of_each_call_is_read() -> None:
    """A client that reports the same call does not double it."""
    assert read("otlp-json", one_span(kind=3)) == ([], {})
    assert len(read("otlp-json", one_span(kind=3), log=whose(span_kind="client"))[0]) == 1


def test_arguments_and_results_are_hashed_where_they_are_whole() -> None:
    """A text that an exporter cut short has no digest."""
    whole = texts(gen_ai__tool__call__arguments='{"a": 1}', gen_ai__tool__call__result='{"content')
    [call], _ = read("otlp-json", one_span(attributes=whole))
    assert call["args_hash"] == str(redacted_digest({"a": 1}))
    assert call["not_observed"] == ["decision", "result"]


def test_a_server_needs_a_name_of_the_operators() -> None:
    """What a service calls itself counts only where the operator says so."""
    with pytest.raises(InputError, match="missing_field"):
        read("otlp-json", one_span(), log=whose(None))
    [call], _ = read("otlp-json", one_span(), log=whose(None, servers={"time": "clock"}))
    assert call["server_id"] == "clock"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"traceId": "0" * 32}, "unknown_value"),
        ({"spanId": "xyz"}, "unknown_value"),
        ({"endTimeUnixNano": "soon"}, "bad_time"),
        ({"startTimeUnixNano": 10**30}, "bad_time"),
        ({"attributes": texts(gen_ai__tool__name="")}, "missing_field"),
        ({"attributes": texts() + [{"key": "k"}] * 256}, "too_many"),
    ],
)
def test_a_bad_span_is_named_and_the_others_are_read(changes: dict[str, Any], code: str) -> None:
    content = one_span(**changes)
    content["resourceSpans"] += spans()["resourceSpans"]
    errors: list[InputError] = []
    calls, _ = read("otlp-json", content, on_error=errors.append)
    assert [(error.code, "line 1: span 0" in str(error)) for error in errors] == [(code, True)]
    assert len(calls) == 3


def test_many_messages_in_one_file() -> None:
    """As the collector writes them, with their lengths; a last one that is cut short is named."""
    pytest.importorskip("opentelemetry.proto", reason="the extra otlp is not installed")
    raw = PROTOBUF.read_bytes()
    framed = (len(raw).to_bytes(4, "big") + raw) * 2
    errors: list[InputError] = []
    pieces = [framed[start : start + 7] for start in range(0, len(framed) - 1, 7)]
    pieces[-1] = pieces[-1][:1]
    calls, _ = read("otlp-proto", *pieces, on_error=errors.append)
    assert (len(calls), [error.code for error in errors]) == (3, ["bad_format"])
    with pytest.raises(InputError, match="too_large"):
        read("otlp-proto", b"\0\xff\xff\xff")
