"""agentgateway's policy service ``ExtMcp`` (version 1.4) on the wire: its messages, and the server that takes them.

The messages are declared here, not generated: two calls with five messages need no compiler. Fields that are not
read or written here are unknown fields, which protocol buffers allow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from assay_stream.canonical.decode import decode_json, read_leniently
from assay_stream.errors import ConfigurationError, InputError, needing_extra
from assay_stream.limits import DEFAULT_LIMITS, FEED_LIMITS
from assay_stream.observe.feeds.feed import UNSOUND

with needing_extra("extmcp"):
    from google.protobuf import struct_pb2
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

if TYPE_CHECKING:
    import grpc

SERVICE = "agentgateway.dev.ext_mcp.ExtMcp"
PERMISSION_DENIED = 1
INVALID = 3

_PACKAGE = SERVICE.rpartition(".")[0]
_STRUCT = "google.protobuf.Struct"
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "McpRequest": {
        "service_names": (1, "string*"),
        "method": (2, "string"),
        "metadata_context": (3, _STRUCT),
        "mcp_request": (4, "bytes"),
        "headers": (5, "McpHeader*"),
    },
    "McpResponse": {
        "service_names": (1, "string*"),
        "method": (2, "string"),
        "metadata_context": (3, _STRUCT),
        "mcp_response": (4, "bytes"),
    },
    "McpRequestResult": {"pass": (1, "Pass"), "error": (3, "AuthorizationError"), "metadata": (5, _STRUCT)},
    "McpResponseResult": {"pass": (1, "Pass"), "error": (3, "AuthorizationError")},
    "McpHeader": {"key": (1, "string"), "value": (2, "bytes")},
    "Pass": {},
    "AuthorizationError": {"code": (1, "int32"), "reason": (2, "string"), "mcp_error": (3, "bytes")},
}
"""Fields of each message with numbers and types, ``*`` if repeated. An ``enum`` is an ``int32`` on the wire."""

_SCALARS = {"string": Field.TYPE_STRING, "bytes": Field.TYPE_BYTES, "int32": Field.TYPE_INT32}


def _classes() -> dict[str, Any]:
    file = FileDescriptorProto(name="ext_mcp.proto", package=_PACKAGE, syntax="proto3")
    file.dependency.append(struct_pb2.DESCRIPTOR.name)
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, form) in fields.items():
            kind = form.rstrip("*")
            added = message.field.add(name=field, number=number)
            added.label = Field.LABEL_REPEATED if form.endswith("*") else Field.LABEL_OPTIONAL
            added.type = _SCALARS.get(kind, Field.TYPE_MESSAGE)
            if kind not in _SCALARS:
                added.type_name = f".{kind if '.' in kind else f'{_PACKAGE}.{kind}'}"
    # A pool of its own: a program that embeds this may have declared the same messages.
    pool = DescriptorPool()
    pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES}


MESSAGES = _classes()
"""Message classes by name."""


def start_server(
    answers: Any, address: str, *, tls: tuple[bytes, bytes] | None = None, client_ca: bytes | None = None
) -> tuple[grpc.Server, int]:
    """Start the server, and return it with its port. ``answers`` has ``check_request`` and
    ``check_response``. ``tls``: private key and certificates, PEM."""
    # Imported here: gRPC's threads and descriptors are for whoever serves.
    with needing_extra("extmcp"):
        import grpc

    def method(request: str, answer: Callable[[Any], Any]) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(
            lambda message, _: answer(message),
            request_deserializer=MESSAGES[request].FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )

    server = grpc.server(
        ThreadPoolExecutor(FEED_LIMITS.threads_max, thread_name_prefix="assay-stream extmcp"),
        maximum_concurrent_rpcs=FEED_LIMITS.requests_max,
        options=[("grpc.max_receive_message_length", FEED_LIMITS.request_bytes_max), ("grpc.so_reuseport", 0)],
    )
    methods = {
        "CheckRequest": method("McpRequest", answers.check_request),
        "CheckResponse": method("McpResponse", answers.check_response),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    try:
        if tls is None:
            port = server.add_insecure_port(address)
        else:
            credentials = grpc.ssl_server_credentials([tls], client_ca, require_client_auth=client_ca is not None)
            port = server.add_secure_port(address, credentials)
    except (RuntimeError, ValueError):
        port = 0
    if not port:
        raise ConfigurationError("cannot_listen", f"cannot listen on {address}: in use, or not of this host")
    server.start()
    return server, port


_MERGED = replace(
    DEFAULT_LIMITS,
    record_bytes_max=FEED_LIMITS.request_bytes_max,
    containers_max=FEED_LIMITS.request_bytes_max,
    depth_max=512,
)
"""Limits of a merged list: each server's part gets the usual limits, so that none can invalidate the others' lists."""

_TOLD = ("name", "_meta", "isError", "resultType")


def call_of(request: Any, *, strictly: bool) -> dict[str, Any]:
    """Return the parameters of a call with its trace context; ``strictly`` refuses ambiguous ones."""
    params = decode_json(request.mcp_request) if strictly else _read(request.mcp_request)
    if not isinstance(params, dict):
        raise InputError("wrong_type", "the parameters of a call must be a JSON object", path="$")
    meta = params.get("_meta")
    stated = [header.value for header in request.headers if header.key.lower() == "traceparent"]
    if len(stated) == 1 and not (isinstance(meta, dict) and "traceparent" in meta):
        known = meta if isinstance(meta, dict) else {}
        return {**params, "_meta": {**known, "traceparent": stated[0].decode("ascii", "replace")}}
    return params


def result_of(response: Any) -> dict[str, Any]:
    return {"result": _read(response.mcp_response)}


def _read(raw: bytes) -> Any:
    """Return a JSON value; of an unsound one only what identifies a call and its outcome, unsound too (NaN)."""
    try:
        return decode_json(raw)
    except InputError:
        known = read_leniently(raw)
    told = {name: known[name] for name in _TOLD if name in known} if isinstance(known, dict) else {}
    return {**told, **UNSOUND}


def text_of(message: Any, key: str) -> str:
    context = message.metadata_context
    return context.fields[key].string_value if key in context.fields else ""


def passed(name: str) -> Any:
    return MESSAGES[name](**{"pass": MESSAGES["Pass"]()})


def refused(code: int, reason: str, data: Mapping[str, Any]) -> Any:
    denied = MESSAGES["AuthorizationError"](code=code, reason=reason, mcp_error=json.dumps(data).encode())
    return MESSAGES["McpRequestResult"](error=denied)


def merged_list_of(response: Any) -> dict[str, Any] | None:
    """Return the list of one server or several, ``None`` if it cannot be read."""
    try:
        shown = decode_json(response.mcp_response, limits=_MERGED)
    except InputError:
        return None
    return shown if isinstance(shown, dict) and isinstance(shown.get("tools"), list) else None
