"""The messages of agentgateway's ``ExtMcp`` service (version 1.4), as protocol buffers, by the numbers of their fields.

Declared here, and not generated: two calls with five messages need no compiler. Fields that are not read or written
here are unknown fields to it, which protocol buffers allow.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import struct_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

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
"""By message: its fields with their numbers and types, ``*`` if repeated. An ``enum`` is an ``int32`` on the wire."""

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
"""The classes of the messages, by name."""
