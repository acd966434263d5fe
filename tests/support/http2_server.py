"""A server that speaks HTTP/2 over TLS, or HTTP/1.1 to those who do not offer it, and answers each request alike."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, RequestReceived, StreamEnded

_Fields = list[tuple[str, str]]


class Http2Server:
    """What it was asked, by stream: fields and body."""

    def __init__(self, fields: _Fields, chunks: list[bytes]) -> None:
        self.url = ""
        self.asked: list[tuple[dict[str, str], bytes]] = []
        self._answer = fields, chunks

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Speak to one client until it is gone."""
        connection = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        connection.initiate_connection()
        streams: dict[int, tuple[dict[str, str], bytes]] = {}
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while True:
                writer.write(connection.data_to_send())
                data = await reader.read(65_536)
                if not data:
                    break
                for event in connection.receive_data(data):
                    self._take(connection, streams, event)
        writer.close()

    def _take(self, connection: H2Connection, streams: dict[int, tuple[dict[str, str], bytes]], event: Event) -> None:
        if isinstance(event, RequestReceived):
            streams[event.stream_id] = {str(name): str(value) for name, value in event.headers}, b""
        elif isinstance(event, DataReceived):
            fields, body = streams[event.stream_id]
            streams[event.stream_id] = fields, body + event.data
            connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, StreamEnded):
            self.asked.append(streams.pop(event.stream_id))
            fields_back, chunks = self._answer
            connection.send_headers(event.stream_id, [(":status", "200"), *fields_back])
            for chunk in chunks:
                connection.send_data(event.stream_id, chunk)
            connection.end_stream(event.stream_id)


@asynccontextmanager
async def http2_server(certificate: Path, fields: _Fields, chunks: list[bytes]) -> AsyncIterator[Http2Server]:
    """A server on loopback."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    tls.set_alpn_protocols(["h2"])
    served = Http2Server(fields, chunks)
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0, ssl=tls)
    served.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    try:
        yield served
    finally:
        server.close()
