"""What holds for every log: nothing of it gets out but what is meant to, and nothing stops a reader."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st

from assay_stream.errors import InputError
from assay_stream.observe.logs.calls import from_log
from assay_stream.plugins import LOGS
from tests.support.logs import HANGAR, SECRET, answered, one_span, read, texts, toolhive, whose


def planted() -> Iterator[tuple[str, Any]]:
    denied = {"event_type": "ToolInvocationDenied", "gate_reason": SECRET}
    failed = {"event_type": "ToolInvocationFailed", "error_type": SECRET}
    base = {"timestamp": "2026-11-22T10:00:00Z", "provider_id": "time", "tool_name": "t", "user_id": SECRET}
    yield from (("hangar", base | each | {"session_id": SECRET}) for each in (denied, failed))
    data = answered({"content": [{"text": SECRET}]}, {"key": SECRET})
    yield "toolhive", toolhive(data=data, subjects={"user": SECRET}, source={"extra": {"user_agent": SECRET}})
    error = {"error": {"code": -1, "message": SECRET, "data": SECRET}}
    yield (
        "toolhive",
        toolhive(outcome="application_error", data={"response": error}, extra={"jsonrpc_error_message": SECRET}),
    )
    event = {"name": "exception", "attributes": texts(exception__message=SECRET)}
    attributes = texts(error__type=SECRET, gen_ai__tool__call__arguments=json.dumps({"password": SECRET}))
    yield (
        "otlp-json",
        one_span(attributes=attributes, events=[event], status={"code": 2, "message": SECRET}, name=SECRET),
    )


@pytest.mark.parametrize(("source", "line"), list(planted()))
def test_no_argument_result_or_message_gets_out(source: str, line: Any) -> None:
    """Only digests, and codes that quote nothing."""
    [call], _ = read(source, line)
    assert SECRET in json.dumps(line)
    assert SECRET not in json.dumps(call)


@pytest.mark.parametrize("source", ["hangar", "toolhive", "otlp-json"])
def test_a_line_that_is_no_record_is_named_without_quoting_it(source: str) -> None:
    """By its number; the lines after it are read."""
    errors: list[InputError] = []
    lines = (f'{{"{SECRET}'.encode(), b"[]", b'{"a":1,"a":2}', b"{}")
    assert read(source, *lines, on_error=errors.append) == ([], {})
    assert [error.code for error in errors] == ["not_json", "not_an_event", "duplicate_key"]
    assert SECRET not in str(errors)


def test_a_log_yields_the_same_events_whenever_it_is_read() -> None:
    """Also once lines were appended to it; equal lines are calls of their own."""
    lines = HANGAR.read_bytes().splitlines()
    once = [each.value for each in from_log("hangar", lines, whose(), Counter())]
    again = [each.value for each in from_log("hangar", [*lines, *lines], whose(), Counter())]
    assert again[: len(once)] == once
    assert len(set(again)) == 2 * len(once)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(sorted(toolhive())), inner),
    max_leaves=20,
)


@given(st.sampled_from(LOGS.names()), JSON, st.binary(max_size=40))
def test_no_input_raises_anything_but_an_error_of_ours(source: str, value: Any, tail: bytes) -> None:
    """Total: any bytes give observations or errors with a code."""
    if source == "otlp-proto":
        pytest.importorskip("opentelemetry.proto", reason="the extra otlp is not installed")
    changed = [toolhive() | {name: value} for name in ("data", "metadata", "target", "outcome", "logged_at")]
    errors: list[InputError] = []
    for line in (value, tail, *changed, one_span(attributes=value), {"resourceSpans": value}):
        read(source, line, on_error=errors.append)
    assert all(error.code not in ("", "plugin_failed") for error in errors)
