"""Secrets are planted wherever one can stand, and looked for in everything that the product says."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from assay_stream.kafka.topics import AccessRole
from assay_stream.model.record import Record, Role
from deploy.local.secured import SecuredBroker
from tests.support.deployment import free_port
from tests.support.fleet import START, a_call_by, a_listing
from tests.support.receivers import WebhookServer
from tests.support.secured import ALL_STAGES, SecuredDeployment

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("secured")]

PLANTED = "planted"
"""Every secret of this file, and every password of the users, begins so."""

KEY = "planted-sk-live-4eC39HqLyjWDarjtT1zdp7dc"

SERVER = f"""
import json, sys
for line in sys.stdin:
    try:
        asked = json.loads(line)
    except ValueError:
        continue
    answers = {{
        "initialize": {{"protocolVersion": "2025-11-25", "capabilities": {{"tools": {{}}}},
                       "serverInfo": {{"name": "s", "version": "1"}}}},
        "tools/list": {{"tools": [{{"name": "pay", "inputSchema": {{"type": "object"}}}}]}},
        "tools/call": {{"content": [{{"type": "text", "text": "token={KEY}"}}]}},
    }}
    print(json.dumps({{"jsonrpc": "2.0", "id": asked["id"], "result": answers[asked["method"]]}}), flush=True)
print("{{" + "planted-half-a-line", flush=True)
"""
"""An MCP server whose answers hold a secret, and whose last line is no JSON."""


@pytest.fixture
def deployment(secured: SecuredBroker) -> Iterator[SecuredDeployment]:
    with SecuredDeployment(
        secured.bootstrap,
        "secrets",
        broker=secured,
        env={
            "ASSAY_STREAM_SEAL_KEY_PASSWORD": "planted-seal-password",
            "ASSAY_STREAM_SSL_KEYFILE_PASSWORD": "planted-key-password",
            "ASSAY_STREAM_LOG_LEVEL": "DEBUG",
        },
    ) as made:
        asyncio.run(made.apply_topics())
        asyncio.run(made.grant())
        yield made


def bad_records() -> list[tuple[Role, bytes, bytes]]:
    """One record for each way in which a record can be refused, each with a secret where the fault is."""
    _, key, call = a_call_by(0, 0, 90, START, None)
    event = json.loads(call)

    def with_data(**fields: object) -> bytes:
        return json.dumps(event | {"data": event["data"] | fields}).encode()

    secret = KEY.encode()
    values = [
        b'{"data": "' + secret,
        b'{"data": "' + secret + b'", "data": 1}',
        b'"' + secret + b'"',
        b"\xff" + secret,
        b'{"data": ' + b"[" * 200 + b'"' + secret + b'"' + b"]" * 200 + b"}",
        json.dumps(event | {"type": KEY}).encode(),
        json.dumps(event | {"time": KEY}).encode(),
        with_data(decision=KEY),
        with_data(args_hash=KEY),
        with_data(tool_name={"planted": KEY}),
        with_data(server_id="", api_key=KEY),
        with_data(policy_digest=[KEY]),
        with_data(args=KEY, result=KEY, args_hash=None),
    ]
    return [(role, key, value) for value in values for role in (Role.CALLS, Role.SNAPSHOTS, Role.CONTROL)]


def run(deployment: SecuredDeployment, user: str, *arguments: str, stdin: bytes = b"") -> bytes:
    done = subprocess.run(
        [sys.executable, "-m", "assay_stream", *arguments],
        env=os.environ | deployment.env | deployment.env_of(user),
        input=stdin,
        capture_output=True,
        timeout=90,
        check=False,
    )
    return done.stderr


def forwarded(deployment: SecuredDeployment) -> bytes:
    """What a forwarder says whose receiver fails, and then refuses; its address and headers hold secrets."""
    answers = iter([(500, {}), (401, {"WWW-Authenticate": KEY})])
    server = WebhookServer(free_port(), lambda _key, _body: next(answers, (400, {})))
    environment = os.environ | deployment.env | deployment.env_of(AccessRole.FORWARDER)
    with server:
        url = f"webhook:{server.url.replace('127', f'user:{KEY}@127')}?token={KEY}"
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "assay_stream", "alerts", "forward", "--to", url),
                *("--header", "Authorization=HOOK_TOKEN", "--hmac-variable", "HOOK_SECRET"),
            ],
            env=environment | {"HOOK_TOKEN": f"Bearer {KEY}", "HOOK_SECRET": "planted-hmac"},
            stderr=subprocess.PIPE,
        )
        try:
            asyncio.run(deployment.wait_for(Role.DEAD_LETTERS, lambda records: len(records) >= 1))
        except AssertionError as error:
            process.terminate()
            error.add_note(process.communicate(timeout=40)[1].decode(errors="replace"))
            raise
        finally:
            process.terminate()
        return process.communicate(timeout=40)[1]


def test_no_secret_is_in_a_log_a_header_or_an_error(deployment: SecuredDeployment, tmp_path: Path) -> None:
    """A whole run: worker at level DEBUG, publisher, tap, bad records, a receiver that refuses."""
    worker = deployment.start_worker(**deployment.env_of(ALL_STAGES))
    asyncio.run(worker.wait_ready())
    bad = bad_records()
    good = [
        a_listing(0, 0, 0, 1, START),
        a_call_by(0, 0, 0, START + timedelta(minutes=1), "snapshot-1"),
        a_listing(0, 0, 1, 2, START + timedelta(minutes=2)),
    ]
    asyncio.run(deployment.put(*bad, *good))
    lines = b"\n".join(value for _, _, value in bad)
    calls = b"".join(
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n"
        for number, (method, params) in enumerate(
            [
                ("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}),
                ("tools/list", {}),
                ("tools/call", {"name": "pay", "arguments": {"api_key": KEY, "note": f"password is {KEY}"}}),
            ]
        )
    )
    said = {
        "publish": run(deployment, AccessRole.PROXY, "publish", "--from", "observations", "-", stdin=lines),
        "wire": run(
            deployment, AccessRole.PROXY, "publish", "--from", "mcp-wire", "--server-id", "w", "-", stdin=lines
        ),
        "tap": run(
            deployment,
            AccessRole.PROXY,
            *("tap", "--server-id", "tapped", "--", sys.executable, "-c", SERVER),
            stdin=calls + b'{"planted": \n',
        ),
        "seal": run(deployment, AccessRole.SEALER, "seal", "--once", "--key", str(tmp_path / "missing.pem")),
        "forward": forwarded(deployment),
    }
    rejected = asyncio.run(deployment.wait_for(Role.REJECTED, lambda records: len(records) >= len(bad) - 6))
    evidence = asyncio.run(
        deployment.wait_for(Role.EVIDENCE, lambda records: any(b"tapped" in (one.value or b"") for one in records))
    )
    said["worker"] = worker.log.read_bytes()
    for name, text in said.items():
        assert PLANTED.encode() not in text, (name, text)
    assert said["forward"], "it has said something"
    assert said["publish"].count(b"assay-stream: standard input: ") > 10
    headers = all_headers(deployment, rejected)
    assert any(name.startswith("error.") for name, _ in headers)
    assert not [header for header in headers if PLANTED.encode() in header[1]]
    tapped = [record.value for record in evidence if b"tapped" in (record.value or b"")]
    assert tapped
    assert not [value for value in tapped if PLANTED.encode() in (value or b"")]


def all_headers(deployment: SecuredDeployment, rejected: list[Record]) -> list[tuple[str, bytes]]:
    """Headers of what the product wrote; those of inputs are whoever's who sent them."""
    written = [Role.EVIDENCE, Role.BINDINGS, Role.FINDINGS, Role.ALERTS, Role.VERDICTS, Role.DEAD_LETTERS]
    records = rejected + [record for role in written for record in asyncio.run(deployment.read(role))]
    return [header for record in records for header in record.headers]
