"""Tokens and TLS files of clients: how long they are used, and when they are read again."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from aiokafka.errors import KafkaConnectionError

from assay_stream.config import Settings, load_settings
from assay_stream.errors import ConfigurationError, OperatingError
from assay_stream.kafka.credentials import (
    RereadTls,
    Tokens,
    ask_token_server,
    read_token,
    sasl_options,
    sign_for_amazon,
)
from deploy.local.secured import make_certificates


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Issuer:
    """Issues tokens of a hundred seconds, unless it is away."""

    def __init__(self, clock: Clock) -> None:
        self.token = Tokens(self._ask, clock).token
        self.issued = 0
        self.is_away = False

    async def _ask(self) -> tuple[str, float]:
        await asyncio.sleep(0)
        if self.is_away:
            raise OperatingError("token_unavailable", "away")
        self.issued += 1
        return f"token-{self.issued}", 100.0


async def test_a_token_is_used_for_most_of_its_life() -> None:
    """Connections share it, those that are made at once too."""
    clock = Clock()
    issuer = Issuer(clock)
    assert set(await asyncio.gather(*(issuer.token() for _ in range(5)))) == {"token-1"}
    clock.now_s = 79.9
    assert await issuer.token() == "token-1"
    clock.now_s = 80.0
    assert await issuer.token() == "token-2"


async def test_a_token_serves_to_its_end_while_its_issuer_is_away() -> None:
    """After that there is none, which clients take for a broker that is away."""
    clock = Clock()
    issuer = Issuer(clock)
    await issuer.token()
    issuer.is_away = True
    clock.now_s = 99.9
    assert await issuer.token() == "token-1"
    clock.now_s = 100.0
    with pytest.raises(KafkaConnectionError, match="token_unavailable"):
        await issuer.token()
    issuer.is_away = False
    assert await issuer.token() == "token-2"


async def test_a_token_file_is_read_each_time(tmp_path: Path) -> None:
    """Whatever writes it has renewed it meanwhile; without it there is no connection."""
    file = tmp_path / "token"
    tokens = Tokens(partial(read_token, file))
    with pytest.raises(KafkaConnectionError, match="bad_secret_file"):
        await tokens.token()
    for each in ("first", "second"):
        file.write_text(f"{each}\n")
        assert await tokens.token() == each


async def answered(*parts: bytes) -> tuple[str, float]:
    """What is had of a token server that answers in these parts."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for part in parts:
            await response.write(part)
            await asyncio.sleep(0.05)
        return response

    app = web.Application()
    app.router.add_post("/token", answer)
    async with TestServer(app) as server:
        endpoint = str(server.make_url("/token"))
        return await ask_token_server(endpoint, "client", lambda: "secret", scope="", tls=RereadTls())


async def test_an_answer_that_comes_in_parts_is_read_whole() -> None:
    assert await answered(b'{"access_token": "of-', b'two-parts", "expires_in": 60}') == ("of-two-parts", 60)


@pytest.mark.parametrize("life", [b"NaN", b"Infinity", b"1" + b"0" * 400, b"[" * 10_000])
async def test_a_token_whose_life_is_no_number_is_none(life: bytes) -> None:
    """It would be taken for fresh for ever, and refused by every broker once it has ended."""
    with pytest.raises(OperatingError, match="token_unavailable"):
        await answered(b'{"access_token": "t", "expires_in": %s}' % life)


async def test_what_aws_raises_is_named_without_its_text() -> None:
    """It may quote a key."""

    def sign(region: str) -> tuple[str, int]:
        raise RuntimeError(f"planted key for {region}")

    with pytest.raises(OperatingError, match="RuntimeError") as caught:
        await sign_for_amazon("eu-north-1", sign)
    assert "planted" not in str(caught.value)


async def test_amazon_gets_a_signed_request_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """What AWS's library signs with the credentials in the environment, as its brokers expect it: a presigned URL."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted")
    tokens = sasl_options(Settings(sasl_mechanism="AWS_MSK_IAM", sasl_aws_region="eu-north-1"))
    assert tokens["sasl_mechanism"] == "OAUTHBEARER"
    token = await tokens["sasl_oauth_token_provider"].token()
    url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    query = parse_qs(url.query)
    assert (url.scheme, url.hostname) == ("https", "kafka.eu-north-1.amazonaws.com")
    assert query["Action"] == ["kafka-cluster:Connect"]
    assert query["X-Amz-Credential"][0].startswith("AKIDEXAMPLE/")
    assert query["X-Amz-Signature"]


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"sasl_mechanism": "OAUTHBEARER"}, "ASSAY_STREAM_SASL_TOKEN_FILE"),
        ({"sasl_mechanism": "OAUTHBEARER", "sasl_token_endpoint": "https://login.example"}, "SASL_CLIENT_ID"),
        ({"sasl_mechanism": "AWS_MSK_IAM"}, "ASSAY_STREAM_SASL_AWS_REGION"),
    ],
)
def test_what_a_mechanism_needs_is_named(given: dict[str, str], missing: str) -> None:
    with pytest.raises(ConfigurationError, match=missing):
        sasl_options(Settings(**given))  # type: ignore[arg-type]


def test_a_token_endpoint_may_not_be_eavesdropped_on() -> None:
    with pytest.raises(ConfigurationError, match=r"ASSAY_STREAM_SASL_TOKEN_ENDPOINT.*https"):
        load_settings(sasl_token_endpoint="http://login.example/token")


def test_clients_of_the_same_settings_share_their_tokens(tmp_path: Path) -> None:
    settings = Settings(sasl_mechanism="OAUTHBEARER", sasl_token_file=tmp_path / "token")
    assert sasl_options(settings) == sasl_options(settings.model_copy())


async def connects(port: int, tls: ssl.SSLContext) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    except ssl.SSLCertVerificationError:
        return False
    writer.close()
    return True


async def test_tls_files_are_read_again_when_they_change(tmp_path: Path) -> None:
    """An authority that takes the place of another counts for the next connection; a broken file for none."""
    make_certificates(tmp_path)
    of_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    of_server.load_cert_chain(tmp_path / "broker.pem")
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=of_server)
    port = server.sockets[0].getsockname()[1]
    authorities = tmp_path / "authorities.pem"
    authorities.symlink_to(tmp_path / "foreign-ca.pem")
    tls = RereadTls(cafile=authorities)
    try:
        assert not await connects(port, tls)
        replace(authorities, tmp_path / "ca.pem")
        assert await connects(port, tls)
        (tmp_path / "half-written.pem").write_text("-----BEGIN CERTIFICATE-----\n")
        replace(authorities, tmp_path / "half-written.pem")
        assert await connects(port, tls)
        replace(authorities, tmp_path / "foreign-ca.pem")
        assert not await connects(port, tls)
    finally:
        server.close()
        await server.wait_closed()


def replace(link: Path, target: Path) -> None:
    """As Kubernetes renews what it has mounted."""
    new = link.with_suffix(".new")
    new.symlink_to(target)
    os.replace(new, link)
