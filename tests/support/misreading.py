"""Requests that only some servers read as a call: tries at a tap, by era."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

JSON = "application/json"
MODERN = "2026-07-28"
_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "try", "version": "1"},
}


@dataclass(frozen=True)
class Try:
    """A request to call the tool ``echo`` with a text that its answer holds.

    Args:
        kinds: the values of ``Content-Type``.
        named: what the headers of MCP 2026-07-28 say of the message, in that era.
    """

    name: str
    body: bytes
    kinds: tuple[str, ...] = (JSON,)
    fields: tuple[str, ...] = ()
    method: str = "POST"
    named: tuple[str, ...] = ("Mcp-Method: tools/call", "Mcp-Name: echo")

    def request(self, era: str, *more: str) -> bytes:
        """The bytes of the request."""
        kept = [*(f"Content-Type: {kind}" for kind in self.kinds), *self.fields, *more]
        if era == MODERN:
            kept += [f"MCP-Protocol-Version: {MODERN}", *self.named]
        if not any(each.lower().startswith("transfer-encoding") for each in kept):
            kept.append(f"Content-Length: {len(self.body)}")
        accepted = "Accept: application/json, text/event-stream"
        head = [f"{self.method} /mcp HTTP/1.1", "Host: 127.0.0.1", "Connection: close", accepted, *kept, "", ""]
        return "\r\n".join(head).encode() + self.body


@dataclass
class Tries:
    """All tries in an era.

    Args:
        text: what the tool is given.
    """

    era: str
    text: str = "was-carried-out"
    call: dict[str, Any] = field(init=False)
    ping: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        params = {"name": "echo", "arguments": {"message": self.text}} | self._meta()
        self.call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
        self.ping = {"jsonrpc": "2.0", "id": 7, "method": "ping", "params": self._meta()}

    def _meta(self) -> dict[str, Any]:
        return {"_meta": _META} if self.era == MODERN else {}

    def polyglot(self) -> bytes:
        """A ping in UTF-8, and a call in UTF-7."""
        hidden = '"},"method":"tools/call","params":' + json.dumps(self.call["params"])[:-1] + ',"x":"'
        shifted = base64.b64encode(hidden.encode("utf-16-be")).decode().rstrip("=")
        ping = self.ping | {"params": self.ping["params"] | {"x": f"+{shifted}-"}}
        return json.dumps(ping).encode()

    def __iter__(self) -> Iterator[Try]:
        call, ping = json.dumps(self.call).encode(), json.dumps(self.ping).encode()
        yield Try("as it should be", call)
        yield from self._charsets(call)
        yield from self._labels(call)
        yield from self._encodings(call)
        yield from self._texts(call, ping)
        yield from self._headers(call, ping)

    def _charsets(self, call: bytes) -> Iterator[Try]:
        polyglot = self.polyglot()
        for kind in (
            "; charset=utf-7",
            ';charset="UTF-7"',
            "; charset=utf-8; charset=utf-7",
            "; charset=utf-7; charset=utf-8",
            '; x="; charset=utf-8"; charset=utf-7',
            ';charset="utf\\-7"',
            "; charset*=utf-8''utf-7",
            "; charset=unicode-1-1-utf-7",
            "; charset=utf-7-imap",
        ):
            yield Try(f"UTF-7{kind}", polyglot, (JSON + kind,))
        for name in ("utf-16", "utf-16le", "utf-16be", "utf-32", "utf-32le", "utf-32be"):
            yield Try(f"{name} as stated", call.decode().encode(name), (f"{JSON}; charset={name}",))
            yield Try(f"{name} in secret", call.decode().encode(name))
        yield Try("a mark of UTF-8", b"\xef\xbb\xbf" + call)
        yield Try("bytes that are no UTF-8", call.replace(b'"jsonrpc"', b'"\xff":1,"jsonrpc"'))
        yield Try("two types", polyglot, (JSON, f"{JSON}; charset=utf-7"))
        yield Try("two types in one", polyglot, (f"{JSON}, {JSON}; charset=utf-7",))

    @staticmethod
    def _labels(call: bytes) -> Iterator[Try]:
        for kind in (
            "text/plain",
            "text/plain; x=application/json",
            "application/octet-stream",
            "application/x-www-form-urlencoded",
            "text/json",
            "application/vnd.api+json",
            "text/plain, application/json",
            "application/json, text/plain",
            "text/event-stream",
        ):
            yield Try(f"as {kind}", call, (kind,))
        yield Try("as nothing", call, ())
        yield Try("under a name with an underscore", call, (), ("Content_Type: application/json",))

    @staticmethod
    def _encodings(call: bytes) -> Iterator[Try]:
        for name in ("gzip", "br", "deflate", "identity", "x", "gzip, identity", ""):
            yield Try(f"plain as {name!r}", call, (JSON,), (f"Content-Encoding: {name}",))
        yield Try("gzip", gzip.compress(call), (JSON,), ("Content-Encoding: gzip",))
        yield Try("x-gzip", gzip.compress(call), (JSON,), ("Content-Encoding: x-gzip",))
        yield Try("deflate", zlib.compress(call), (JSON,), ("Content-Encoding: deflate",))
        yield Try("bare deflate", zlib.compress(call)[2:-4], (JSON,), ("Content-Encoding: deflate",))
        parts = gzip.compress(call[:20]) + gzip.compress(call[20:])
        yield Try("gzip in parts", parts, (JSON,), ("Content-Encoding: gzip",))
        yield Try("gzip and more", gzip.compress(call) + b"\0" * 9, (JSON,), ("Content-Encoding: gzip",))
        chunks = b"%x;x=1\r\n%b\r\n0\r\nContent-Type: text/plain\r\n\r\n" % (len(call), call)
        yield Try("in chunks with a trailer", chunks, (JSON,), ("Transfer-Encoding: chunked",))

    def _texts(self, call: bytes, ping: bytes) -> Iterator[Try]:
        params = json.dumps(self.call["params"]).encode()
        yield Try("a method twice, the last counts", ping[:-1] + b',"method":"tools/call","params":' + params + b"}")
        yield Try("a method twice, the first counts", call[:-1] + b',"method":"ping"}')
        yield Try("a method in capitals", call.replace(b'"method"', b'"Method"'))
        yield Try("an escaped member", call.replace(b'"method"', b'"m\\u0065thod"'))
        yield Try("a method in a list", call.replace(b'"tools/call"', b'["tools/call"]'))
        yield Try("not a number", call[:-1] + b',"x":NaN}')
        yield Try("half of a pair", call[:-1] + b',"x":"\\ud83d"}')
        yield Try("a large number", call[:-1] + b',"x":1e999}')
        yield Try("deep", call[:-1] + b',"x":' + b"[" * 200 + b"]" * 200 + b"}")
        yield Try("two messages", call + b"\n" + call)
        yield Try("a byte behind", call + b"\0")
        yield Try("a batch", b"[" + ping + b"," + call + b"]")
        yield Try("a batch of one", b"[" + call + b"]")
        yield Try("a batch in a batch", b"[[" + call + b"]]")
        yield Try("a notification", call.replace(b'"id": 7, ', b""))
        yield Try("a name twice", call.replace(b'"name": "echo"', b'"name": "echo", "name": "slow"'))

    @staticmethod
    def _headers(call: bytes, ping: bytes) -> Iterator[Try]:
        twice = ("Mcp-Method: ping", "Mcp-Method: tools/call", "Mcp-Name: echo")
        yield Try("a ping that the headers call a call", ping)
        yield Try("a call that the headers call a ping", call, named=("Mcp-Method: ping",))
        yield Try("a call without headers", call, named=())
        yield Try("a method twice in the headers", call, named=twice)
        yield Try("another name", call, named=("Mcp-Method: tools/call", "Mcp-Name: slow"))
        yield Try("an encoded name", call, named=("Mcp-Method: tools/call", "Mcp-Name: =?base64?ZWNobw==?="))
        yield Try("two versions", call, (JSON,), ("MCP-Protocol-Version: 2025-06-18",))
        yield Try("another method of HTTP", call, (JSON,), ("X-HTTP-Method-Override: POST",), method="DELETE")
        yield Try("a body of a GET", call, method="GET")
