"""Receivers of alerts that can be down, slow or unwilling: an HTTP server and a syslog server, on loopback."""

import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

Judge = Callable[[str, bytes], tuple[int, dict[str, str]]]


def _willing(key: str, body: bytes) -> tuple[int, dict[str, str]]:
    return 204, {}


class Serving:
    """Serves HTTP in a thread from ``serving`` until its ``with`` block ends."""

    def serving(self, server: ThreadingHTTPServer) -> Self:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class WebhookServer(Serving):
    """Takes what is posted while its ``with`` block runs; may be entered again, on the same port."""

    def __init__(self, port: int, judge: Judge = _willing, *, delay_s: float = 0.0) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}/alerts"
        self.taken: list[tuple[str, bytes, dict[str, str]]] = []
        self._judge = judge
        self.delay_s = delay_s

    @property
    def keys(self) -> list[str]:
        return [key for key, _, _ in self.taken]

    def __enter__(self) -> Self:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                body = self.rfile.read(length)
                if len(body) < length:
                    # The client was killed between its headers and the end of its body: nothing was received.
                    self.close_connection = True
                    return
                key = self.headers["Idempotency-Key"]
                time.sleep(outer.delay_s)
                status, headers = outer._judge(key, body)
                if status < 300:
                    outer.taken.append((key, body, {name.lower(): text for name, text in self.headers.items()}))
                self.send_response(status)
                for name, text in headers.items():
                    self.send_header(name, text)
                if status != 204:
                    self.send_header("Content-Length", "0")
                # No connection outlives the server.
                self.send_header("Connection", "close")
                self.end_headers()
                self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = False  # so that closing waits for the posts in hand

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # the client was killed, as some tests want it to be

        return self.serving(Server(("127.0.0.1", self.port), Handler))


class SyslogServer:
    """Takes octet-counted messages while its ``with`` block runs; may be entered again, on the same port."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.messages: list[bytes] = []

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", self.port), reuse_port=False)
        self._listener.settimeout(0.1)
        self._connections: list[socket.socket] = []
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        return self

    def _accept(self) -> None:
        while not self._ending.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            self._connections.append(connection)
            connection.settimeout(0.1)
            thread = threading.Thread(target=self._read, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _read(self, connection: socket.socket) -> None:
        buffered = b""
        while not self._ending.is_set():
            try:
                received = connection.recv(65_536)
            except TimeoutError:
                continue
            except OSError:
                return
            if not received:
                return
            buffered = self._frames(buffered + received)

    def _frames(self, buffered: bytes) -> bytes:
        """Take whole frames off (RFC 6587, 3.4.1: MSG-LEN SP SYSLOG-MSG)."""
        while b" " in buffered:
            length, _, rest = buffered.partition(b" ")
            if len(rest) < int(length):
                break
            self.messages.append(rest[: int(length)])
            buffered = rest[int(length) :]
        return buffered

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        for thread in list(self._threads):
            thread.join()
        for connection in self._connections:
            connection.close()
        self._listener.close()
