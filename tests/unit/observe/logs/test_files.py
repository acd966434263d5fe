"""Logs of others as observations: what they say, what they do not say, and what must not get out of them.

The logs in ``tests/data/logs`` were written by MCP Hangar 2.34.4, in front of a server of two tools, and by the MCP
SDK 2.3.0 with OpenTelemetry's SDK 1.45. ToolHive's lines are made by hand, after its code (``pkg/audit``): it does not
build from its module here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_stream.canonical.redaction import redacted_digest
from assay_stream.errors import InputError
from assay_stream.observe import Vantage
from assay_stream.observe.logs.calls import Whose
from assay_stream.observe.logs.files import LogFormat, from_log
from assay_stream.observe.prefixes import Prefixes

LOGS = Path(__file__).parents[3] / "data" / "logs"
HANGAR = LOGS / "mcp-hangar-2.34.4.jsonl"
SPANS, PROTOBUF = LOGS / "mcp-2.3.0.otlp.json", LOGS / "mcp-2.3.0.otlp.binpb"
SECRET = "sk-live-4f9d1c7be2a84d5f"
TOOL = {"name": "read", "description": "Reads.", "inputSchema": {"type": "object"}}
FORMATS: tuple[LogFormat, ...] = ("hangar", "toolhive", "otlp-json", "otlp-proto")


def whose(server_id: str | None = "the-server", **options: Any) -> Whose:
    """A log of one server, or of servers that it names."""
    vantage = Vantage(server_id=server_id or "-", observer_id="o", server_scoped=True)
    return Whose(vantage=vantage, has_default=server_id is not None, **options)


def read(source: LogFormat, *lines: Any, log: Whose | None = None, **options: Any) -> tuple[list[dict[str, Any]], Any]:
    """The data of what a log yields, and what it lacks."""
    counts: Counter[str] = Counter()
    raw = (line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    found = from_log(source, raw, log or whose(), counts, **options)
    return [json.loads(observation.value)["data"] for observation in found], counts


class TestHangar:
    """Calls with their outcome, and nothing else."""

    def test_calls_that_passed_failed_and_were_denied(self) -> None:
        """The servers are those that Hangar names; what did not happen is not lacking."""
        calls, lacking = read("hangar", *HANGAR.read_bytes().splitlines(), log=whose(None))
        assert [(call["server_id"], call["tool_name"]) for call in calls] == [("time", "get_current_time")] * 3
        assert [(call["decision"], call["reason_code"], call.get("ok"), call.get("error")) for call in calls] == [
            ("allow", "forwarded", True, None),
            ("allow", "forwarded", False, {"code": "tool_error"}),
            ("deny", "circuit_open", None, {"code": "not_passed_on"}),
        ]
        assert calls[0]["not_observed"] == ["arguments", "call_id", "result"]
        assert lacking == {"arguments": 3, "call_id": 3, "result": 2}
        assert calls[0]["timing"]["ended_at"] == "2026-11-22T18:11:18.947016Z"

    def test_a_servers_name_can_be_the_operators(self) -> None:
        """Where the two differ."""
        calls, _ = read("hangar", *HANGAR.read_bytes().splitlines(), log=whose(None, servers={"time": "clock"}))
        assert {call["server_id"] for call in calls} == {"clock"}


def toolhive(kind: str = "mcp_tool_call", **fields: Any) -> dict[str, Any]:
    """A line of ToolHive's audit log."""
    extra = {"duration_ms": 12, "transport": "http", **fields.pop("extra", {})}
    line = {
        "time": "2026-11-22T10:00:00.012Z",
        "level": "AUDIT",
        "msg": "audit_event",
        "audit_id": "0b9c3f60-5a6c-4f0e-9a51-0c9f6a3c0b11",
        "type": kind,
        "logged_at": "2026-11-22T10:00:00.012Z",
        "outcome": "success",
        "component": "vmcp",
        "source": {"type": "network", "value": "127.0.0.1", "extra": {}},
        "subjects": {"user": "anonymous"},
        "target": {"endpoint": "/mcp", "method": "tools/call", "name": "read", "type": "tool"},
        "metadata": {"extra": extra},
    }
    return line | fields


def answered(result: object, arguments: object = None) -> dict[str, Any]:
    """What ToolHive adds if it is to log requests and responses."""
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "read", "arguments": arguments}}
    return {"request": request, "response": {"jsonrpc": "2.0", "id": 1, "result": result}}


class TestToolHive:
    """Calls, and lists as far as they are in the log."""

    def test_a_call_without_data_has_no_outcome_of_its_tool(self) -> None:
        """HTTP succeeded; whether the tool did is not in the log."""
        [call], _ = read("toolhive", toolhive())
        assert call["not_observed"] == ["arguments", "outcome", "result"]
        assert "ok" not in call
        assert call["tool_call_id"] == "0b9c3f60-5a6c-4f0e-9a51-0c9f6a3c0b11"
        assert call["timing"]["duration_ms"] == 12

    def test_a_call_with_data_has_digests_and_the_outcome(self) -> None:
        """Those of the arguments and the result, redacted."""
        data = answered({"isError": True}, {"a": 1})
        [call], lacking = read("toolhive", toolhive(data=data, extra={"response_size": 9}))
        assert (call["ok"], call["error"]) == (False, {"code": "tool_error"})
        assert call["args_hash"] == str(redacted_digest({"a": 1}))
        assert call["result_hash"] == str(redacted_digest({"isError": True}))
        assert lacking == {}

    def test_a_response_over_the_limit_of_the_log_is_named(self) -> None:
        """It vanishes there without a trace but its size."""
        [call], lacking = read("toolhive", toolhive(extra={"response_size": 0}))
        assert call["not_observed"] == ["arguments", "outcome", "result_over_limit"]
        assert lacking["result_over_limit"] == 1
        garbled = {"response": '{"jsonrpc":"2.0","id":1,"result":{"conte'}
        [call], _ = read("toolhive", toolhive(data=garbled, extra={"response_size": 40}))
        assert "result_over_limit" in call["not_observed"]
        assert "result_hash" not in call

    def test_lists_in_the_log_are_snapshots_that_are_never_complete(self) -> None:
        """As JSON, or as the text of a stream; by server where the names have prefixes."""
        log = whose(prefixes=Prefixes({"a_": "a"}))
        listed = {"tools": [{**TOOL, "name": "a_read"}]}
        stream = f"event: message\ndata: {json.dumps({'id': 1, 'result': listed})}\n\n"
        for response in ({"id": 1, "result": listed}, stream):
            line = toolhive("mcp_tools_list", data={"response": response}, extra={"response_size": 9})
            [snapshot], _ = read("toolhive", line, log=log)
            assert (snapshot["server_id"], snapshot["shown_prefix"], snapshot["tools"]) == ("a", "a_", [TOOL])
            assert snapshot["completeness"] == "partial"

    def test_a_list_over_the_limit_is_one_that_nobody_could_read(self) -> None:
        """Or an old one would stay in force. Where responses are not logged at all, there are no lists."""
        [snapshot], lacking = read("toolhive", toolhive("mcp_tools_list", extra={"response_size": 0}))
        assert (snapshot["tools"], lacking) == ({"unreadable": "too large for the log"}, {"list_over_limit": 1})
        assert read("toolhive", toolhive("mcp_tools_list")) == ([], {"list": 1})

    @pytest.mark.parametrize(
        ("outcome", "extra", "expected"),
        [
            ("denied", {}, ("deny", None, "not_passed_on")),
            ("application_error", {"jsonrpc_error_code": -32602}, ("allow", False, "jsonrpc_-32602")),
            ("failure", {}, ("allow", False, "http_error")),
        ],
    )
    def test_outcomes(self, outcome: str, extra: dict[str, Any], expected: tuple[Any, ...]) -> None:
        """As ToolHive states them."""
        [call], _ = read("toolhive", toolhive(outcome=outcome, extra=extra))
        assert (call["decision"], call.get("ok"), call["error"]["code"]) == expected

    def test_the_backend_that_it_names_is_the_server(self) -> None:
        """Whatever the tool's name begins with."""
        log = whose(None, prefixes=Prefixes({"a_": "a", "evil_": "evil"}))
        line = toolhive(target={"name": "a_read"}, extra={"backend_name": "evil"})
        [call], _ = read("toolhive", line, log=log)
        assert (call["server_id"], call["tool_name"]) == ("evil", "a_read")


def spans() -> dict[str, Any]:
    """What the MCP SDK reported."""
    content: dict[str, Any] = json.loads(SPANS.read_bytes())
    return content


def one_span(**changes: Any) -> dict[str, Any]:
    """One span of a call, changed."""
    content = spans()
    scope = content["resourceSpans"][0]["scopeSpans"][0]
    [span] = [span for span in scope["spans"] if span["name"] == "tools/call add"]
    scope["spans"] = [span | changes]
    return content


def texts(**attributes: str) -> list[dict[str, Any]]:
    """Attributes of a call."""
    given = {"mcp.method.name": "tools/call", "gen_ai.tool.name": "add", **attributes}
    return [{"key": name.replace("__", "."), "value": {"stringValue": text}} for name, text in given.items()]


class TestSpans:
    """Calls, without anything that a definition could be bound by."""

    def test_both_forms_of_the_spans_of_the_sdk_yield_the_same_calls(self) -> None:
        """Names, outcome, times and trace; no digest of anything."""
        pytest.importorskip("opentelemetry.proto", reason="the extra otlp is not installed")
        calls, lacking = read("otlp-json", SPANS.read_bytes())
        assert (calls, lacking) == read("otlp-proto", PROTOBUF.read_bytes())
        assert [(call["tool_name"], call["ok"]) for call in calls] == [
            ("add", True),
            ("fail", False),
            ("missing", False),
        ]
        assert calls[0]["not_observed"] == ["arguments", "decision", "result"]
        assert calls[0]["tool_call_id"].startswith(f"{calls[0]['trace_id']}:")
        assert not any(name.endswith(("_hash", "_digest")) for call in calls for name in call)

    def test_one_side_of_each_call_is_read(self) -> None:
        """A client that reports the same call does not double it."""
        assert read("otlp-json", one_span(kind=3)) == ([], {})
        assert len(read("otlp-json", one_span(kind=3), span_kind="client")[0]) == 1

    def test_arguments_and_results_are_hashed_where_they_are_whole(self) -> None:
        """A text that an exporter cut short has no digest."""
        whole = texts(gen_ai__tool__call__arguments='{"a": 1}', gen_ai__tool__call__result='{"content')
        [call], _ = read("otlp-json", one_span(attributes=whole))
        assert call["args_hash"] == str(redacted_digest({"a": 1}))
        assert call["not_observed"] == ["decision", "result"]

    def test_a_server_needs_a_name_of_the_operators(self) -> None:
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
    def test_a_bad_span_is_named_and_the_others_are_read(self, changes: dict[str, Any], code: str) -> None:
        """With the place of the span."""
        content = one_span(**changes)
        content["resourceSpans"] += spans()["resourceSpans"]
        errors: list[InputError] = []
        calls, _ = read("otlp-json", content, on_error=errors.append)
        assert [(error.code, "line 1: span 0" in str(error)) for error in errors] == [(code, True)]
        assert len(calls) == 3

    def test_many_messages_in_one_file(self) -> None:
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


def planted() -> Iterator[tuple[LogFormat, Any]]:
    """A secret wherever a log may have one."""
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
def test_no_argument_result_or_message_gets_out(source: LogFormat, line: Any) -> None:
    """Only digests, and codes that quote nothing."""
    [call], _ = read(source, line)
    assert SECRET in json.dumps(line)
    assert SECRET not in json.dumps(call)


@pytest.mark.parametrize("source", ["hangar", "toolhive", "otlp-json"])
def test_a_line_that_is_no_record_is_named_without_quoting_it(source: LogFormat) -> None:
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


@given(st.sampled_from(FORMATS), JSON, st.binary(max_size=40))
def test_no_input_raises_anything_but_an_error_of_ours(source: LogFormat, value: Any, tail: bytes) -> None:
    """Total: any bytes give observations or errors with a code."""
    if source == "otlp-proto":
        pytest.importorskip("opentelemetry.proto", reason="the extra otlp is not installed")
    changed = [toolhive() | {name: value} for name in ("data", "metadata", "target", "outcome", "logged_at")]
    errors: list[InputError] = []
    for line in (value, tail, *changed, one_span(attributes=value), {"resourceSpans": value}):
        read(source, line, on_error=errors.append)
    assert all(error.code for error in errors)
