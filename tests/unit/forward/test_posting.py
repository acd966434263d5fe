"""What may be logged of an address, what goes out, and what is read of an answer."""

from __future__ import annotations

import asyncio

import pytest

from assay_stream.forward.posting import HttpAnswer, Poster
from assay_stream.forward.receivers import DELIVERED, DeliveryOutcome
from assay_stream.text.urls import place_of
from tests.support.deployment import free_port
from tests.support.raw_http import a_response, body_of, raw_server
from tests.support.receivers import WebhookServer


def test_a_place_has_no_path_user_or_query() -> None:
    assert place_of("https://u:secret@hooks.example.com:8443/secret?key=secret") == "https://hooks.example.com:8443"


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alerts go where the operator says, and nowhere else."""
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    with WebhookServer(free_port()) as server:
        poster = Poster(headers={"Idempotency-Key": "k"}, timeout_s=5.0, tls=True)
        assert (await poster.post(server.url, b"{}")).result == DELIVERED
        await poster.close()


async def test_a_host_that_no_encoding_takes_ends_nothing() -> None:
    """One receiver's address must not end the process that serves the others."""
    poster = Poster(headers={}, timeout_s=5.0, tls=True)
    assert (await poster.post("https://xn--a/", b"{}")).result.outcome is DeliveryOutcome.UNAVAILABLE
    await poster.close()


async def answered(answer: bytes, path: str = "/hook", *, user: str = "", **headers: str) -> tuple[HttpAnswer, bytes]:
    heads: list[bytes] = []

    async def serve(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(head)
        await body_of(head, reader)
        writer.write(answer)

    async with raw_server(serve) as url:
        poster = Poster(headers=headers, timeout_s=5.0, tls=True)
        address = url.replace("://", f"://{user}").removesuffix("/mcp") + path
        found = await poster.post(address, b"{}")
        await poster.close()
    return found, heads[0]


async def test_an_address_arrives_as_it_was_given() -> None:
    """Some are signed: another spelling of the same would not be theirs."""
    path = "/a%41%2F?sp=%2Ftriggers%2Frun&sig=x%2By+z~'"
    found, head = await answered(a_response(b"ok"), path)
    assert (found.status, found.body) == (200, b"ok")
    assert head.startswith(f"POST {path} HTTP/1.1\r\n".encode())
    assert b"\r\naccept-encoding: identity\r\n" in head.lower()


async def test_a_user_in_the_address_goes_as_a_header() -> None:
    _, head = await answered(a_response(b""), user="u:p%40@")
    assert b"\r\nAuthorization: Basic dTpwQA==\r\n" in head


async def test_a_header_of_its_own_goes_before_a_user_in_the_address() -> None:
    """One of them can be sent; an alert must not wait for ever because there are both."""
    found, head = await answered(a_response(b""), user="u:p%40@", Authorization="Bearer t")
    assert found.result == DELIVERED
    assert b"\r\nAuthorization: Bearer t\r\n" in head


async def test_a_long_answer_is_cut_and_its_header_may_be_long() -> None:
    """What is kept of a body is bounded; gateways send policies of many kilobytes."""
    found, _ = await answered(a_response(b"x" * 200_000, f"Content-Security-Policy: {'p' * 20_000}"))
    assert (found.result, found.body) == (DELIVERED, b"x" * 65_536)
