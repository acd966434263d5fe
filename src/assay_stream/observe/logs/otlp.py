"""Spans of MCP calls (OpenTelemetry's conventions for generative AI and MCP), as the collector writes them.

Reads ``ExportTraceServiceRequest`` messages, as OTLP JSON, one per line, or as protocol buffers. Rules:

1. A call is a span with ``mcp.method.name`` = ``tools/call`` of one kind, the server's by default: client and server
   both report it, and it must not be counted twice.
2. Arguments and results are opt-in attributes. They are hashed if they are sound JSON, which truncated text
   is not. A span holds no list and no digest, so there is none.
3. It failed if its status or ``error.type`` says so, as the conventions ask. Events and messages are not read: they
   quote arguments.
4. Spans do not record rulings: ``decision`` is not observed.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from assay_stream.canonical.decode import decode_json
from assay_stream.errors import InputError, needing_extra
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.observe.calls import digest_of
from assay_stream.observe.logs.calls import Logged, SpanKind, Whose, delimited_messages, objects_of, safe_error_code
from assay_stream.observe.observation import Observation
from assay_stream.plugins import LogReader
from assay_stream.text.times import EPOCH

_KINDS: dict[Any, SpanKind] = {2: "server", 3: "client", "SPAN_KIND_SERVER": "server", "SPAN_KIND_CLIENT": "client"}
_FAILED = (2, "STATUS_CODE_ERROR")
_TIME_MAX_NS = DEFAULT_LIMITS.time_max_s * 1_000_000_000
_NUMBER = re.compile(r"[0-9]{1,20}")


def read(
    request: Mapping[str, Any], _identity: str, whose: Whose, counts: Counter[str]
) -> Iterator[Observation | InputError]:
    """Yield the calls of one request, whose ids are hexadecimal, and the errors of skipped spans."""
    for number, (resource, span) in enumerate(_spans(request)):
        if _KINDS.get(span.get("kind")) != whose.span_kind:
            continue
        try:
            attributes = _attributes(span.get("attributes"))
            if attributes.get("mcp.method.name") == "tools/call":
                yield _call(span, attributes, resource, whose).event(whose, counts)
        except InputError as error:
            yield InputError(error.code, f"span {number}: {error.message}", path=error.path)


def from_protobuf(raw: bytes) -> dict[str, Any]:
    """Convert a protocol buffers request to its JSON form."""
    with needing_extra("otlp"):
        from google.protobuf.json_format import MessageToDict
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    try:
        content: dict[str, Any] = MessageToDict(ExportTraceServiceRequest.FromString(raw), use_integers_for_enums=True)
    except (DecodeError, ValueError, RecursionError):
        raise InputError("bad_format", "this is no ExportTraceServiceRequest in protocol buffers", path="$") from None
    for _, span in _spans(content):
        for name in ("traceId", "spanId"):
            if isinstance(span.get(name), str):
                span[name] = base64.b64decode(span[name]).hex()
    return content


def _spans(request: Mapping[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    for resource in objects_of(request.get("resourceSpans")):
        for scope in objects_of(resource.get("scopeSpans")):
            for span in objects_of(scope.get("spans")):
                yield resource.get("resource"), span


def _call(span: Mapping[str, Any], attributes: Mapping[str, Any], resource: Any, whose: Whose) -> Logged:
    trace_id, span_id = _id(span, "traceId", 32), _id(span, "spanId", 16)
    name = attributes.get("gen_ai.tool.name")
    if not isinstance(name, str) or not name:
        raise InputError("missing_field", "the span names no tool (gen_ai.tool.name)", path="$.attributes")
    ended_ns, started_ns = _time(span, "endTimeUnixNano"), _time(span, "startTimeUnixNano")
    status = span.get("status")
    code = status.get("code") if isinstance(status, dict) else None
    error_type = attributes.get("error.type")
    ok = code not in _FAILED and error_type is None
    service = _attributes(resource.get("attributes")).get("service.name") if isinstance(resource, dict) else None
    return Logged(
        name=name,
        # What a service calls itself is no stable name: it counts only where an operator says so.
        server_id=whose.servers.get(service) if isinstance(service, str) else None,
        identity=("otlp", trace_id, span_id),
        call_id=f"{trace_id}:{span_id}",
        ended_at=EPOCH + timedelta(microseconds=ended_ns // 1_000),
        duration_ms=max(0, ended_ns // 1_000 - started_ns // 1_000) / 1_000,
        ok=ok,
        error_code=None if ok else safe_error_code(error_type),
        reason_code="span",
        trace=(f"00-{trace_id}-{span_id}-01", trace_id),
        args_hash=_digest(attributes.get("gen_ai.tool.call.arguments")),
        result_hash=_digest(attributes.get("gen_ai.tool.call.result")),
        lacks={"decision"},
    )


def _attributes(listed: Any) -> dict[str, Any]:
    items = objects_of(listed)
    if len(items) > DEFAULT_LIMITS.span_attributes_max:
        raise InputError(
            "too_many", f"a span has at most {DEFAULT_LIMITS.span_attributes_max} attributes", path="$.attributes"
        )
    found: dict[str, Any] = {}
    for item in items:
        name, value = item.get("key"), item.get("value")
        if isinstance(name, str) and isinstance(value, dict) and isinstance(value.get("stringValue"), str):
            found[name] = value["stringValue"]
    return found


def _digest(text: object) -> str | None:
    if not isinstance(text, str):
        return None
    try:
        return digest_of(decode_json(text.encode()))
    except (InputError, UnicodeEncodeError):
        return None


def _id(span: Mapping[str, Any], name: str, digits: int) -> str:
    value = span.get(name)
    text = value.lower() if isinstance(value, str) else ""
    if not re.fullmatch(f"[0-9a-f]{{{digits}}}", text) or not text.strip("0"):
        raise InputError("unknown_value", f"the id must be {digits} hexadecimal digits, not all 0", path=f"$.{name}")
    return text


def _time(span: Mapping[str, Any], name: str) -> int:
    value = span.get(name)
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = int(value)
    if type(value) is not int or not 0 < value <= _TIME_MAX_NS:
        raise InputError("bad_time", "the time must be in nanoseconds since 1970", path=f"$.{name}")
    return value


JSON = LogReader(read=read, in_topics=True)
PROTOBUF = LogReader(read=read, split=delimited_messages, decode=from_protobuf, in_topics=True)
