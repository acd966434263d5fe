"""Clients that show brokers a token: it ends while they work, and nothing is lost or doubled."""

import asyncio
import base64
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, unquote_plus

import pytest
from aiohttp import web

from assay_stream.kafka.topics import AccessRole
from assay_stream.model.record import Role
from deploy.local.secured import SecuredBroker
from tests.support.deployment import free_port, payload
from tests.support.fleet import START, a_call_by, a_listing
from tests.support.secured import ALL_STAGES, SecuredDeployment

pytestmark = pytest.mark.kafka

LIFE_S = 4
SECRET = "planted secret: +/%"


class TokenServer:
    """The token endpoint of an OAuth 2.0 server: a client's id is the user that its tokens name."""

    def __init__(self, broker: SecuredBroker) -> None:
        self._broker = broker
        self.issued: Counter[str] = Counter()
        self.port = free_port()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/token"

    async def answer(self, request: web.Request) -> web.Response:
        user, _, secret = (
            base64.b64decode(request.headers["Authorization"].removeprefix("Basic ")).decode().partition(":")
        )
        form = parse_qs(await request.text())
        if unquote_plus(secret) != SECRET or form != {"grant_type": ["client_credentials"], "scope": ["kafka"]}:
            return web.json_response({"error": "invalid_client"}, status=401)
        self.issued[unquote_plus(user)] += 1
        token = self._broker.issue(unquote_plus(user), life_s=LIFE_S)
        return web.json_response({"access_token": token, "token_type": "Bearer", "expires_in": LIFE_S})


@pytest.fixture
async def server(secured: SecuredBroker) -> AsyncIterator[TokenServer]:
    made = TokenServer(secured)
    app = web.Application()
    app.router.add_post("/token", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", made.port).start()
    yield made
    await runner.cleanup()


def env_of(secured: SecuredBroker, **more: str) -> dict[str, str]:
    return {
        "ASSAY_STREAM_BOOTSTRAP_SERVERS": secured.tokens,
        "ASSAY_STREAM_SECURITY_PROTOCOL": "SASL_SSL",
        "ASSAY_STREAM_SSL_CAFILE": str(secured.cafile),
        "ASSAY_STREAM_SASL_MECHANISM": "OAUTHBEARER",
        **more,
    }


def client_env(secured: SecuredBroker, server: TokenServer, user: str, *, secret: str = SECRET) -> dict[str, str]:
    return env_of(
        secured,
        ASSAY_STREAM_SASL_TOKEN_ENDPOINT=server.endpoint,
        ASSAY_STREAM_SASL_TOKEN_SCOPE="kafka",
        ASSAY_STREAM_SASL_CLIENT_ID=user,
        ASSAY_STREAM_SASL_CLIENT_SECRET=secret,
    )


@pytest.mark.tier(name="outages")
async def test_tokens_that_end_while_calls_come_lose_and_double_nothing(
    secured: SecuredBroker, server: TokenServer
) -> None:
    """A publisher and a worker go on over several lives of their tokens; each call is in the evidence once."""
    with SecuredDeployment(secured.bootstrap, "tokens", broker=secured) as deployment:
        await deployment.grant()
        await deployment.apply_topics()
        worker = await deployment.ready_worker(**client_env(secured, server, ALL_STAGES))
        publisher = await asyncio.create_subprocess_exec(
            *[sys.executable, "-m", "assay_stream", "publish", "--from", "observations", "-"],
            env=os.environ | deployment.env | client_env(secured, server, AccessRole.PROXY),
            stdin=subprocess.PIPE,
        )
        assert publisher.stdin is not None
        began_s, sent = time.monotonic(), 0
        publisher.stdin.write(a_listing(0, 0, 0, 1, START)[2] + b"\n")
        while time.monotonic() - began_s < 4 * LIFE_S:
            for _ in range(20):
                at = START + timedelta(seconds=60 + sent)
                publisher.stdin.write(a_call_by(0, 0, sent, at, "snapshot-1")[2] + b"\n")
                sent += 1
            await publisher.stdin.drain()
            await asyncio.sleep(0.1)
        publisher.stdin.close()
        assert await asyncio.wait_for(publisher.wait(), 60) == 0
        evidence = await deployment.wait_for(Role.EVIDENCE, lambda records: len(records) >= sent)
        calls = Counter(str(payload(record)["tool_call_id"]) for record in evidence)
        assert calls == Counter(f"call-{number}" for number in range(sent))
        assert server.issued[AccessRole.PROXY] >= 3
        assert server.issued[ALL_STAGES] >= 3
        assert worker.process.poll() is None
        assert "planted" not in worker.log.read_text(errors="replace")


async def test_a_token_file_is_read_again_for_each_connection(secured: SecuredBroker, tmp_path: Path) -> None:
    """A token that has ended is refused; the one that takes its place in the file is not."""
    deployment = SecuredDeployment(secured.bootstrap, "token-file", broker=secured)
    await deployment.grant()
    await deployment.apply_topics()
    file = tmp_path / "token"
    env = env_of(secured, ASSAY_STREAM_SASL_TOKEN_FILE=str(file))
    file.write_text(secured.issue(AccessRole.ADMIN, life_s=-3_600))
    refused = await asyncio.to_thread(deployment.run, "topics", "show", **env)
    assert refused.returncode == 2
    assert "sasl_refused" in refused.stderr
    file.write_text(secured.issue(AccessRole.ADMIN, life_s=60))
    shown = await asyncio.to_thread(deployment.run, "topics", "show", "--json", **env)
    assert shown.returncode == 0, shown.stderr
    assert '"state":"ok"' in shown.stdout


async def test_a_server_that_refuses_the_client_or_is_away_is_named(
    secured: SecuredBroker, server: TokenServer
) -> None:
    """The wrong secret ends a command at once, a server that does not answer when the operator's limit has passed."""
    deployment = SecuredDeployment(secured.bootstrap, "token-refused", broker=secured)
    wrong = client_env(secured, server, AccessRole.ADMIN, secret="planted, and wrong")
    refused = await asyncio.to_thread(deployment.run, "topics", "show", **wrong)
    assert (refused.returncode, "token_refused" in refused.stderr) == (2, True), refused.stderr
    assert "planted" not in refused.stderr
    away = wrong | {
        "ASSAY_STREAM_SASL_TOKEN_ENDPOINT": f"http://127.0.0.1:{free_port()}/token",
        "ASSAY_STREAM_COMMAND_CONNECT_LIMIT_S": "2",
    }
    unanswered = await asyncio.to_thread(deployment.run, "topics", "show", **away)
    assert "token_unavailable" in unanswered.stderr
    assert unanswered.returncode != 0
