"""The gRPC server of ``ExtMcp``: bounded in size and number of requests, with TLS on both sides if so configured."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from assay_stream.errors import ConfigurationError
from assay_stream.limits.serving import FEED_LIMITS
from assay_stream.observe.feeds.agentgateway import ExtMcp
from assay_stream.observe.feeds.ext_mcp_wire import MESSAGES, SERVICE


def start_server(
    answers: ExtMcp, address: str, *, tls: tuple[bytes, bytes] | None = None, client_ca: bytes | None = None
) -> tuple[grpc.Server, int]:
    """Start to serve, and return the server with its port.

    Args:
        address: where to listen, host:port.
        tls: private key and certificate chain, PEM.
        client_ca: certificates that clients must be signed by, PEM.

    Raises:
        ConfigurationError: ``cannot_listen``.
    """
    server = grpc.server(
        ThreadPoolExecutor(FEED_LIMITS.threads_max, thread_name_prefix="assay-stream extmcp"),
        maximum_concurrent_rpcs=FEED_LIMITS.requests_max,
        options=[("grpc.max_receive_message_length", FEED_LIMITS.request_bytes_max), ("grpc.so_reuseport", 0)],
    )
    methods = {
        "CheckRequest": _method("McpRequest", answers.check_request),
        "CheckResponse": _method("McpResponse", answers.check_response),
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


def _method(request: str, answer: Callable[[Any], Any]) -> grpc.RpcMethodHandler:
    return grpc.unary_unary_rpc_method_handler(
        lambda message, _: answer(message),
        request_deserializer=MESSAGES[request].FromString,
        response_serializer=lambda message: message.SerializeToString(),
    )
