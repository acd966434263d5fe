"""An operator pins, a server is swapped, the tap refuses: on real Kafka, with a real worker, server and client."""

import asyncio
import json
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ErrorData

from assay_stream.kafka.connection import connection_options
from assay_stream.model.control import PIN_REJECT_TYPE, PIN_SET_TYPE
from assay_stream.model.record import Role
from assay_stream.observe import VerdictClient
from assay_stream.observe.recorded import decision_event
from assay_stream.observe.wire import BLOCKED_CODE
from assay_stream.schemes.hangar import Action
from deploy.local.kafka import QUICK_START, Broker
from tests.support.deployment import Deployment, free_port, payload
from tests.support.enforcing import TOOL, call, enforced, is_refused, passed, time_server, wait_for_row
from tests.support.http_tap import http_server, listening
from tests.support.ingest import until

pytestmark = [pytest.mark.kafka, pytest.mark.servers]

ENFORCED_WITHIN_S = 1.0


async def until_ruled(client: Client, wanted: Callable[[dict[str, Any] | None], bool]) -> float:
    deadline = time.monotonic() + 20
    while not wanted(await call(client)):
        assert time.monotonic() < deadline
    return time.monotonic()


async def test_a_pinned_tool_of_a_swapped_server_is_refused_until_it_is_approved(deployment: Deployment) -> None:
    """Policy, pin, call; another version, a refusal that says why, an alert about the release; approval, call."""
    await deployment.ready_worker()
    reason = ("--reason", "as reviewed")
    await deployment.output_of("policy", "set", "--server-id", "time", "--enforcement", "block", "--new", *reason)
    async with enforced(deployment, time_server("0.6.2")) as client:
        await client.list_tools()
        assert await call(client) is None, "a tool without a pin passes"
        await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) == 1)
        await deployment.output_of("pins", "approve", "--server-id", "time", "--all", *reason)
        await wait_for_row(deployment, "pins", "list", tool_name=TOOL, state="approved", comparison="match")
        assert await call(client) is None, "an approved one passes"
    pinned = {row["tool_name"]: row["value"] for row in await wait_for_row(deployment, "pins", "list")}

    async with enforced(deployment, time_server("2026.10.19")) as client:
        await client.list_tools()
        error = await call(client)
        assert error is not None
        assert (error["code"], error["reason_code"]) == ("call_blocked", "definition_mismatch")
        assert (error["server_id"], error["tool_name"], error["expected"]) == ("time", TOOL, pinned[TOOL])
        assert error["observed"] not in (None, pinned[TOOL])

        evidence = [payload(each) for each in await deployment.wait_for(Role.EVIDENCE, lambda all_: len(all_) == 3)]
        [refused] = [each for each in evidence if each["decision"] == "deny"]
        assert (refused["reason_code"], refused["error"]) == ("definition_mismatch", {"code": "not_passed_on"})
        pin = refused["pin"]
        assert isinstance(pin, dict)
        assert (pin["status"], pin["action"], pin["observed"]) == ("mismatch", "block", error["observed"])
        raised = await deployment.wait_for(
            Role.ALERTS, lambda all_: any(b'"server_changed"' in (each.value or b"") for each in all_)
        )
        infos = [json.loads(each.value or b"")["finding_info"] for each in raised]
        [release] = [info for info in infos if "related_events" in info][-1:]
        assert TOOL in {part.get("desc") for part in release["related_events"]}
        of_release = await asyncio.to_thread(deployment.run, "pins", "approve", "--alert", release["uid"], *reason)
        assert of_release.returncode == 2, "one command approves no more than was shown"

        diff = await asyncio.to_thread(deployment.run, "pins", "diff", "--server-id", "time", "--tool", TOOL)
        assert diff.returncode == 1
        assert f"{TOOL}: differs from its pin under assay.p60" in diff.stdout
        assert "--- pinned" in diff.stdout
        assert "+++ offered" in diff.stdout
        await deployment.output_of("pins", "approve", "--server-id", "time", "--tool", TOOL, *reason, "--author", "ann")
        await until_ruled(client, passed)
    rows = await wait_for_row(deployment, "pins", "list", tool_name=TOOL, comparison="match")
    assert {(row["state"], row["author"]) for row in rows if row["tool_name"] == TOOL} == {("approved", "ann")}
    await the_listings_say(deployment, pinned[TOOL], error["observed"])


@pytest.mark.parametrize(("mode", "options"), [("legacy", ["hide"]), ("2026-07-28", [])])
async def test_a_swapped_server_is_refused_over_http(deployment: Deployment, mode: str, options: list[str]) -> None:
    """Policy, pins, another server under the same address: its changed tool is refused, and hidden if that is asked."""
    await deployment.ready_worker()
    reason, port, behind = ("--reason", "as reviewed"), free_port(), free_port()
    await deployment.output_of("policy", "set", "--server-id", "web", "--enforcement", "block", "--new", *reason)
    listen = ["tap", "--listen", f"127.0.0.1:{port}", "--server-id", "web", "--observer-id", "proxy-1", "--enforce"]
    command = [sys.executable, "-m", "assay_stream", *listen, *options, "--upstream", f"http://127.0.0.1:{behind}/mcp"]
    async with listening(command, port, env=deployment.env):
        async with http_server(port=behind), Client(f"http://127.0.0.1:{port}/mcp", mode=mode) as client:
            await client.list_tools()
            assert not (await client.call_tool("echo", {"message": "m"})).is_error
            await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) == 1)
            await deployment.output_of("pins", "approve", "--server-id", "web", "--all", *reason)
            await wait_for_row(deployment, "pins", "list", tool_name="echo", comparison="match")
            assert not (await client.call_tool("echo", {"message": "m"})).is_error
        async with http_server("swapped", port=behind), Client(f"http://127.0.0.1:{port}/mcp", mode=mode) as client:
            shown = {tool.name for tool in (await client.list_tools()).tools}
            error = await refusal_of(client, "echo", {"message": "m"})
            assert not (await client.call_tool("slow", {"seconds": 0})).is_error, "another tool passes"
        called = b'"slow"'
        records = await deployment.wait_for(
            Role.EVIDENCE, lambda all_: any(called in (each.value or b"") for each in all_)
        )
    [denied] = [each for each in map(payload, records) if each["decision"] == "deny"]
    binding = denied["binding"]
    assert isinstance(binding, dict)
    assert (denied["tool"], binding.get("hidden", False)) == ("echo", bool(options))
    assert ("echo" in shown, "slow" in shown) == (not options, True)
    assert isinstance(error.data, dict)
    assert (error.code, error.data["reason_code"]) == (BLOCKED_CODE, "definition_mismatch")


async def refusal_of(client: Client, name: str, arguments: dict[str, Any]) -> ErrorData:
    """Call a tool until the tap knows the decision about it and refuses: the error."""
    async with asyncio.timeout(20):
        while True:
            try:
                await client.call_tool(name, arguments)
            except MCPError as error:
                return error.error


async def the_listings_say(deployment: Deployment, first: str, second: str) -> None:
    """What an operator sees after a policy, and two values that a tool was pinned to in turn."""
    history = await wait_for_row(deployment, "pins", "history", "--tool", TOOL)
    assert [row["change"] for row in history] == ["policy.set", "pin.set", "pin.set"]
    assert [row.get("value") for row in history[1:]] == [first, second]
    same = await asyncio.to_thread(deployment.run, "pins", "diff", "--server-id", "time", "--tool", TOOL)
    assert "no differences" in same.stderr
    [policy] = await wait_for_row(deployment, "policy", "list")
    assert (policy["tool_name"], policy["enforcement"]) == ("*", "block")
    accepted = ("--server-id", "time", "--domain", "example.com", "--fingerprint", "sha256:" + "a" * 64)
    await deployment.output_of("keys", "accept", *accepted, "--reason", "as reviewed")
    [key] = await wait_for_row(deployment, "keys", "list", what="accepted")
    assert (key["domain"], key["fingerprint"]) == ("example.com", "sha256:" + "a" * 64)
    assert "sha256:" in await deployment.output_of("keys", "list"), "the same as a table"


@asynccontextmanager
async def operator(deployment: Deployment) -> AsyncIterator[Callable[[str, Mapping[str, Any]], Any]]:
    """Decisions on a connection that is open already; gives the clock's time just before each was sent."""
    async with AIOKafkaProducer(bootstrap_servers=deployment.bootstrap) as producer:

        async def decide(kind: str, data: Mapping[str, Any]) -> float:
            content = {"server_id": "time", "author": "ann", "reason": "test", **data}
            event = decision_event(
                kind, content, author="ann", event_id=str(uuid.uuid4()), decided_at=datetime.now(UTC)
            )
            before_s = time.monotonic()
            await producer.send_and_wait(
                deployment.topics[Role.CONTROL], key=event.key, value=event.value, headers=list(event.headers)
            )
            return before_s

        yield decide


async def test_a_decision_reaches_a_running_tap_within_a_second(
    deployment: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both ways, several times: from before it is published until a call is ruled on by it."""
    await deployment.ready_worker()
    await deployment.output_of(
        "policy", "set", "--server-id", "time", "--enforcement", "block", "--new", "--reason", "as reviewed"
    )
    async with enforced(deployment, time_server("2026.10.19")) as client, operator(deployment) as decide:
        await client.list_tools()
        await deployment.wait_for(Role.DEFINITIONS, lambda records: len(records) >= 2)
        await deployment.output_of("pins", "approve", "--server-id", "time", "--all", "--reason", "as reviewed")
        rows = await wait_for_row(deployment, "pins", "list", tool_name=TOOL, comparison="match")
        value = next(row["value"] for row in rows if row["tool_name"] == TOOL)
        assert await call(client) is None
        decision = {"tool_name": TOOL, "scheme": "assay.p60", "value": value}
        took_s: dict[str, list[float]] = {"refused": [], "passed": []}
        for _ in range(3):
            sent_s = await decide(PIN_REJECT_TYPE, decision)
            took_s["refused"].append(await until_ruled(client, is_refused) - sent_s)
            sent_s = await decide(PIN_SET_TYPE, decision)
            took_s["passed"].append(await until_ruled(client, passed) - sent_s)
    with capsys.disabled():
        print({name: [round(each, 3) for each in times] for name, times in took_s.items()})
    assert max(*took_s["refused"], *took_s["passed"]) < ENFORCED_WITHIN_S


@pytest.mark.parametrize(("option", "passes"), [((), False), (("--enforce-unavailable", "allow"), True)])
async def test_before_the_first_verdicts_were_read_the_operators_choice_holds(
    option: tuple[str, ...], passes: bool, tmp_path: Path
) -> None:
    """No broker is there; refusing is the default."""
    deployment = Deployment(f"127.0.0.1:{free_port()}", name="nobody")
    output = tmp_path / "observations.ndjson"
    async with enforced(deployment, time_server("2026.10.19"), *option, "--output", str(output)) as client:
        await client.list_tools()
        error = await call(client)
    if passes:
        assert error is None
    else:
        assert error is not None
        assert error["reason_code"] == "verdicts_unavailable"
    events = [json.loads(line)["data"] for line in output.read_bytes().splitlines()]
    [made] = [event for event in events if "decision" in event]
    assert made["decision"] == ("allow" if passes else "deny")


@pytest.mark.tier(name="outages")
async def test_the_last_verdicts_stand_while_the_brokers_are_away(tmp_path: Path) -> None:
    """Neither forgotten nor fresh: their age grows. When the brokers are back, what is decided counts again."""
    with Broker(options=QUICK_START) as broker:
        deployment = Deployment(broker.bootstrap, name="away")
        await deployment.apply_topics()
        key, verdict = b'["time","t"]', b'{"action":"%s","status":"unpinned"}'
        await deployment.send(Role.VERDICTS, [(key, verdict % b"block")])
        client = VerdictClient(
            connection_options(deployment.settings), topic=deployment.topics[Role.VERDICTS], monotonic_s=time.monotonic
        )
        assert client.rule("time", "t").reason_code == "verdicts_unavailable"
        client.start()
        try:
            assert await asyncio.to_thread(client.wait_ready, 20.0)
            assert client.rule("time", "t").action is Action.BLOCK
            await asyncio.sleep(1.5)
            await until(lambda: client.age_s < 1.5)
            broker.kill()
            await until(lambda: client.age_s > 2.5)
            assert client.rule("time", "t").action is Action.BLOCK
            await asyncio.to_thread(broker.start)
            await deployment.send(Role.VERDICTS, [(key, verdict % b"warn")])
            await until(lambda: client.rule("time", "t").action is Action.WARN and client.age_s <= 1)
        finally:
            await asyncio.to_thread(client.close)


async def test_a_topic_that_is_not_there_yet_is_waited_for(broker: Broker) -> None:
    """And closing ends in time while it is not."""
    deployment = Deployment(broker.bootstrap, name="later")
    client = VerdictClient(
        connection_options(deployment.settings),
        topic=deployment.topics[Role.VERDICTS],
        unavailable=Action.ALLOW,
        monotonic_s=time.monotonic,
    )
    client.start()
    try:
        assert not await asyncio.to_thread(client.wait_ready, 2.0)
        assert client.rule("s", "t").action is Action.ALLOW
        await deployment.apply_topics()
        assert await asyncio.to_thread(client.wait_ready, 20.0)
        assert client.rule("s", "t").reason_code == "no_verdict"
    finally:
        started_s = time.monotonic()
        await asyncio.to_thread(client.close)
    assert time.monotonic() - started_s < 5
