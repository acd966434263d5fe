"""agentgateway's ``ExtMcp`` service (version 1.4): its messages, and a gRPC server within bounds of size and number.

The messages are declared here, not generated: two calls with five messages need no compiler. Fields that are not
read or written here are unknown fields, which protocol buffers allow.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from google.protobuf import struct_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from assay_stream.errors import ConfigurationError, needing_extra
from assay_stream.limits.serving import FEED_LIMITS

if TYPE_CHECKING:
    import grpc

    from assay_stream.observe.feeds.agentgateway import ExtMcp

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
    answers: ExtMcp, address: str, *, tls: tuple[bytes, bytes] | None = None, client_ca: bytes | None = None
) -> tuple[grpc.Server, int]:
    """Start the server, and return it with its port.

    Args:
        address: ``host:port`` to listen on.
        tls: private key and certificate chain, PEM.
        client_ca: CA certificates for client authentication, PEM.

    Raises:
        ConfigurationError: ``cannot_listen``.
    """
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
