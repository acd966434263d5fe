"""agentgateway's side of ``ExtMcp``: what it sends, encoded by hand from the published numbers of its fields."""

import json
from typing import Any

import grpc

_CALLS = "/agentgateway.dev.ext_mcp.ExtMcp/"
VARINT, BYTES = 0, 2


def field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3 | VARINT) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | BYTES) + varint(len(content)) + content


def varint(value: int) -> bytes:
    groups = [value & 127]
    while value := value >> 7:
        groups.append(value & 127)
    return bytes(group | 128 for group in groups[:-1]) + bytes(groups[-1:])


def fields(message: bytes) -> dict[int, Any]:
    found: dict[int, Any] = {}
    while message:
        tag, message = _varint(message)
        number, message = _varint(message)
        found[tag >> 3] = number
        if tag & 7 == BYTES:
            found[tag >> 3], message = message[:number], message[number:]
    return found


def _varint(message: bytes) -> tuple[int, bytes]:
    value = 0
    for place, byte in enumerate(message):
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, message[place + 1 :]
    raise ValueError


def struct(**texts: str) -> bytes:
    return b"".join(field(1, field(1, name) + field(2, field(3, text))) for name, text in texts.items())


def texts_of(message: bytes) -> dict[str, str]:
    entry = fields(fields(message)[1])
    return {entry[1].decode(): fields(entry[2])[3].decode()}


class Gateway:
    """agentgateway, as its processor is configured in docs/gateways.md."""

    def __init__(self, port: int, credentials: grpc.ChannelCredentials | None = None, **metadata: str) -> None:
        address = f"localhost:{port}" if credentials else f"127.0.0.1:{port}"
        self.channel = grpc.secure_channel(address, credentials) if credentials else grpc.insecure_channel(address)
        self.metadata = metadata

    def ask(self, call: str, message: bytes) -> dict[int, Any]:
        answer: bytes = self.channel.unary_unary(_CALLS + call)(message, timeout=60)
        return fields(answer)

    def request(self, service: str, params: object, *, method: str = "tools/call", **headers: str) -> dict[int, Any]:
        raw = params if isinstance(params, bytes) else json.dumps(params).encode()
        message = field(1, service) + field(2, method) + field(3, struct(**self.metadata)) + field(4, raw)
        message += b"".join(field(5, field(1, name) + field(2, value)) for name, value in headers.items())
        return self.ask("CheckRequest", message)

    def response(self, result: object, *services: str, method: str = "tools/call", **metadata: str) -> dict[int, Any]:
        raw = result if isinstance(result, bytes) else json.dumps(result).encode()
        message = b"".join(field(1, service) for service in services) + field(2, method)
        return self.ask("CheckResponse", message + field(3, struct(**self.metadata, **metadata)) + field(4, raw))

    def call(self, service: str, name: str, result: object = None, **params: Any) -> dict[str, Any] | None:
        """A whole call: nothing if it passed, or the data of the error that its caller gets."""
        answer = self.request(service, {"name": name, **params})
        if 3 in answer:
            data: dict[str, Any] = json.loads(fields(answer[3])[3])
            return data
        self.response({"content": []} if result is None else result, service, **texts_of(answer[5]))
        return None

    def lists(self, *services: str, tools: list[Any]) -> None:
        assert self.response({"tools": tools}, *services, method="tools/list") == {1: b""}
