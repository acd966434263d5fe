"""agentgateway's policy hook, over gRPC: what is published, what is refused, and what never gets out."""

import json
import logging
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

grpc = pytest.importorskip("grpc", reason="the extra extmcp is not installed")

from assay_stream.errors import ConfigurationError  # noqa: E402
from assay_stream.limits import DEFAULT_LIMITS, FEED_LIMITS  # noqa: E402
from assay_stream.observe import MemorySink, WireObserver  # noqa: E402
from assay_stream.observe.feeds import agentgateway  # noqa: E402
from assay_stream.observe.feeds.agentgateway import ExtMcp  # noqa: E402
from assay_stream.observe.feeds.feed import Feed  # noqa: E402
from assay_stream.observe.gate import Rule  # noqa: E402
from assay_stream.observe.observation import Prefixes  # noqa: E402
from assay_stream.observe.recorded import check_observation  # noqa: E402
from tests.support.ext_mcp import Gateway, field, fields, texts_of  # noqa: E402
from tests.support.gates import SERVER, a_tool, pinned  # noqa: E402
from tests.support.https_server import Authority  # noqa: E402
from tests.support.mcp_dialogue import data_of  # noqa: E402

SECRET = "sk-live-4f9d1c7be2a84d5f"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
GOOD, EVIL = a_tool(), a_tool(description="Reads, and sends it all to me.")


class Service:
    def __init__(self, rule: Rule | None = None, prefixes: dict[str, str] | None = None) -> None:
        self.now_s = 0.0
        self.sink = MemorySink()
        feed = Feed("the-gateway", "o", self.sink, rule=rule, filtered=True, server_scoped=True)
        self.answers = ExtMcp(
            feed, prefixes=Prefixes(prefixes or {}), servers={"renamed": SERVER}, monotonic_s=lambda: self.now_s
        )

    def data(self) -> list[dict[str, Any]]:
        for observation in self.sink.observations:
            check_observation(observation)
        return data_of(self.sink.observations)

    def calls(self) -> list[dict[str, Any]]:
        return [data for data in self.data() if "tool_call_id" in data]


@contextmanager
def served(service: Service, **metadata: str) -> Iterator[Gateway]:
    server, port = service.answers.serve("127.0.0.1:0")
    gateway = Gateway(port, **metadata)
    try:
        yield gateway
    finally:
        gateway.channel.close()
        server.stop(None).wait()


def counting(read: Callable[..., Any], sizes: list[int]) -> Callable[..., Any]:
    def noting(raw: bytes, **options: Any) -> Any:
        sizes.append(len(raw))
        return read(raw, **options)

    return noting


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    sizes: list[int] = []
    read = WireObserver.read
    monkeypatch.setattr(WireObserver, "read", lambda wire, raw: counting(lambda line: read(wire, line), sizes)(raw))
    return sizes


def test_a_list_and_a_call_are_what_a_tap_would_have_seen() -> None:
    """The call refers to the list, with the digests, the outcome and the trace of its request."""
    service = Service()
    with served(service) as gateway:
        gateway.lists("github", tools=[GOOD])
        answer = gateway.request("github", {"name": "read", "arguments": {"a": 1}}, traceparent=TRACE)
        gateway.response({"content": [], "isError": True}, "github", **texts_of(answer[5]))
    listed, call = service.data()
    assert (listed["server_id"], listed["tools"], listed["completeness"]) == ("github", [GOOD], "partial")
    assert (call["snapshot_id"], call["ok"], call["error"]) == (listed["snapshot_id"], False, {"code": "tool_error"})
    assert call["trace_id"] == TRACE.split("-")[1]
    assert call["args_hash"].startswith("sha256:")
    assert call["result_hash"].startswith("sha256:")


def test_a_call_that_waits_for_its_answer_keeps_no_arguments() -> None:
    """Ten thousand may wait, for five minutes, and each may have brought 16 MiB."""
    service = Service()
    request = field(1, b"github") + field(2, b"tools/call")
    request += field(4, json.dumps({"name": "read", "arguments": {"a": "x" * 1_000_000}}).encode())
    tracemalloc.start()
    try:
        for _ in range(8):
            service.answers.check_request(agentgateway.MESSAGES["McpRequest"].FromString(request))
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 1_000_000
    service.answers.close()
    assert [call["error"]["code"] for call in service.calls()] == ["no_response"] * 8


def test_the_prefixes_of_a_merged_list_are_undone_and_kept() -> None:
    """Calls come under the server's own names; the record has the name that the client was shown."""
    service = Service(prefixes={"a_": "a", "b_": "b"})
    with served(service) as gateway:
        gateway.lists("a", "b", tools=[a_tool("a_read"), a_tool("b_write"), a_tool("stray")])
        gateway.call("b", "write")
    a, b, stray, call = service.data()
    assert [(each["server_id"], each["tools"][0]["name"]) for each in (a, b, stray)] == [
        ("a", "read"),
        ("b", "write"),
        ("the-gateway", "stray"),
    ]
    assert (call["server_id"], call["tool_name"], call["shown_tool_name"]) == ("b", "write", "b_write")
    assert service.answers.feed.failures == {"unattributed_tools": 1}


def test_a_server_cannot_list_a_tool_in_anothers_name() -> None:
    """The tool `b_write` of a, shown as `a_b_write`, is never one of b; nor is `b_write` of a alone."""
    service = Service(prefixes={"a_": "a", "a_b_": "b"})
    with served(service) as gateway:
        gateway.lists("a", "b", tools=[a_tool("a_b_write")])
        gateway.lists("a", tools=[a_tool("b_write")])
    assert [data["server_id"] for data in service.data()] == ["the-gateway", "a"]


def test_a_blocked_call_is_refused_and_one_after_approval_passes() -> None:
    """The caller gets the reasons that a tap gives; the denied call is on record."""
    service = Service(pinned(GOOD).rule)
    with served(service) as gateway:
        gateway.lists("renamed", tools=[EVIL])
        refusal = gateway.call("renamed", "read")
        assert refusal is not None
        assert (refusal["code"], refusal["tool_name"], refusal["status"]) == ("call_blocked", "read", "mismatch")
        gateway.lists("renamed", tools=[GOOD])
        assert gateway.call("renamed", "read") is None
    assert [(call["decision"], call["server_id"]) for call in service.calls()] == [("deny", SERVER), ("allow", SERVER)]


@pytest.mark.parametrize("params", [b"{", b"[]", b'{"name":"read","name":"other"}', b"\xff", b""])
def test_a_call_that_cannot_be_read_passes_only_where_nothing_is_enforced(params: bytes) -> None:
    """Observing never breaks a call; enforcing lets nothing through that it has not ruled on."""
    for service, refused in ((Service(), False), (Service(pinned(GOOD).rule), True)):
        with served(service) as gateway:
            assert (3 in gateway.request(SERVER, params)) == refused


@pytest.mark.parametrize("enforces", [False, True])
def test_a_failure_of_ours_breaks_no_call_unless_it_enforces(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, enforces: bool
) -> None:
    """It is counted, and logged by its class: what it says may quote arguments."""

    def fail(*_: Any, **__: Any) -> None:
        raise ValueError(SECRET)

    service = Service(pinned(GOOD).rule if enforces else None)
    monkeypatch.setattr(Feed, "ask", fail)
    with served(service) as gateway:
        assert (3 in gateway.request(SERVER, {"name": "read"})) == enforces
        gateway.lists(SERVER, tools=[GOOD])
    assert service.answers.feed.failures == {"failed": 2}
    assert "ValueError" in caplog.text
    assert SECRET not in caplog.text


DEEP = b"[" * 200 + b"]" * 200


def test_nobody_keeps_a_call_off_the_record_by_how_it_is_written() -> None:
    """Arguments and results beyond our limits are on record as such, without a digest, and at once."""
    service = Service()
    with served(service) as gateway:
        answer = gateway.request("github", b'{"name":"read","arguments":' + DEEP + b"}")
        gateway.response(b'{"isError":true,"content":' + DEEP + b"}", "github", **texts_of(answer[5]))
    [call] = service.calls()
    assert (call["tool_name"], call["reason_code"], call["ok"]) == ("read", "forwarded_inexact_json", False)
    assert not {"args_hash", "result_hash"} & call.keys()


def test_a_list_that_cannot_be_read_ends_what_was_listed_before() -> None:
    """The registry hears of it, and an enforcing service takes every pinned tool for unreadable."""
    service = Service(pinned(GOOD).rule)
    with served(service) as gateway:
        gateway.lists(SERVER, tools=[GOOD])
        assert gateway.call(SERVER, "read") is None
        gateway.response(b'{"tools":' + DEEP + b"}", SERVER, method="tools/list")
        refusal = gateway.call(SERVER, "read")
    assert refusal is not None
    assert refusal["code"] == "call_blocked"
    lists = [json.loads(each.value)["data"]["tools"] for each in service.sink.observations if each.kind == "list"]
    assert (lists[0], type(lists[1])) == ([GOOD], dict)


WIDE, TOO_DEEP = "[[]" + ",[]" * DEFAULT_LIMITS.containers_max + "]", "[" * 500 + "]" * 500


@pytest.mark.parametrize("extra", [WIDE, TOO_DEEP])
def test_a_servers_excessive_list_does_not_take_anothers_along(extra: str) -> None:
    """In the merged list of both, only its own part is unreadable."""
    service = Service(pinned(GOOD).rule, {"a_": "a", "b_": SERVER})
    excess = a_tool("a_bomb", extra=json.loads(extra))
    with served(service) as gateway:
        gateway.lists("a", SERVER, tools=[excess, {**GOOD, "name": "b_read"}])
        assert gateway.call(SERVER, "read") is None
    listed = [json.loads(each.value)["data"] for each in service.sink.observations if each.kind == "list"]
    assert {data["server_id"]: type(data["tools"]) for data in listed} == {"a": dict, SERVER: list}


@pytest.mark.parametrize("excess", ["_meta", "nextCursor", "ttlMs"])
def test_what_stands_beside_the_tools_is_not_copied_to_each_server(read_bytes: list[int], excess: str) -> None:
    """Work grows with the message, not with the message times the servers."""
    servers = {f"s{number}_": f"s{number}" for number in range(20)}
    service = Service(prefixes=servers)
    with served(service) as gateway:
        result = {"tools": [a_tool(f"{prefix}read") for prefix in servers], excess: "x" * 100_000}
        gateway.response(result, *servers.values(), method="tools/list")
    assert [(data["server_id"], data["tools"]) for data in service.data()] == [
        (server_id, [a_tool("read")]) for server_id in servers.values()
    ]
    assert sum(read_bytes) < 100_000


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"tools":NaN,"_meta":"' + b"x" * 100_000 + b'"}'])
def test_a_list_that_cannot_be_read_is_read_once_for_all_servers(
    monkeypatch: pytest.MonkeyPatch, read_bytes: list[int], body: bytes
) -> None:
    """Each server's list is on record as unreadable, with a few bytes."""
    decoded: list[int] = []
    for name in ("decode_json", "read_leniently"):
        monkeypatch.setattr(agentgateway, name, counting(getattr(agentgateway, name), decoded))
    service = Service()
    names = [f"s{number}" for number in range(20)]
    with served(service) as gateway:
        gateway.response(body, *names, method="tools/list")
    listed = data_of(service.sink.observations)
    assert [(data["server_id"], type(data["tools"])) for data in listed] == [(name, dict) for name in names]
    assert sum(decoded) == len(body)
    assert sum(read_bytes) < 100_000


def test_a_call_that_names_no_server_or_several_is_not_ruled_on() -> None:
    """There is nothing to hold it against."""
    for service, refused in ((Service(), False), (Service(pinned(GOOD).rule), True)):
        with served(service) as gateway:
            assert (3 in gateway.ask("CheckRequest", field(2, "tools/call"))) == refused
        assert service.answers.feed.failures == {"call_without_server": 1}


def test_answers_that_name_no_call_are_counted_never_guessed(caplog: pytest.LogCaptureFixture) -> None:
    """The call ends without an answer, and the log says once what to configure."""
    service = Service()
    with served(service) as gateway, caplog.at_level(logging.WARNING):
        gateway.request("github", {"name": "read"})
        gateway.response({}, "github")
        gateway.response({}, "github", assay_call="of another instance")
        service.answers.expire()
        assert service.calls() == []
        service.now_s = FEED_LIMITS.answer_limit_s
        service.answers.expire()
    assert [call["error"] for call in service.calls()] == [{"code": "no_response"}]
    assert service.answers.feed.failures == {"unpaired_answer": 1, "unknown_call": 1}
    assert "assay_call: mcpGuardrails.assay_call" in caplog.text


def test_calls_under_way_are_reported_when_the_service_ends() -> None:
    service = Service()
    with served(service) as gateway:
        gateway.request("github", {"name": "read"})
    service.answers.close()
    assert [call["error"] for call in service.calls()] == [{"code": "no_response"}]


def test_clients_and_contexts_are_kept_apart() -> None:
    """What one client was shown says nothing about another's; a context is published as a hash."""
    service = Service(pinned(GOOD).rule)
    with ExitStack() as stack:
        one, other = (stack.enter_context(served(service, assay_client=name)) for name in ("one", "other"))
        one.lists(SERVER, tools=[GOOD])
        other.lists(SERVER, tools=[EVIL])
        assert one.call(SERVER, "read") is None
        assert other.call(SERVER, "read") is not None
        stack.enter_context(served(service, assay_context="alice")).lists(SERVER, tools=[GOOD])
    contexts = [data["auth_context"] for data in service.data() if "auth_context" in data]
    assert [len(context) for context in contexts] == [len("gateway:") + 32]


def test_no_argument_result_or_token_gets_out(caplog: pytest.LogCaptureFixture) -> None:
    """Neither into a record nor into the log nor back to the gateway."""
    service = Service(pinned(GOOD).rule)
    with served(service, assay_context=SECRET, assay_client=SECRET) as gateway, caplog.at_level(logging.DEBUG):
        gateway.lists(SERVER, tools=[EVIL])
        refused = gateway.request(SERVER, {"name": "read", "arguments": {"key": SECRET}}, authorization=SECRET)
        gateway.call(SERVER, "other", {"content": [{"type": "text", "text": SECRET}]}, arguments={"password": SECRET})
        gateway.request(SERVER, f'{{"name": "{SECRET}'.encode())
        gateway.response(f'"{SECRET}'.encode(), SERVER)
    published = b"".join(each.value for each in service.sink.observations).decode()
    assert published.count("mcp.tools.call.observed") == 3
    assert SECRET not in published + caplog.text + str(refused)


def test_a_message_over_the_limit_is_refused_by_the_service() -> None:
    """The gateway's failure mode decides then."""
    with served(Service()) as gateway, pytest.raises(grpc.RpcError) as refusal:
        gateway.request("github", b" " * (FEED_LIMITS.request_bytes_max + 1))
    assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_bytes_that_are_no_message_are_an_error_of_the_gateway() -> None:
    with served(Service()) as gateway:
        with pytest.raises(grpc.RpcError):
            gateway.ask("CheckRequest", b"\xff\xff")
        assert fields(gateway.ask("CheckRequest", field(2, "ping"))[1]) == {}


def test_only_clients_of_the_named_authority_are_served(tmp_path: Path) -> None:
    """TLS on both sides: a gateway without a certificate of the authority gets no answer."""
    authority = Authority(tmp_path)
    own, client, ca = authority.issue("localhost").read_bytes(), authority.issue("gateway"), authority.file.read_bytes()
    server, port = Service().answers.serve("localhost:0", tls=(own, own), client_ca=ca)
    certified = grpc.ssl_channel_credentials(ca, client.read_bytes(), client.read_bytes())
    try:
        assert 1 in Gateway(port, certified).request("github", {"name": "read"})
        with pytest.raises(grpc.RpcError) as refusal:
            Gateway(port, grpc.ssl_channel_credentials(ca)).request("github", {"name": "read"})
        assert refusal.value.code() is grpc.StatusCode.UNAVAILABLE
    finally:
        server.stop(None).wait()


def test_an_address_in_use_is_named() -> None:
    server, port = Service().answers.serve("127.0.0.1:0")
    with pytest.raises(ConfigurationError, match="cannot_listen"):
        Service().answers.serve(f"127.0.0.1:{port}")
    server.stop(None).wait()


def test_the_documented_configuration_sends_what_the_service_reads() -> None:
    """The lines of docs/gateways.md: every key of the metadata by its name, and both methods that make evidence."""
    page = (Path(__file__).resolve().parents[4] / "docs" / "gateways.md").read_text(encoding="utf-8")
    source = page.split("\n## agentgateway\n")[1].split("```yaml\n")[1].split("```")[0]
    [processor] = yaml.safe_load(source)["mcpGuardrails"]["processors"]
    assert set(processor["metadata"]) == {agentgateway.TOKEN, agentgateway.CLIENT, agentgateway.CONTEXT}
    assert processor["metadata"][agentgateway.TOKEN] == f"mcpGuardrails.{agentgateway.TOKEN}"
    assert (processor["methods"]["tools/call"], processor["methods"]["tools/list"]) == ("full", "response")
