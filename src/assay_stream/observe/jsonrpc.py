"""JSON-RPC 2.0 messages in MCP framing: one line, one message or (in old revisions) a batch."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from assay_stream.canonical.decode import decode_json
from assay_stream.canonical.lenient import read_leniently
from assay_stream.errors import InputError
from assay_stream.limits.core import Limits

Direction = Literal["client->server", "server->client"]
RequestKey = tuple[bool, int | float | str] | tuple[bool, int | float | str, int]
"""A request's id and whether it is a string: ``1`` and ``"1"`` are two ids. Over HTTP, where many clients share a
connection, the number of the exchange goes with them."""

BLANKS = b" \t\r\n"
"""Whitespace allowed around a message on its line."""

BLOCKED_CODE = -32050
"""Error code of a blocked call, in the implementation-defined range."""

INVALID_REQUEST_CODE = -32600

HEADER_MISMATCH_CODE = -32020
"""Error code of MCP 2026-07-28 for a request whose headers and message differ."""

NOT_RULED_ON = "the line could not be ruled on; it was not passed on"

_MEMBERS = frozenset(
    ("id", "method", "params", "result", "error", "name", "arguments", "cursor", "tools", "nextCursor")
)
_FOLDED_MEMBERS = frozenset(name.casefold() for name in _MEMBERS)
_TOOL_MEMBERS = frozenset(
    ("name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons", "execution", "_meta")
)
_FOLDED_TOOL_MEMBERS = frozenset(name.casefold() for name in _TOOL_MEMBERS)
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a wire.

    Args:
        messages: its messages; empty if no parser could read it.
        exact: whether the strict decoder accepts it, so that its content may be hashed.
        sure: whether every program that reads it finds the same messages.
    """

    messages: tuple[dict[str, Any], ...]
    exact: bool
    batch: bool = False
    whole: bool = True
    sure: bool = True


def read_line(raw: bytes, limits: Limits) -> Line:
    """Parse the messages of a line; never raises."""
    exact = sure = True
    try:
        content = decode_json(raw, limits=limits)
    except InputError as error:
        # Found last, in what is sound otherwise.
        exact, sure = False, error.code == "lone_surrogate"
        content = read_leniently(raw)
    batch = isinstance(content, list)
    parts = content if batch else [content]
    messages = tuple(part for part in parts if isinstance(part, dict))
    return Line(messages, exact, batch=batch, whole=len(messages) == len(parts), sure=sure)


LINE_BREAK = re.compile(rb"\r")
"""What some programs treat as a line end."""

EVENT_BREAK = re.compile(rb"(?:\xe2\x80[\xa8\xa9]|\xc2\x85){2}")
"""What some programs treat as the end of a server-sent event: they split lines as Python's ``splitlines`` does."""


def is_ambiguous(line: Line, raw: bytes, breaks: re.Pattern[bytes] | None = LINE_BREAK) -> bool:
    """Return True if programs may read a line differently although it is sound JSON.

    Some see an end of the message within it, and another message after that. Some ignore case, so that they read
    ``Method`` as ``method`` and find a message where others find none.
    """
    is_broken = breaks is not None and breaks.search(raw.strip(BLANKS)) is not None
    return is_broken or any(_has_case_variants(message) for message in line.messages)


def may_be_misread(line: Line, raw: bytes, breaks: re.Pattern[bytes] | None = LINE_BREAK) -> bool:
    """Return True if some program may find other messages in a line than those parsed here."""
    return not (line.sure and line.whole) or is_ambiguous(line, raw, breaks)


def _has_case_variants(message: Mapping[str, Any]) -> bool:
    inner = [part for part in (message.get("params"), message.get("result")) if isinstance(part, dict)]
    return any(_folds(part, _MEMBERS, _FOLDED_MEMBERS) for part in (message, *inner)) or any(
        _folds(tool, _TOOL_MEMBERS, _FOLDED_TOOL_MEMBERS) for tool in listed_in(message) or () if isinstance(tool, dict)
    )


def _folds(part: Mapping[str, Any], names: frozenset[str], folded: frozenset[str]) -> bool:
    return any(key not in names and key.casefold() in folded for key in part)


def listed_in(message: Mapping[str, Any]) -> list[Any] | None:
    """Return the tools array in a response, whichever request it answers; ``None`` if it has none."""
    result = message.get("result")
    tools = result.get("tools") if isinstance(result, dict) else None
    return tools if isinstance(tools, list) else None


_MAY_LIST = re.compile(
    rb'"(?:t|\\u00[57]4)(?:(?:o|\\u00[46]f)){2}(?:l|\\u00[46]c)(?:s|\xc5\xbf|\\u00[57]3|\\u017f)"|\0', re.IGNORECASE
)
"""A member that some program may take for ``tools``, in any spelling, or a body that is not UTF-8 at all."""


def may_list(raw: bytes) -> bool:
    """Return True if some program may find a list of tools in a message, however it parses JSON and joins lines."""
    # Some clients join the lines of an event without a break, and strip each of them before.
    return _MAY_LIST.search(raw.translate(None, BLANKS)) is not None


def request_key(value: object, exchange: int = 0) -> RequestKey | None:
    """Return the key of a request's ``id`` in an exchange (0: any); ``None`` if it is none."""
    if isinstance(value, str):
        return (True, value, exchange) if exchange else (True, value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (False, value, exchange) if exchange else (False, value)
    return None


def answer_keys(value: object, exchange: int = 0) -> list[RequestKey]:
    """Return the requests that a response with this ``id`` may answer, most likely first.

    A response on the stream of an exchange answers a request of that exchange, or of an earlier
    one whose stream broke.

    Common clients convert a string id to a number before they look up their request. A server that answers 2
    with "2" reaches such a client, and must not escape observation this way.
    """
    number = _number(value) if isinstance(value, str) else None
    keys = [
        request_key(each, scope)
        for scope in ((exchange, 0) if exchange else (0,))
        for each in ((value,) if number is None else (value, number))
    ]
    return [key for key in keys if key is not None]


def error_of(code: int, text: str, name: str, /, **detail: Any) -> dict[str, Any]:
    """Return an error of ours; ``name`` is its stable code."""
    return {"code": code, "message": f"assay-stream: {text}", "data": {"code": name, **detail}}


def failure(name: str, text: str) -> bytes:
    """Return an error of ours that answers no request: its id is null (JSON-RPC 2.0, section 5)."""
    return json.dumps({"jsonrpc": "2.0", "id": None, "error": error_of(BLOCKED_CODE, text, name)}).encode()


def params_of(message: Mapping[str, Any]) -> Mapping[str, Any]:
    params = message.get("params")
    return params if isinstance(params, dict) else {}


def meta_of(params: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = params.get("_meta")
    return meta if isinstance(meta, dict) else {}


def trace_of(traceparent: object) -> tuple[str, str] | None:
    """Return a W3C ``traceparent`` and its trace id."""
    if not isinstance(traceparent, str):
        return None
    match = _TRACEPARENT.fullmatch(traceparent)
    return None if match is None else (traceparent, match[1])


def _number(text: str) -> int | float | None:
    """Return the number JavaScript would convert a string to; accepting more strings than it does is harmless."""
    stripped = text.strip()
    if len(stripped) > 64:
        return None
    try:
        return int(stripped or "0", 0)
    except ValueError:
        pass
    try:
        return float(stripped)
    except ValueError:
        return None
