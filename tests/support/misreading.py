"""Requests that only some servers read as a call: tries at a tap, by era."""

import base64
import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
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
        target: of the request line, with ``{path}`` for the path of the server's endpoint, ``{host}`` for its address.
        length: the values of ``Content-Length``; the length of the body unless it is chunked.
        line_end: between the lines of the head.
    """

    name: str
    body: bytes
    kinds: tuple[str, ...] = (JSON,)
    fields: tuple[str, ...] = ()
    method: str = "POST"
    named: tuple[str, ...] = ("Mcp-Method: tools/call", "Mcp-Name: echo")
    target: str = "{path}"
    http: str = "HTTP/1.1"
    length: tuple[str, ...] | None = None
    connection: str = "close"
    version: str | None = MODERN
    line_end: str = "\r\n"
    group: str = ""

    def request(self, era: str, *more: str, path: str = "/mcp", host: str = "127.0.0.1") -> bytes:
        kept = [*(f"Content-Type: {kind}" for kind in self.kinds), *self.fields, *more]
        if era == MODERN:
            kept += [*([f"MCP-Protocol-Version: {self.version}"] if self.version else []), *self.named]
        is_chunked = any(each.lower().startswith("transfer-encoding") for each in kept)
        lengths = self.length if self.length is not None else () if is_chunked else (str(len(self.body)),)
        kept += [f"Content-Length: {each}" for each in lengths]
        accepted = "Accept: application/json, text/event-stream"
        line = f"{self.method} {self.target.format(path=path, host=host)} {self.http}"
        head = [line, f"Host: {host}", f"Connection: {self.connection}", accepted, *kept, "", ""]
        return self.line_end.join(head).encode("latin-1") + self.body.replace(b"{path}", path.encode())


@dataclass
class Tries:
    """All tries in an era."""

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
        hidden = '"},"method":"tools/call","params":' + json.dumps(self.call["params"])[:-1] + ',"x":"'
        shifted = base64.b64encode(hidden.encode("utf-16-be")).decode().rstrip("=")
        ping = self.ping | {"params": self.ping["params"] | {"x": f"+{shifted}-"}}
        return json.dumps(ping).encode()

    def __iter__(self) -> Iterator[Try]:
        call, ping = json.dumps(self.call).encode(), json.dumps(self.ping).encode()
        groups = {
            "none": [Try("as it should be", call)],
            "charset": self._charsets(call),
            "content type": self._labels(call),
            "content encoding": self._encodings(call),
            "JSON text": self._texts(call, ping),
            "id": self._ids(call),
            "members": self._members(call, ping),
            "MCP headers": self._headers(call, ping),
            "HTTP": self._framings(call, ping),
            "path": self._paths(call),
        }
        for group, tries in groups.items():
            yield from (replace(each, group=group) for each in tries)

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
            "APPLICATION/JSON; Charset=UTF-8",
            "application/json;",
            "application/json; charset",
            "application/json; boundary=x",
            "application/json-seq",
            "application/*",
            "multipart/form-data; boundary=x",
        ):
            yield Try(f"as {kind}", call, (kind,))
        yield Try("as an event", b"data: " + call + b"\n\n")
        yield Try("as a record of a sequence", b"\x1e" + call + b"\n")
        yield Try("as a form", b"x=" + call, ("application/x-www-form-urlencoded",))
        yield Try("the type twice", call, (JSON, JSON))
        yield Try("as nothing", call, ())
        yield Try("under a name with an underscore", call, (), ("Content_Type: application/json",))

    @staticmethod
    def _encodings(call: bytes) -> Iterator[Try]:
        names = (
            "gzip",
            "br",
            "deflate",
            "identity",
            "x",
            "gzip, identity",
            "",
            "zstd",
            "GZIP",
            "gzip;q=0",
            "aws-chunked",
        )
        for name in names:
            yield Try(f"plain as {name!r}", call, (JSON,), (f"Content-Encoding: {name}",))
        yield Try("gzip", gzip.compress(call), (JSON,), ("Content-Encoding: gzip",))
        yield Try("x-gzip", gzip.compress(call), (JSON,), ("Content-Encoding: x-gzip",))
        yield Try("deflate", zlib.compress(call), (JSON,), ("Content-Encoding: deflate",))
        yield Try("bare deflate", zlib.compress(call)[2:-4], (JSON,), ("Content-Encoding: deflate",))
        twice = ("Content-Encoding: gzip", "Content-Encoding: gzip")
        yield Try("gzip twice", gzip.compress(gzip.compress(call)), (JSON,), twice)
        yield Try("gzip cut short", gzip.compress(call)[:-4], (JSON,), ("Content-Encoding: gzip",))
        yield Try("gzip as a transfer encoding", gzip.compress(call), (JSON,), ("Transfer-Encoding: gzip, chunked",))
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
        yield Try("deeper than is read", call[:-1] + b',"x":' + b"[" * 900 + b"]" * 900 + b"}")
        yield Try("a number of 5,000 digits", call[:-1] + b',"x":' + b"1" * 5_000 + b"}")
        yield Try("30,000 members", call[:-1] + b',"x":[' + b"0," * 30_000 + b"0]}")
        yield Try("two messages without a break", ping + call)
        yield Try("behind a line feed of a ping", ping + b"\n" + call)
        yield Try("a batch with an answer", b'[{"jsonrpc":"2.0","id":1,"result":{}},' + call + b"]")
        yield Try("comments", call[:-1] + b"/* x */}")
        yield Try("a comma too many", call[:-1] + b",}")
        yield Try("single quotes", call.replace(b'"jsonrpc"', b"'jsonrpc'"))
        yield Try("an escaped solidus", call.replace(b"tools/call", b"tools\\/call"))
        yield Try("a line feed in a text", call.replace(b"was-", b"was-\n"))
        for name, blank in (
            ("vertical tab", b"\v"),
            ("no-break space", b"\xc2\xa0"),
            ("line separator", b"\xe2\x80\xa8"),
        ):
            yield Try(f"behind a {name}", blank + call)
        yield Try("two marks of UTF-8", b"\xef\xbb\xbf" * 2 + call)
        yield Try("overlong UTF-8", call.replace(b'"method"', b'"m\xc1\xa5thod"'))
        yield Try("a NUL in a name", call.replace(b'"method"', b'"method\\u0000":"ping","method"'))

    @staticmethod
    def _ids(call: bytes) -> Iterator[Try]:
        ids = (b"7.0", b"7.5", b"7e0", b"-0", b"9007199254740993", b"1" * 400, b'""', b'"7"', b"null", b"true")
        for each in (*ids, b"[7]", b"{}", b'"' + b"x" * 70_000 + b'"'):
            named = each.decode() if len(each) < 20 else f"of {len(each)} characters"
            yield Try(f"id {named}", call.replace(b'"id": 7', b'"id": ' + each))
        yield Try("an id twice", call.replace(b'"id": 7', b'"id": null, "id": 7'))

    def _members(self, call: bytes, ping: bytes) -> Iterator[Try]:
        def changed(**members: Any) -> bytes:
            return json.dumps(self.call | members).encode()

        params = self.call["params"]
        without = {name: value for name, value in self.call.items() if name not in ("method", "params")}
        yield Try("no version of JSON-RPC", call.replace(b'"jsonrpc": "2.0", ', b""))
        yield Try("another version of JSON-RPC", changed(jsonrpc="1.0"))
        yield Try("a version that is a number", changed(jsonrpc=2.0))
        yield Try("a call that is an answer, too", changed(result={}))
        yield Try("a call that is an error, too", changed(error={"code": 1, "message": ""}))
        yield Try(
            "method and params by prototype", json.dumps(without | {"__proto__": self.call, "result": {}}).encode()
        )
        yield Try("a name by prototype", changed(params=self._meta() | {"__proto__": params}))
        yield Try("another name by prototype", changed(params=params | {"__proto__": {"name": "slow"}}))
        yield Try("a ping with a method in other capitals", ping[:-1] + b',"METHOD":"tools/call"}')
        yield Try("a ping with a call inside", json.dumps(self.ping | {"params": self.call | self._meta()}).encode())
        yield Try("a blank behind the method", changed(method="tools/call "))
        yield Try("a value of method in capitals", changed(method="TOOLS/CALL"))
        yield Try("params in a list", changed(params=["echo", params["arguments"]]))
        yield Try("a name in a list", changed(params=params | {"name": ["echo"]}))
        yield Try("no name", changed(params={key: value for key, value in params.items() if key != "name"}))
        yield Try("a blank behind the name", changed(params=params | {"name": "echo "}))
        yield Try("a name member in capitals", call.replace(b'"name"', b'"Name"'))
        yield Try("arguments twice", call.replace(b'"arguments"', b'"arguments": {}, "arguments"'))
        yield Try("arguments in a text", changed(params=params | {"arguments": json.dumps(params["arguments"])}))
        yield Try("a call as a task", changed(params=params | {"task": {"ttl": 1_000}}))
        retried = {"inputResponses": {}, "requestState": "x"}
        yield Try("a call that is a retry", changed(params=params | retried))
        yield Try("a version of MCP that is none", call.replace(b'"2026-07-28"', b'"2099-01-01"'))

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
        for name in ("=?BASE64?ZWNobw==?=", "=?base64?ZWNobw?=", "=?base64?ZWNobx==?=", "Echo", "echo\t", '"echo"'):
            yield Try(f"the name {name!r}", call, named=("Mcp-Method: tools/call", f"Mcp-Name: {name}"))
        yield Try("methods in a list", call, named=("Mcp-Method: ping, tools/call", "Mcp-Name: echo"))
        yield Try("a method on two lines", call, named=("Mcp-Method: ping\r\n tools/call", "Mcp-Name: echo"))
        yield Try(
            "a blank before the colon", call, named=("Mcp-Method : ping", "Mcp-Method: tools/call", "Mcp-Name: echo")
        )
        yield Try("an underscore", call, named=("Mcp_Method: ping", "Mcp-Method: tools/call", "Mcp-Name: echo"))
        yield Try("a name of one hop", call, connection="close, mcp-name")
        yield Try("a version of one hop", call, connection="close, mcp-protocol-version")
        yield Try("no version of MCP in the headers", call, version=None)
        yield Try("a version with a blank", call, version=f"{MODERN} ")
        yield Try("versions in a list", call, version=f"2025-11-25, {MODERN}")
        yield Try("a version of before", call, version="2025-11-25")
        yield Try("a version that is none", call, version="2099-01-01")
        yield Try("a session of nobody", call, (JSON,), ("Mcp-Session-Id: nobody",))
        yield Try("two tokens", call, (JSON,), ("Authorization: Bearer a", "Authorization: Bearer b"))
        yield Try("what is accepted, twice", call, (JSON,), ("Accept: text/event-stream",))

    @staticmethod
    def _framings(call: bytes, ping: bytes) -> Iterator[Try]:
        size, chunked = len(call), b"%x\r\n%b\r\n0\r\n\r\n" % (len(call), call)
        te = ("Transfer-Encoding: chunked",)
        for method in ("PUT", "PATCH", "post", "HEAD", "OPTIONS", "PROPFIND"):
            yield Try(f"{method} instead of POST", call, method=method)
        yield Try("HTTP/1.0", call, http="HTTP/1.0")
        yield Try("HTTP/0.9", call, http="HTTP/0.9")
        yield Try("line feeds alone", call, line_end="\n")
        yield Try("carriage returns alone", call, line_end="\r")
        yield Try("100-continue", call, (JSON,), ("Expect: 100-continue",))
        yield Try("another expectation", call, (JSON,), ("Expect: x",))
        yield Try(
            "an upgrade to HTTP/2", call, (JSON,), ("Upgrade: h2c", "HTTP2-Settings: AAMAAABk"), connection="Upgrade"
        )
        yield Try("an upgrade to a web socket", call, (JSON,), ("Upgrade: websocket",), connection="Upgrade")
        yield Try("a type of one hop", call, connection="close, content-type")
        yield Try("a length of one hop", call, connection="close, content-length")
        yield Try("in chunks", chunked, (JSON,), te)
        yield Try("in chunks of one hop", chunked, (JSON,), te, connection="close, transfer-encoding")
        yield Try("in chunks, and a length", chunked, (JSON,), te, length=(str(len(chunked)),))
        yield Try("in chunks, and a length of nothing", chunked, (JSON,), te, length=("0",))
        for name in ("xchunked", "chunked, identity", "chunked, chunked", "\x0bchunked", "identity"):
            yield Try(f"in chunks as {name!r}", chunked, (JSON,), (f"Transfer-Encoding: {name}",))
        yield Try("in chunks, with zeros", b"000" + chunked, (JSON,), te)
        yield Try("in chunks, with line feeds", chunked.replace(b"\r\n", b"\n"), (JSON,), te)
        yield Try("in chunks, 0x before the size", b"0x" + chunked, (JSON,), te)
        yield Try("in chunks, a sign before the size", b"+" + chunked, (JSON,), te)
        yield Try("two lengths", call, length=(str(size), str(size)))
        yield Try("two lengths that differ", call, length=("0", str(size)))
        yield Try("lengths in a list", call, length=(f"{size}, {size}",))
        yield Try("a length with a sign", call, length=(f"+{size}",))
        yield Try("a length with zeros", call, length=(f"000{size}",))
        yield Try("no length", call, length=())
        yield Try("a length of nothing", call, length=("0",))
        head = Try("", call).request("2025-11-25", path="{path}").split(b"\r\n\r\n")[0]
        behind = head + b"\r\n\r\n" + call
        yield Try("behind a ping", ping + behind, length=(str(len(ping)),), connection="keep-alive")
        yield Try("behind a GET", behind, (), method="GET", length=(), connection="keep-alive")
        ends = b"0\r\n\r\n" + behind
        yield Try("behind the last chunk", ends, (JSON,), te, connection="keep-alive")
        yield Try(
            "behind the last chunk, and a length", ends, (JSON,), te, length=(str(len(ends)),), connection="keep-alive"
        )

    @staticmethod
    def _paths(call: bytes) -> Iterator[Try]:
        for target in (
            "http://{host}{path}",
            "http://elsewhere{path}",
            "{path}/",
            "/{path}",
            "{path};x=1",
            "{path}?x=1",
            "{path}?x=/../y",
            "{path}#x",
            "/x/..{path}",
            "/x/%2e%2e{path}",
            "/%2fx/..{path}",
            "{path}%00",
            "{path}%20",
            "*",
        ):
            yield Try(f"to {target}", call, target=target)
