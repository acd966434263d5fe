"""A syslog receiver: RFC 5424 messages over UDP (RFC 5426), TCP (RFC 6587, octet counting) or TLS (RFC 5425).

Syslog has no answer by which a receiver could say that it took a message. What can be known is used:

1. A message counts as delivered once the receiver's host has acknowledged its last octet, where the system tells.
2. A receiver that ends may leave octets unread that its host had acknowledged. So the messages of the last minute
   of a connection that broke are sent again first on the next one: repeats, recognisable by uid, count and
   activity.
3. UDP loses without a word. It is there for receivers that know nothing else.
"""

import asyncio
import socket
import ssl
import struct
from collections import deque
from contextlib import suppress
from functools import partial

from assay_stream.alerts.formats import AlertFormat, AlertView, render
from assay_stream.alerts.formats.syslog import DATAGRAM_BYTES_MAX, EXAMPLE_ENTERPRISE, octet_counted, syslog_message
from assay_stream.errors import ConfigurationError
from assay_stream.forward.delivery import DELIVERED, AttemptResult, DeliveryOutcome
from assay_stream.forward.receivers import Entry, Plugin, Receiver, SyslogTarget, Writer, parse_target

try:
    import fcntl
    import termios
except ImportError:  # pragma: no cover - not on this system
    _TIOCOUTQ = None
else:
    _TIOCOUTQ = getattr(termios, "TIOCOUTQ", None)

_KEPT_MESSAGES_MAX = 256
_KEPT_S = 60.0
_ACKNOWLEDGED_PAUSE_S = 0.002
_UNASKED_BYTES = 4_096


class Syslog:
    """Sends alerts to one syslog receiver, over one connection.

    Args:
        enterprise: private enterprise number of the structured data's id.
    """

    def __init__(
        self,
        target: SyslogTarget,
        *,
        host: str,
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
        enterprise: int = EXAMPLE_ENTERPRISE,
    ) -> None:
        place = f"[{target.host}]" if ":" in target.host else target.host
        self.name = f"syslog:{place}:{target.port},{target.transport}"
        self._target = target
        self._host = host
        self._timeout_s = timeout_s
        self._tls = tls if target.transport == "tls" else None
        self._enterprise = enterprise
        self._stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._datagrams: asyncio.DatagramTransport | None = None
        self._recent: deque[tuple[float, bytes]] = deque(maxlen=_KEPT_MESSAGES_MAX)
        self._watching: asyncio.Task[None] | None = None
        self._ended_s: float | None = None
        """When the last connection ended, by the loop's clock; ``None`` while it stands."""

    async def send(self, view: AlertView, body: str) -> AttemptResult:
        message = syslog_message(view, body, host=self._host, enterprise=self._enterprise)
        try:
            async with asyncio.timeout(self._timeout_s):
                if self._target.transport == "udp":
                    return await self._send_datagram(message)
                await self._send_frame(octet_counted(message))
        except TimeoutError:
            await self._disconnect()
            return AttemptResult(outcome=DeliveryOutcome.UNAVAILABLE, code="timeout")
        except (OSError, ssl.SSLError, UnicodeError) as error:
            # A name that no encoding of host names takes is a UnicodeError.
            await self._disconnect()
            return AttemptResult(outcome=DeliveryOutcome.UNAVAILABLE, code=type(error).__name__)
        except asyncio.CancelledError:
            await self._disconnect()
            raise
        return DELIVERED

    async def _send_frame(self, frame: bytes) -> None:
        if self._ended_s is not None:
            # The receiver closed; a write would still succeed, into nothing.
            await self._disconnect()
        writer = self._stream[1] if self._stream is not None else await self._connect()
        writer.write(frame)
        await writer.drain()
        await _acknowledged(writer)
        if self._ended_s is not None:
            raise ConnectionResetError
        self._recent.append((asyncio.get_running_loop().time(), frame))

    async def _connect(self) -> asyncio.StreamWriter:
        reader, writer = await asyncio.open_connection(self._target.host, self._target.port, ssl=self._tls)
        self._stream = reader, writer
        ended_s, self._ended_s = self._ended_s, None
        self._watching = asyncio.create_task(self._watch(reader))
        # Of what went last over the connection before, nobody knows whether it was read.
        for sent_s, earlier in self._recent:
            if ended_s is not None and ended_s - sent_s <= _KEPT_S:
                writer.write(earlier)
        return writer

    async def _watch(self, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while await reader.read(_UNASKED_BYTES):
                pass
        self._ended_s = asyncio.get_running_loop().time()

    async def _send_datagram(self, message: bytes) -> AttemptResult:
        if len(message) > DATAGRAM_BYTES_MAX:
            return AttemptResult(outcome=DeliveryOutcome.REFUSED, code="too_large_for_udp")
        if self._datagrams is None:
            loop = asyncio.get_running_loop()
            self._datagrams, _ = await loop.create_datagram_endpoint(
                asyncio.DatagramProtocol, remote_addr=(self._target.host, self._target.port)
            )
        self._datagrams.sendto(message)
        return DELIVERED

    async def _disconnect(self) -> None:
        stream, self._stream = self._stream, None
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        if stream is not None:
            stream[1].transport.abort()
            self._ended_s = self._ended_s or asyncio.get_running_loop().time()
        if self._datagrams is not None:
            self._datagrams.close()
            self._datagrams = None

    async def close(self) -> None:
        """Let go of the connection, in order: what was sent is read by the receiver."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream[1].close()
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(self._timeout_s):
                    await stream[1].wait_closed()
        await self._disconnect()


async def _acknowledged(writer: asyncio.StreamWriter) -> None:
    """Wait until the receiver's host has acknowledged every octet, where the system can tell."""
    raw = writer.get_extra_info("socket")
    while writer.transport.get_write_buffer_size():
        if writer.transport.is_closing():
            raise ConnectionResetError
        await asyncio.sleep(_ACKNOWLEDGED_PAUSE_S)
    while _TIOCOUTQ is not None and not writer.transport.is_closing():
        (unread,) = struct.unpack("i", fcntl.ioctl(raw.fileno(), _TIOCOUTQ, b"\0" * 4))
        if unread == 0:
            break
        await asyncio.sleep(_ACKNOWLEDGED_PAUSE_S)
    if writer.transport.is_closing():
        raise ConnectionResetError


def _make(entry: Entry) -> tuple[Receiver, Writer]:
    try:
        target = parse_target(f"syslog:{entry['to']}")
    except ConfigurationError:
        target = ""
    if isinstance(target, str):
        raise entry.refuse("to is HOST:PORT[,udp|tcp|tls] ([::1] for IPv6)")
    receiver = Syslog(target, host=socket.gethostname(), **entry.connection())
    return receiver, partial(render, target=entry.format(AlertFormat.CEF))


PLUGIN = Plugin(make=_make, fields=frozenset({"to", "format"}), required=frozenset({"to"}))
