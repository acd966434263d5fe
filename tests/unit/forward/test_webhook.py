"""Alerts posted to a real HTTP server on loopback."""

from __future__ import annotations

import pytest

from assay_stream.alerts.formats import view_of
from assay_stream.errors import ConfigurationError
from assay_stream.forward.receivers import DELIVERED, AttemptResult, DeliveryOutcome, Entry
from assay_stream.forward.webhook import Webhook
from tests.support.alerts import alert_of
from tests.support.deployment import free_port
from tests.support.errors import raises_code
from tests.support.receivers import WebhookServer

VIEW = view_of(alert_of())


def webhook_to(url: str, header: tuple[str, str] | None = None) -> Webhook:
    fields = {"type": "webhook", "name": "x", "url": url, "timeout_s": 5.0, "format": "jsonl"}
    if header is None:
        return Webhook(Entry(fields, "r.toml"))
    name, value = header
    return Webhook(Entry(fields | {"header": name, "header_file": ""}, "r.toml", secrets={"header_file": value}))


async def posted(url: str) -> AttemptResult:
    webhook = webhook_to(url)
    try:
        return await webhook.send(VIEW, '{"ö":1}')
    finally:
        await webhook.close()


async def test_an_alert_is_one_post_with_its_key() -> None:
    """The body in UTF-8, its media type, and the idempotency key."""
    with WebhookServer(free_port()) as server:
        assert await posted(server.url) == DELIVERED
    ((key, body, headers),) = server.taken
    assert (key, body) == (VIEW.key(), '{"ö":1}'.encode())
    assert headers["content-type"] == "application/json"
    assert "x-assay-stream-signature" not in headers


async def test_a_receiver_that_is_away_is_unavailable() -> None:
    """Nobody listens: that says nothing about the alert."""
    assert (await posted(f"http://127.0.0.1:{free_port()}/")).outcome is DeliveryOutcome.UNAVAILABLE


@pytest.mark.parametrize(
    "header",
    [
        *((name, "x") for name in ("Content-Type", "Transfer-Encoding", "connection", "X-Assay-Stream-Signature")),
        ("a b", "x"),
        ("", "x"),
        ("X-Key", "a\r\nB: c"),
        ("X-Key", "ö"),
    ],
)
def test_a_header_that_cannot_be_is_refused(header: tuple[str, str]) -> None:
    """At start, and without its value in the message."""
    with raises_code("bad_header", kind=ConfigurationError):
        webhook_to("http://h/", header)


@pytest.mark.parametrize(
    ("url", "header"),
    [
        ("http://soc.example.com/hook", ("X-Key", "hidden")),
        ("http://user:hidden@soc.example.com/hook", None),
        ("http://127.0.0.1.example.com/hook", ("X-Key", "hidden")),
        ("http://localhost@soc.example.com/hook", None),
    ],
)
def test_a_secret_does_not_go_over_plain_http(url: str, header: tuple[str, str] | None) -> None:
    """Refused at start, without the secret in the message."""
    with raises_code("bad_header", kind=ConfigurationError) as caught:
        webhook_to(url, header)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("url", ["https://soc.example.com/", "http://127.0.0.1:1/", "http://[::1]:1/"])
def test_a_secret_may_go_over_https_and_within_this_machine(url: str) -> None:
    assert webhook_to(url, ("X-Key", "hidden"))
