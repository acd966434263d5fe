"""Who alerts are sent to, as the command line names them, and what every one of them makes of a bad answer."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from assay_stream.alerts.formats import view_of
from assay_stream.errors import ConfigurationError
from assay_stream.forward.receivers import AttemptResult, DeliveryOutcome, read_receivers, secret_from, tls_context
from assay_stream.forward.syslog import SyslogTarget, parse_target
from assay_stream.text.urls import is_address
from tests.support.alerts import alert_of
from tests.support.errors import raises_code
from tests.support.https_server import Authority
from tests.support.toml import toml_of

ALERT = alert_of()
HTTP_RECEIVERS = ("webhook", "splunk_hec", "slack", "teams", "pagerduty")
TIMEOUT_S = 0.5

Conversation = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("soc.example.com:514", SyslogTarget("soc.example.com", 514, "tcp")),
        ("10.0.0.1:514,udp", SyslogTarget("10.0.0.1", 514, "udp")),
        ("[::1]:6514,tls", SyslogTarget("::1", 6514, "tls")),
        *((text, None) for text in ("h", "h:0", "h:65536", "h:1,sctp", "::1:514", "[x]:1", ":514", "h:x", "h:1,")),
        *((text, None) for text in ("a..b:514", ".h:514,udp")),
    ],
)
def test_a_syslog_receiver_is_a_host_a_port_and_a_transport(text: str, expected: SyslogTarget | None) -> None:
    assert parse_target(text) == expected


@pytest.mark.parametrize(
    ("url", "is_one"),
    [
        ("https://soc.example.com/a?b=c", True),
        ("http://127.0.0.1:8080/", True),
        *((url, False) for url in ("", "ftp://h/", "https://", "http://h:99999/", "http://[/", "https://a..b/")),
        (f"https://{'a' * 64}.example/", False),
    ],
)
def test_a_webhook_is_an_address_of_a_host(url: str, is_one: bool) -> None:
    assert is_address(url) == is_one


def test_a_secret_comes_from_the_environment() -> None:
    """Never from the command line, where every user of the machine can read it."""
    assert secret_from("KEY", {"KEY": "value"}) == "value"
    for environment in ({}, {"KEY": ""}):
        with raises_code("secret_missing", kind=ConfigurationError):
            secret_from("KEY", environment)


def test_a_file_that_holds_no_certificates_is_refused(tmp_path: Path) -> None:
    assert isinstance(tls_context(None), ssl.SSLContext)
    for file in (tmp_path / "none.pem", tmp_path / "text.pem"):
        (tmp_path / "text.pem").write_text("no certificate")
        with raises_code("bad_tls_file", kind=ConfigurationError):
            tls_context(file)


def test_a_secret_may_stand_in_a_file(tmp_path: Path) -> None:
    """``KEY_FILE`` names it; the variable itself goes first."""
    path = tmp_path / "key"
    path.write_text("of the file\n")
    assert secret_from("KEY", {"KEY_FILE": str(path)}) == "of the file"
    assert secret_from("KEY", {"KEY_FILE": str(path), "KEY": "value"}) == "value"
    with pytest.raises(ConfigurationError, match="KEY_FILE"):
        secret_from("KEY", {"KEY_FILE": str(tmp_path / "missing")})


@asynccontextmanager
async def talking(handle: Conversation, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    talks: list[asyncio.Task[None]] = []

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.append(asyncio.current_task())  # type: ignore[arg-type]
        try:
            await handle(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # the receiver under test hung up, or the test is over
        finally:
            writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for talk in talks:
            talk.cancel()
        await asyncio.gather(*talks)


async def sent(kind: str, address: str, folder: Path) -> AttemptResult:
    (folder / "secret").write_text("0" * 32)
    (folder / "url").write_text(address)
    fields: dict[str, Any] = {
        "webhook": {"url": address},
        "splunk_hec": {"url": address, "token_file": str(folder / "secret")},
        "slack": {"url_file": str(folder / "url")},
        "teams": {"url_file": str(folder / "url")},
        "pagerduty": {"url": address, "routing_key_file": str(folder / "secret")},
    }
    entry = {"name": "one", "type": kind, "timeout_s": TIMEOUT_S, **fields[kind]}
    (made,) = read_receivers(toml_of({"receivers": [entry]}).encode(), "r.toml", group_prefix="p")
    try:
        # Twice the time it may take, with room: an attempt that never ends fails here.
        return await asyncio.wait_for(made.receiver.send(view_of(ALERT), made.receiver.write(ALERT)), 10 * TIMEOUT_S)
    finally:
        await made.receiver.close()


def answering(head: bytes, *, then: bytes = b"", for_ever: bytes = b"", every_s: float = 0.02) -> Conversation:
    """Reads a request, says something, and hangs up; or goes on saying a little for as long as it is listened to."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in asked.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))
        writer.write(head + then)
        await writer.drain()
        while for_ever:
            writer.write(for_ever)
            await writer.drain()
            await asyncio.sleep(every_s)

    return handle


@pytest.mark.parametrize("kind", HTTP_RECEIVERS)
@pytest.mark.parametrize(
    ("status", "outcome", "retry_after_ms"),
    [
        (b"429 Too Many Requests\r\nRetry-After: 7", DeliveryOutcome.UNAVAILABLE, 7_000),
        (b"500 Internal Server Error", DeliveryOutcome.UNAVAILABLE, 0),
        (b"503 Service Unavailable\r\nRetry-After: 7", DeliveryOutcome.UNAVAILABLE, 7_000),
        (b"413 Content Too Large", DeliveryOutcome.REFUSED, 0),
        (b"422 Unprocessable Content", DeliveryOutcome.REFUSED, 0),
    ],
)
async def test_every_receiver_judges_a_status(
    kind: str, status: bytes, outcome: DeliveryOutcome, retry_after_ms: int, tmp_path: Path
) -> None:
    """Too many or broken for now: waited for, as long as asked. About the alert: a dead letter."""
    told = answering(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")
    async with talking(told) as place:
        answer = await sent(kind, f"http://{place}", tmp_path)
    assert (answer.outcome, answer.retry_after_ms) == (outcome, retry_after_ms)


BROKEN = {
    "half-closed before the answer": answering(b""),
    "half-closed within the headers": answering(b"HTTP/1.1 200 OK\r\nContent-"),
    "half-closed within the body": answering(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", then=b"{"),
    "headers that trickle": answering(b"HTTP/1.1 200 OK\r\n", for_ever=b"X: y\r\n"),
    "a body that trickles": answering(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", for_ever=b"x"),
    "no HTTP": answering(b"220 mail.example.com ESMTP\r\n"),
}


@pytest.mark.parametrize(
    ("kind", "how"),
    [*(("webhook", how) for how in BROKEN), *((kind, "a body that trickles") for kind in HTTP_RECEIVERS[1:])],
)
async def test_an_answer_that_is_none_is_waited_for_in_bounded_time(kind: str, how: str, tmp_path: Path) -> None:
    """Nobody knows whether the alert was taken, so it is sent again; nobody keeps the forwarder on one attempt."""
    async with talking(BROKEN[how]) as place:
        answer = await sent(kind, f"http://{place}", tmp_path)
    assert answer.outcome is DeliveryOutcome.UNAVAILABLE


@pytest.mark.parametrize("kind", HTTP_RECEIVERS)
async def test_nothing_is_told_to_a_stranger(kind: str, tmp_path: Path) -> None:
    """A certificate of an unknown authority: the alert waits, and not a byte of it was sent."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(Authority(tmp_path).issue("127.0.0.1"))
    heard = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.read())

    async with talking(listen, context) as place:
        answer = await sent(kind, f"https://{place}", tmp_path)
    assert answer.outcome is DeliveryOutcome.UNAVAILABLE
    assert not heard


async def test_a_body_without_end_is_left_after_a_bound(tmp_path: Path) -> None:
    """What counts is the status: it was taken."""
    endless = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n", for_ever=b"x" * 65_536, every_s=0)
    async with talking(endless) as place:
        assert (await sent("webhook", f"http://{place}", tmp_path)).outcome is DeliveryOutcome.DELIVERED
