"""A syslog receiver: RFC 5424 messages over UDP (RFC 5426), TCP (RFC 6587, octet counting) or TLS (RFC 5425).

Syslog has no answer by which a receiver could say that it took a message. What can be known is used:

1. A message counts as delivered once the receiver's host has acknowledged its last octet, where the system tells.
2. A receiver that ends may leave octets unread that its host had acknowledged. So the messages of the last minute
   of a connection that broke are sent again first on the next one: repeats, recognisable by uid, count and
   activity.
3. UDP loses without a word. It is there for receivers that know nothing else.
"""

import asyncio
import ipaddress
import re
import socket
import ssl
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple

from assay_stream.alerts.formats import AlertView, render
from assay_stream.forward.receivers import (
    DELIVERED,
    EXAMPLE_ENTERPRISE,
    AttemptResult,
    DeliveryOutcome,
    Entry,
    Setting,
    waiting,
)
from assay_stream.text.escaping import visible
from assay_stream.text.times import time_ms_text
from assay_stream.text.urls import is_host

try:
    import fcntl
    import termios
except ImportError:  # pragma: no cover - not on this system
    _TIOCOUTQ = None
else:
    _TIOCOUTQ = getattr(termios, "TIOCOUTQ", None)

_TRANSPORTS = ("udp", "tcp", "tls")
_KEPT_MESSAGES_MAX = 256
_KEPT_S = 60.0
_ACKNOWLEDGED_PAUSE_S = 0.002

_FACILITY_SECURITY = 4
"""``security/authorization messages`` (RFC 5424, table 1)."""
_DATAGRAM_BYTES_MAX = 65_507
"""Capacity of one UDP datagram over IPv4 (RFC 5426, 3.2)."""

_SEVERITY = {1: 6, 2: 5, 3: 4, 4: 3, 5: 2, 6: 1}
"""OCSF severity to syslog's (RFC 5424, table 2): informational, notice, warning, error, critical, alert."""

_BOM = b"\xef\xbb\xbf"
_NOT_PRINTABLE = re.compile(r"[^\x21-\x7e]")
_HOST_CHARACTERS_MAX = 255
_MSGID_CHARACTERS_MAX = 32
_PARAM_SPECIAL = re.compile(r'["\\\]]')


class SyslogTarget(NamedTuple):
    """Where a syslog receiver is; ``transport`` is ``udp``, ``tcp`` or ``tls``."""

    host: str
    port: int
    transport: str


def parse_target(text: str) -> SyslogTarget | None:
    """Return what ``HOST:PORT[,udp|tcp|tls]`` names, ``None`` where it names nothing."""
    place, comma, transport = text.partition(",")
    transport = transport if comma else "tcp"
    host, _, port = place.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            return None
    elif ":" in host:
        return None
    if not is_host(host) or not (port.isascii() and port.isdigit()) or transport not in _TRANSPORTS:
        return None
    number = int(port[:6])
    return SyslogTarget(host=host, port=number, transport=transport) if 0 < number <= 65_535 else None


class OneWayConnection(asyncio.Protocol):
    """Carries frames one way. What a receiver says means nothing, but that it hangs up."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended_s: float | None = None
        """When it ended, by the loop's clock."""
        self._lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def eof_received(self) -> None:
        # A write would still succeed, into nothing.
        self.ended_s = self._loop.time()

    def connection_lost(self, error: Exception | None) -> None:
        self.ended_s = self.ended_s or self._loop.time()
        self._lost.set()

    async def write(self, frame: bytes) -> None:
        """Send a frame, and wait until the receiver's host has acknowledged every octet, where the system can tell."""
        self.transport.write(frame)
        descriptor = self.transport.get_extra_info("socket").fileno()
        while self.ended_s is None and (self.transport.get_write_buffer_size() or _unacknowledged(descriptor)):
            await asyncio.sleep(_ACKNOWLEDGED_PAUSE_S)
        if self.ended_s is not None:
            raise ConnectionResetError

    async def close(self) -> None:
        """Hang up in order: what was sent is read by the receiver."""
        self.transport.close()
        await self._lost.wait()


def _unacknowledged(descriptor: int) -> bool:
    return _TIOCOUTQ is not None and any(fcntl.ioctl(descriptor, _TIOCOUTQ, bytes(4)))


class Syslog:
    """Sends alerts to one syslog receiver, over one connection."""

    settings: ClassVar[Mapping[str, Setting]] = {
        "to": Setting("`HOST:PORT[,udp|tcp|tls]`, TCP by default", is_required=True),
        "format": Setting("a [format](#formats); `cef` by default"),
        "enterprise": Setting(
            "private enterprise number of the structured data's id; 32473, which is for examples, by default",
            must_be="an integer, not negative",
            is_good=lambda value: type(value) is int and value >= 0,
        ),
    }
    is_for_people: ClassVar[bool] = False

    def __init__(self, entry: Entry) -> None:
        target = parse_target(entry["to"])
        if target is None:
            raise entry.refuse("to is HOST:PORT[,udp|tcp|tls] ([::1] for IPv6)")
        place = f"[{target.host}]" if ":" in target.host else target.host
        connection = entry.connection()
        self.name = f"syslog:{place}:{target.port},{target.transport}"
        self._target = target
        self._host = socket.gethostname()
        self._timeout_s: float = connection["timeout_s"]
        self._tls: ssl.SSLContext | None = connection["tls"] if target.transport == "tls" else None
        self._format = entry.format("cef")
        self._enterprise: int = entry.get("enterprise", EXAMPLE_ENTERPRISE)
        self._connection: OneWayConnection | None = None
        self._recent: deque[tuple[float, bytes]] = deque(maxlen=_KEPT_MESSAGES_MAX)

    def write(self, alert: dict[str, Any]) -> str:
        return render(alert, self._format)

    async def send(self, view: AlertView, body: str) -> AttemptResult:
        message = syslog_message(view, body, host=self._host, enterprise=self._enterprise)
        try:
            async with asyncio.timeout(self._timeout_s):
                if self._target.transport == "udp":
                    return await self._send_datagram(message)
                await self._send_frame(octet_counted(message))
        except TimeoutError:
            self._abort()
            return waiting("timeout")
        except (OSError, ssl.SSLError, UnicodeError) as error:
            # A name that no encoding of host names takes is a UnicodeError.
            self._abort()
            return waiting(type(error).__name__)
        except asyncio.CancelledError:
            self._abort()
            raise
        return DELIVERED

    async def _send_frame(self, frame: bytes) -> None:
        loop, connection = asyncio.get_running_loop(), self._connection
        if connection is None or connection.ended_s is not None:
            before = connection
            _, connection = await loop.create_connection(
                OneWayConnection, self._target.host, self._target.port, ssl=self._tls
            )
            self._connection = connection
            if before is not None:
                before.transport.abort()
                # Of what went last over the connection before, nobody knows whether it was read.
                ended_s = before.ended_s or loop.time()
                unsure = [earlier for sent_s, earlier in self._recent if ended_s - sent_s <= _KEPT_S]
                self._recent.clear()
                for earlier in unsure:
                    connection.transport.write(earlier)
                    self._recent.append((loop.time(), earlier))
        await connection.write(frame)
        self._recent.append((loop.time(), frame))

    async def _send_datagram(self, message: bytes) -> AttemptResult:
        if len(message) > _DATAGRAM_BYTES_MAX:
            return AttemptResult(outcome=DeliveryOutcome.REFUSED, code="too_large_for_udp")
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=(self._target.host, self._target.port)
        )
        transport.sendto(message)
        transport.close()
        return DELIVERED

    def _abort(self) -> None:
        if self._connection is not None:
            self._connection.ended_s = self._connection.ended_s or asyncio.get_running_loop().time()
            self._connection.transport.abort()

    async def close(self) -> None:
        if self._connection is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._connection.close(), self._timeout_s)
            self._abort()


def syslog_message(view: AlertView, body: str, *, host: str, enterprise: int = EXAMPLE_ENTERPRISE) -> bytes:
    """Return one alert as a SYSLOG-MSG (RFC 5424, 6).

    A body beyond US-ASCII is marked as UTF-8 by a byte order mark (6.4). One within it is the same in every
    encoding, and goes without.

    Args:
        body: the alert in the format of the receiver.
        host: HOSTNAME; an invalid one becomes the NILVALUE.
        enterprise: private enterprise number of the structured data's id.
    """
    priority = _FACILITY_SECURITY * 8 + _SEVERITY.get(view.severity_id, 5)
    hostname = _header_field(host, _HOST_CHARACTERS_MAX)
    message_id = _header_field(view.kind, _MSGID_CHARACTERS_MAX)
    header = f"<{priority}>1 {time_ms_text(view.time_ms)} {hostname} assay-stream - {message_id} "
    facts = [
        ("uid", view.uid),
        ("kind", view.kind),
        ("count", str(view.count)),
        ("activity", str(view.activity_id)),
        ("severity", str(view.severity_id)),
        ("server", view.fact("mcp_server_id")),
        ("tool", view.fact("mcp_tool_name")),
        ("item", view.fact("mcp_item_name")),
    ]
    # Escaped (6.3.3), and on one line for line-based readers.
    escaped = ((name, _PARAM_SPECIAL.sub(r"\\\g<0>", visible(value))) for name, value in facts if value)
    parameters = "".join(f' {name}="{value}"' for name, value in escaped)
    structured = f"[alert@{enterprise}{parameters}] "
    return (header + structured).encode("utf-8") + (b"" if body.isascii() else _BOM) + body.encode("utf-8")


def octet_counted(message: bytes) -> bytes:
    """Return a message as a frame of a stream: its length, a space, the message (RFC 6587, 3.4.1; RFC 5425, 4.3)."""
    return str(len(message)).encode() + b" " + message


def _header_field(text: str, characters_max: int) -> str:
    return _NOT_PRINTABLE.sub("_", text)[:characters_max] or "-"
