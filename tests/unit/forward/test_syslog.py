"""Alerts sent to a real syslog receiver on loopback; as its messages (RFC 5424) and frames (RFC 6587, RFC 5425)."""

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
from assay_stream.forward.syslog import Syslog, SyslogTarget, octet_counted, syslog_message
from assay_stream.model.kinds import Kind
from tests.support.alerts import alert_of, finding_of
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


def message(body: str = "body", *, host: str = "soc.example.com", tool: str | None = "tool", **members: Any) -> bytes:
    return syslog_message(view_of(alert_of(tool) | members), body, host=host)


def test_the_header_and_the_structured_data() -> None:
    """RFC 5424, 6: PRI and version, time, host, application, no process id, the kind; then one element."""
    uid = finding_of().uid()
    assert message().decode() == (
        "<35>1 2026-03-01T00:00:00.123Z soc.example.com assay-stream - tool_changed "
        f'[alert@32473 uid="{uid}" kind="tool_changed" count="1" activity="1" severity="4" server="server" '
        'tool="tool"] body'
    )


def test_a_prompt_has_a_parameter_of_its_own() -> None:
    alert = alert_of(None, kind=Kind.PROMPT_CHANGED, item_name="ask")
    written = syslog_message(view_of(alert), "body", host="h")
    assert b' server="server" item="ask"] body' in written
    assert b"tool=" not in written


@pytest.mark.parametrize(
    ("severity_id", "priority"), [(1, 38), (2, 37), (3, 36), (4, 35), (5, 34), (6, 33), (0, 37), (99, 37)]
)
def test_the_priority_is_facility_times_eight_and_severity(severity_id: int, priority: int) -> None:
    """RFC 5424, 6.2.1: facility 4, and severities 6 informational to 1 alert; never emergency."""
    assert message(severity_id=severity_id).startswith(f"<{priority}>1 ".encode())


def test_a_body_beyond_ascii_has_a_byte_order_mark() -> None:
    """RFC 5424, 6.4: UTF-8 must start with the BOM; what is ASCII needs no telling."""
    assert message("tööl").endswith(b"] \xef\xbb\xbft\xc3\xb6\xc3\xb6l")
    assert b"\xef\xbb\xbf" not in message("tool")


def test_parameter_values_are_escaped() -> None:
    r"""RFC 5424, 6.3.3: ``"``, ``\`` and ``]`` are escaped with a backslash, and nothing else is."""
    assert b'tool="a\\"b\\\\c\\]d[=e"' in message(tool='a"b\\c]d[=e')


def test_a_name_cannot_make_a_line() -> None:
    assert b"\n" not in message(tool="a\n<0>1 - - - - - forged")


def test_structured_data_is_inert() -> None:
    written = message(tool='a\x1b[2J\x9b\x7f\u202e\u2028\U000e0041]"b').decode()
    assert 'tool="a\\\\u{1b}[2J\\\\u{9b}\\\\u{7f}\\\\u{202e}\\\\u{2028}\\\\u{e0041}\\]\\"b"' in written
    assert written.isprintable()


@pytest.mark.parametrize(("host", "field"), [("", "-"), ("h ö", "h__"), ("h" * 300, "h" * 255)])
def test_the_host_is_printable_ascii_or_nil(host: str, field: str) -> None:
    """RFC 5424, 6.2.4: 255 printable characters at most, or the NILVALUE."""
    assert message(host=host).split(b" ")[2] == field.encode()


def test_the_message_id_keeps_to_its_length() -> None:
    """RFC 5424, 6.2.7: 32 characters at most."""
    alert = alert_of()
    alert["finding_info"]["types"] = ["k" * 40]
    assert b" - " + b"k" * 32 + b" [" in syslog_message(view_of(alert), "", host="h")


def test_a_frame_starts_with_the_length_in_octets() -> None:
    """RFC 6587, 3.4.1: the length counts octets, not characters."""
    assert octet_counted("ö".encode()) == b"2 \xc3\xb6"
