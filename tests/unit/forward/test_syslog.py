"""Alerts sent to a real syslog receiver on loopback."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from assay_stream.alerts.formats import view_of
from assay_stream.forward import syslog as module
from assay_stream.forward.receivers import DELIVERED, AttemptResult, DeliveryOutcome, Entry
from assay_stream.forward.syslog import Syslog, SyslogTarget
from tests.support.alerts import alert_of
from tests.support.deployment import free_port
from tests.support.https_server import Authority
from tests.support.receivers import SyslogServer

VIEW = view_of(alert_of())


def syslog(port: int, transport: str = "tcp", *, timeout_s: float = 2.0, **more: str) -> Syslog:
    return Syslog(Entry({"to": f"127.0.0.1:{port},{transport}", "timeout_s": timeout_s, **more}, "r.toml"))


async def until(server: SyslogServer, count: int) -> None:
    async with asyncio.timeout(5):
        while len(server.messages) < count:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(("fields", "start"), [({}, "CEF:0|"), ({"format": "jsonl"}, "{")], ids=["default", "jsonl"])
def test_an_alert_is_written_in_the_format_that_is_asked_for(fields: dict[str, Any], start: str) -> None:
    assert syslog(514, **fields).write(alert_of()).startswith(start)


async def test_messages_arrive_one_by_one_over_tcp() -> None:
    """Octet counting keeps them apart, whatever is in them."""
    with SyslogServer(free_port()) as server:
        sender = syslog(server.port)
        for body in ("one\n1 x", "zwö", "three"):
            assert await sender.send(VIEW, body) == DELIVERED
        await until(server, 3)
        await sender.close()
    assert [message.rpartition(b"] ")[2] for message in server.messages] == [
        b"one\n1 x",
        b"\xef\xbb\xbfzw\xc3\xb6",
        b"three",
    ]


async def test_what_a_broken_connection_carried_last_is_sent_again() -> None:
    """Nobody knows whether the receiver read it before it ended."""
    server = SyslogServer(free_port())
    sender = syslog(server.port)
    with server:
        assert await sender.send(VIEW, "before") == DELIVERED
        await until(server, 1)
    assert (await sender.send(VIEW, "after")).outcome is DeliveryOutcome.UNAVAILABLE
    with server:
        assert await sender.send(VIEW, "after") == DELIVERED
        await until(server, 3)
        await sender.close()
    assert [message.rpartition(b" ")[2] for message in server.messages] == [b"before", b"before", b"after"]


async def test_what_two_broken_connections_carried_is_sent_a_third_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver that ends again right after it came back may have read nothing of what was sent to it again."""
    monkeypatch.setattr(module, "_KEPT_S", 2.0)
    server = SyslogServer(free_port())
    sender = syslog(server.port)
    with server:
        assert await sender.send(VIEW, "before") == DELIVERED
        await until(server, 1)
    assert (await sender.send(VIEW, "after")).outcome is DeliveryOutcome.UNAVAILABLE
    await asyncio.sleep(2.1)
    with server:
        assert await sender.send(VIEW, "after") == DELIVERED
        await until(server, 3)
    assert (await sender.send(VIEW, "last")).outcome is DeliveryOutcome.UNAVAILABLE
    with server:
        assert await sender.send(VIEW, "last") == DELIVERED
        await until(server, 6)
        await sender.close()
    assert [message.rpartition(b" ")[2] for message in server.messages[3:]] == [b"before", b"after", b"last"]


async def test_a_receiver_that_does_not_read_is_not_believed() -> None:
    """An alert that its host cannot take in is not delivered: the attempt ends in time."""
    with socket.create_server(("127.0.0.1", 0), backlog=1) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        sender = syslog(listener.getsockname()[1], timeout_s=0.3)
        answer = await sender.send(VIEW, "x" * 8_000_000)
        await sender.close()
    assert answer == AttemptResult(outcome=DeliveryOutcome.UNAVAILABLE, code="timeout")


async def test_a_datagram_is_one_message() -> None:
    """RFC 5426: no frame; and what no datagram carries is refused for good."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.setblocking(False)
        sender = syslog(receiver.getsockname()[1], "udp")
        assert await sender.send(VIEW, "body") == DELIVERED
        message = await asyncio.get_running_loop().sock_recv(receiver, 65_535)
        assert message.startswith(b"<35>1 ")
        assert message.endswith(b"] body")
        assert await sender.send(VIEW, "x" * 70_000) == AttemptResult(
            outcome=DeliveryOutcome.REFUSED, code="too_large_for_udp"
        )
        await sender.close()


@pytest.mark.parametrize("known", [True, False])
async def test_tls_checks_the_certificate(tmp_path: Path, known: bool) -> None:
    """RFC 5425: sent under a certificate of a known authority, and not sent under another."""
    received = bytearray()
    authority = Authority(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.issue("127.0.0.1"))

    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1_000):
            received.extend(data)
        writer.close()

    server = await asyncio.start_server(read, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        ca_file = {"ca_file": str(authority.file)} if known else {}
        sender = syslog(port, "tls", timeout_s=2.0, **ca_file)
        answer = await sender.send(VIEW, "body")
        await sender.close()
        if known:
            async with asyncio.timeout(5):
                while not received.endswith(b"body"):
                    await asyncio.sleep(0.01)
    assert answer.outcome is (DeliveryOutcome.DELIVERED if known else DeliveryOutcome.UNAVAILABLE)
    assert bool(received) is known


@pytest.mark.parametrize("transport", ["tcp", "udp", "tls"])
async def test_a_host_that_no_encoding_takes_ends_nothing(transport: str) -> None:
    """One receiver's address must not end the process that serves the others."""
    sender = syslog(514, transport)
    sender._target = SyslogTarget(host="a..b", port=514, transport=transport)
    assert (await sender.send(VIEW, "x")).outcome is DeliveryOutcome.UNAVAILABLE
