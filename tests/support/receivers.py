"""Receivers of alerts that can be down, slow or unwilling: an HTTP server and a syslog server, on loopback."""

import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

Answer = tuple[int, dict[str, str], bytes]
Judge = Callable[[str, bytes], tuple[int, dict[str, str]]]


class QuietHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that closing waits for the posts in hand

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # the client was killed or hung up, as some tests want it to


class Serving:
    """Serves HTTP in a thread from ``serve`` until its ``with`` block ends."""

    def bind(self, port: int, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
        self._server = _Server(("127.0.0.1", port), handler)
        return self._server

    def serve(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class HttpReceiver(Serving):
    """Answers what is posted while its ``with`` block runs; may be entered again, on the same port."""

    delay_s = 0.0

    def __init__(self, port: int) -> None:
        self.port = port
        self.base = f"http://127.0.0.1:{port}"

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        """Return status, headers and body of the answer to a post; ``headers`` have names in lower case."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        outer = self

        class Handler(QuietHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                body = self.rfile.read(length)
                # No connection outlives the server.
                self.close_connection = True
                if len(body) < length:
                    return  # the client was killed between its headers and the end of its body: nothing was received
                time.sleep(outer.delay_s)
                given = {name.lower(): text for name, text in self.headers.items()}
                status, headers, content = outer.answer(self.path, given, body)
                self.send_response(status)
                for name, text in headers.items():
                    self.send_header(name, text)
                if status != 204:
                    self.send_header("Content-Length", str(len(content)))
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(content)

        self.bind(self.port, Handler)
        return self.serve()


class WebhookServer(HttpReceiver):
    """Takes what is posted to it, unless ``judge`` answers otherwise: it is given the idempotency key and the body."""

    def __init__(self, port: int, judge: Judge = lambda _key, _body: (204, {}), *, delay_s: float = 0.0) -> None:
        super().__init__(port)
        self.url = f"{self.base}/alerts"
        self.taken: list[tuple[str, bytes, dict[str, str]]] = []
        self._judge = judge
        self.delay_s = delay_s

    @property
    def keys(self) -> list[str]:
        return [key for key, _, _ in self.taken]

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        assert path
        key = headers.get("idempotency-key", "")
        status, more = self._judge(key, body)
        if status < 300:
            self.taken.append((key, body, headers))
        return status, more, b""


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
