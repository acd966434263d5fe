"""ToolHive's audit log: calls, and lists as far as they are in it."""

import json
from typing import Any

import pytest

from assay_stream.canonical.digest import redacted_digest
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.observe.observation import Prefixes
from tests.support.logs import TOOL, answered, read, toolhive, whose


def test_a_call_without_data_has_no_outcome_of_its_tool() -> None:
    """HTTP succeeded; whether the tool did is not in the log."""
    [call], _ = read("toolhive", toolhive())
    assert call["not_observed"] == ["arguments", "outcome", "result"]
    assert "ok" not in call
    assert call["tool_call_id"] == "0b9c3f60-5a6c-4f0e-9a51-0c9f6a3c0b11"
    assert call["timing"]["duration_ms"] == 12


def test_a_call_with_data_has_digests_and_the_outcome() -> None:
    """Those of the arguments and the result, redacted."""
    data = answered({"isError": True}, {"a": 1})
    [call], lacking = read("toolhive", toolhive(data=data, extra={"response_size": 9}))
    assert (call["ok"], call["error"]) == (False, {"code": "tool_error"})
    assert call["args_hash"] == str(redacted_digest({"a": 1}))
    assert call["result_hash"] == str(redacted_digest({"isError": True}))
    assert lacking == {}


def test_a_response_over_the_limit_of_the_log_is_named() -> None:
    """It vanishes there without a trace but its size."""
    [call], lacking = read("toolhive", toolhive(extra={"response_size": 0}))
    assert call["not_observed"] == ["arguments", "outcome", "result_over_limit"]
    assert lacking["result_over_limit"] == 1
    garbled = {"response": '{"jsonrpc":"2.0","id":1,"result":{"conte'}
    [call], _ = read("toolhive", toolhive(data=garbled, extra={"response_size": 40}))
    assert "result_over_limit" in call["not_observed"]
    assert "result_hash" not in call


def test_lists_in_the_log_are_snapshots_that_are_never_complete() -> None:
    """As JSON, or as the text of a stream; by server where the names have prefixes."""
    log = whose(prefixes=Prefixes({"a_": "a"}))
    listed = {"tools": [{**TOOL, "name": "a_read"}]}
    stream = f"event: message\ndata: {json.dumps({'id': 1, 'result': listed})}\n\n"
    for response in ({"id": 1, "result": listed}, stream):
        line = toolhive("mcp_tools_list", data={"response": response}, extra={"response_size": 9})
        [snapshot], _ = read("toolhive", line, log=log)
        assert (snapshot["server_id"], snapshot["shown_prefix"], snapshot["tools"]) == ("a", "a_", [TOOL])
        assert snapshot["completeness"] == "partial"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("character", [*"\x7f\x85\u2028\u2029"])
def test_only_line_ends_of_the_standard_end_a_line_of_a_stream(end: str, character: str) -> None:
    """Other characters may be in a text as they are, though Python's ``splitlines`` splits at some."""
    tool = {**TOOL, "description": f"a{character}b"}
    message = json.dumps({"id": 1, "result": {"tools": [tool]}}, ensure_ascii=False)
    response = f"event: message{end}data: {message}{end}{end}"
    [snapshot], _ = read("toolhive", toolhive("mcp_tools_list", data={"response": response}))
    assert snapshot["tools"] == [tool]


def test_a_list_over_the_limit_is_one_that_nobody_could_read() -> None:
    """Or an old one would stay in force. Where responses are not logged at all, there are no lists."""
    [snapshot], lacking = read("toolhive", toolhive("mcp_tools_list", extra={"response_size": 0}))
    assert (snapshot["tools"], lacking) == ({"unreadable": "too large for the log"}, {"list_over_limit": 1})
    assert read("toolhive", toolhive("mcp_tools_list")) == ([], {"list": 1})


def listed(*tools: Any) -> bytes:
    return json.dumps(toolhive("mcp_tools_list", data=answered({"tools": list(tools)}))).encode()


DEEP = json.loads("[" * 200 + "]" * 200)
MINE = {**TOOL, "name": "a_read"}


@pytest.mark.parametrize(
    ("hostile", "theirs"),
    [
        ([{**TOOL, "name": "b_c_read"}], {}),
        ([{**TOOL, "name": f"b_{number}"} for number in range(DEFAULT_LIMITS.tools_max + 1)], {"b": list}),
        ([{**TOOL, "name": "b_read", "inputSchema": DEEP}], {"b": list}),
        ([7], {}),
    ],
    ids=["ambiguous", "too many", "too deep", "no tool"],
)
def test_a_server_cannot_keep_anothers_list_out_of_the_log(hostile: list[Any], theirs: dict[str, type]) -> None:
    """Each server's part of a line counts for itself, wherever it stands; what the registry refuses gets there."""
    log = whose(None, prefixes=Prefixes({"a_": "a", "b_": "b", "b_c_": "c"}))
    for tools in ([*hostile, MINE], [MINE, *hostile]):
        errors: list[Any] = []
        found, _ = read("toolhive", listed(*tools), log=log, on_error=errors.append)
        assert {each["server_id"]: type(each["tools"]) for each in found} == {"a": list, **theirs}
        assert [each["tools"] for each in found if each["server_id"] == "a"] == [[TOOL]]
        assert errors


@pytest.mark.parametrize(
    "tool", [b'{"name":"b_x","n":NaN}', b'{"name":"b_x","n":' + b"[" * 9_000 + b"]" * 9_000 + b"}"]
)
def test_a_list_in_an_unsound_line_ends_those_before_it(tool: bytes) -> None:
    """Or calls would stay bound to them. The line is reported; one that holds no list yields nothing."""
    log = whose(None, prefixes=Prefixes({"b_": "b"}))
    errors: list[Any] = []
    line = listed({"name": "b_x"}).replace(b'{"name": "b_x"}', tool)
    [snapshot], _ = read("toolhive", line, log=log, on_error=errors.append)
    assert (snapshot["server_id"], type(snapshot["tools"])) == ("b", dict)
    assert len(errors) == 1
    call = line.replace(b'"mcp_tools_list"', b'"mcp_tool_call"')
    assert read("toolhive", call, log=log, on_error=errors.append)[0] == []


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [({"data": {"response": "data: {}\ud800"}}, [dict, type(None)]), ({"audit_id": "\ud800"}, [type(None)])],
)
def test_a_lone_surrogate_does_not_end_the_import(changes: dict[str, Any], kinds: list[type]) -> None:
    """A server chooses what its list holds. The line is reported, and the one after it is read."""
    errors: list[Any] = []
    lines = toolhive("mcp_tools_list", **changes), toolhive()
    found, _ = read("toolhive", *lines, on_error=errors.append)
    assert [type(each.get("tools")) for each in found] == kinds
    assert [each.code for each in errors] == ["lone_surrogate"]


@pytest.mark.parametrize(
    ("outcome", "extra", "expected"),
    [
        ("denied", {}, ("deny", None, "not_passed_on")),
        ("application_error", {"jsonrpc_error_code": -32602}, ("allow", False, "jsonrpc_-32602")),
        ("failure", {}, ("allow", False, "http_error")),
    ],
)
def test_outcomes(outcome: str, extra: dict[str, Any], expected: tuple[Any, ...]) -> None:
    [call], _ = read("toolhive", toolhive(outcome=outcome, extra=extra))
    assert (call["decision"], call.get("ok"), call["error"]["code"]) == expected


def test_the_backend_that_it_names_is_the_server() -> None:
    """Whatever the tool's name begins with."""
    log = whose(None, prefixes=Prefixes({"a_": "a", "evil_": "evil"}))
    line = toolhive(target={"name": "a_read"}, extra={"backend_name": "evil"})
    [call], _ = read("toolhive", line, log=log)
    assert (call["server_id"], call["tool_name"]) == ("evil", "a_read")
