"""agentgateway's policy service ``ExtMcp`` (version 1.4): called before each call, and with each response and list.

Rules:

1. For a call, the gateway names one server, and the tool by that server's name. A list covers all servers, with
   a prefix before each name if there are several: `prefixes` undo it.
2. Nothing in the protocol pairs an answer with its call. A passed call carries a token (``metadata``), which comes
   back with the answer if the gateway's configuration says so: `assay_call: mcpGuardrails.assay_call`. An answer
   without one is counted, never guessed. A call whose answer does not come in time ends as ``no_response``.
3. The gateway leaves out tools that its own policies hide, and all pages but the first: no list is complete.
4. Clients are distinguished by `assay_client`, and lists by a keyed hash of `assay_context`, as far as the gateway's
   configuration sends them.

The messages are declared here, not generated: two calls with five messages need no compiler. Fields that are not
read or written here are unknown fields, which protocol buffers allow.
"""

from __future__ import annotations

import functools
import hmac
import json
import math
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from assay_stream.canonical.decode import decode_json, read_leniently
from assay_stream.errors import ConfigurationError, InputError, needing_extra
from assay_stream.limits import DEFAULT_LIMITS, FEED_LIMITS
from assay_stream.observe.feeds.feed import CALL, UNSOUND, Asked, ClientView, Feed, shared_members
from assay_stream.observe.observation import Prefixes
from assay_stream.observe.wire import NOT_RULED_ON

with needing_extra("extmcp"):
    from google.protobuf import struct_pb2
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field, FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

if TYPE_CHECKING:
    import grpc

TOKEN, CLIENT, CONTEXT = "assay_call", "assay_client", "assay_context"
"""Metadata keys sent by the gateway's configuration."""

_LIST = "tools/list"
_OF_ONE_SERVER = frozenset(("initialize", "server/discover", "prompts/list", "resources/templates/list"))
"""Methods besides tools that are observed if the gateway serves a single server."""
_HASH_CHARS = 32

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


@dataclass(eq=False, repr=False)
class ExtMcp:
    """Handle the hook calls of a gateway, for a ``filtered`` feed. Thread-safe."""

    feed: Feed
    prefixes: Prefixes
    servers: Mapping[str, str]
    context_key: bytes = b""
    monotonic_s: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._calls: OrderedDict[str, tuple[float, Asked]] = OrderedDict()
        """Calls that passed, by their tokens, as nothing else pairs them with their answers."""
        self._lock = threading.Lock()

    def serve(
        self, address: str, *, tls: tuple[bytes, bytes] | None = None, client_ca: bytes | None = None
    ) -> tuple[grpc.Server, int]:
        """Start a server, and return it with its port; ``tls``: private key and certificates, PEM."""
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
            "CheckRequest": method("McpRequest", self.check_request),
            "CheckResponse": method("McpResponse", self.check_response),
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

    def check_request(self, request: Any) -> Any:
        try:
            return self._ruled(request) if request.method == CALL else passed("McpRequestResult")
        except Exception as error:  # noqa: BLE001 - observing breaks no call; enforcing lets none pass unruled
            self.feed.note("failed", type(error).__name__)
            return self._unruled("not_ruled_on", NOT_RULED_ON)

    def check_response(self, response: Any) -> Any:
        try:
            if response.method == CALL:
                self._answered(response)
            elif response.method == _LIST:
                self._listed(response)
            elif response.method in _OF_ONE_SERVER and len(names := response.service_names) == 1:
                view = self._view(response, self.servers.get(names[0], names[0]))
                self.feed.answer(self.feed.ask(response.method, dict, view=view), lambda: result_of(response))
        except Exception as error:  # noqa: BLE001 - what a server says must reach its client all the same
            self.feed.note("failed", type(error).__name__)
        return passed("McpResponseResult")

    def _ruled(self, request: Any) -> Any:
        if len(names := request.service_names) != 1:
            self.feed.note("call_without_server", "a call names no server, or several")
            return self._unruled("call_without_server", "the call names no server, or several; it was not passed on")
        token = str(uuid.uuid4())
        asked = self.feed.ask(
            CALL,
            lambda: call_of(request, strictly=self.feed.rule is not None),
            view=self._view(request, self.servers.get(names[0], names[0])),
            call_id=token,
        )
        answer = passed("McpRequestResult")
        if asked is None:
            return answer
        if asked.error is not None:
            # The gateway chooses the JSON-RPC error code, and forwards message and data.
            return refused(PERMISSION_DENIED, asked.error["message"], asked.error.get("data", {}))
        with self._lock:
            self._calls[token] = self.monotonic_s(), asked
        self._give_up(math.inf)
        answer.metadata.update({TOKEN: token})
        return answer

    def _unruled(self, code: str, why: str) -> Any:
        if self.feed.rule is None:
            return passed("McpRequestResult")
        return refused(INVALID, f"assay-stream: {why}", {"code": code})

    def expire(self) -> None:
        self._give_up(FEED_LIMITS.answer_limit_s)

    def close(self) -> None:
        self._give_up(-math.inf)
        self.feed.close()

    def _give_up(self, age_s: float) -> None:
        """Report calls of that age, and the oldest of more than the limit, as unanswered."""
        asked_before_s = self.monotonic_s() - age_s
        while True:
            with self._lock:
                token, (asked_s, asked) = next(iter(self._calls.items()), ("", (0.0, None)))
                if asked is None or (asked_s > asked_before_s and len(self._calls) <= FEED_LIMITS.calls_max):
                    return
                del self._calls[token]
            self.feed.unanswered(asked, "no_response")

    def _answered(self, response: Any) -> None:
        token = text_of(response, TOKEN)
        with self._lock:
            _, asked = self._calls.pop(token, (0.0, None))
        if asked is not None:
            self.feed.answer(asked, lambda: result_of(response))
        elif token:
            self.feed.note(
                "unknown_call", "an answer came late, or for a call that passed another instance of this service"
            )
        else:
            self.feed.note(
                "unpaired_answer",
                f"an answer names no call: let the gateway send the metadata {TOKEN}: mcpGuardrails.{TOKEN}",
            )

    def _listed(self, response: Any) -> None:
        among = [self.servers.get(name, name) for name in response.service_names]
        shown = merged_list_of(response)
        if shown is None:
            for each in among or [""]:
                view = self._view(response, each)
                self.feed.answer(self.feed.ask(_LIST, dict, view=view), lambda: {"result": UNSOUND})
            return
        parts = self.prefixes.split(shown["tools"], among=among)
        if len(among) == 1 and (not parts or (None, "") in parts):
            # The names of one server need no prefix. Where one lacks it, the others have not got it either.
            parts = {(among[0], ""): shown["tools"]}
        shared = shared_members(shown) if len(parts) > 1 else shown
        for (server_id, prefix), tools in parts.items():
            if server_id is None:
                self.feed.note("unattributed_tools", "tools fit no prefix, or several: state one for each server")
            asked = self.feed.ask(_LIST, dict, view=self._view(response, server_id, shown_prefix=prefix))
            self.feed.answer(asked, functools.partial(dict, result={**shared, "tools": tools}))

    def _view(self, message: Any, server_id: str | None, *, shown_prefix: str | None = None) -> ClientView:
        stated = text_of(message, CONTEXT).encode("utf-8", "backslashreplace")
        digest = hmac.digest(self.context_key, stated, "sha256").hex()[:_HASH_CHARS]
        context = f"gateway:{digest}" if stated else None
        view = self.feed.view(text_of(message, CLIENT), server_id=server_id or "", auth_context=context)
        return replace(view, shown_prefix=shown_prefix)


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
