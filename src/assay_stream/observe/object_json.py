"""The objects of a gateway's hooks as JSON text, as a tap would have read it, at a bounded cost."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from assay_stream.canonical.decode import decode_json
from assay_stream.errors import InputError
from assay_stream.limits.core import DEFAULT_LIMITS
from assay_stream.limits.serving import FEED_LIMITS, FeedLimits
from assay_stream.observe.jsonrpc import EVENT_BREAK, Line, is_ambiguous
from assay_stream.observe.mcp_wire import LINE_BYTES_MAX

UNSOUND: Mapping[str, Any] = {"unsound": math.nan}
"""A result that stands for one that cannot be read: NaN is no JSON, so it is on record as unsound, and never hashed."""

_LINE_LIMITS = replace(DEFAULT_LIMITS, record_bytes_max=LINE_BYTES_MAX)


def bare(message: dict[str, Any]) -> dict[str, Any]:
    """Return a call without its arguments."""
    return {**message, "params": {"name": message["params"].get("name")}}


def encoded(message: dict[str, Any]) -> bytes:
    """Return a message as JSON, nothing if it is none; NaN and lone surrogates stay, for strict decoding to refuse."""
    try:
        return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError):
        return b""


def encoded_within(message: dict[str, Any], bytes_max: int) -> bytes:
    """Return a message as JSON; nothing if it is too large or cannot be written."""
    return encoded(message) if _fits(message, bytes_max) else b""


def shared_members(result: Mapping[str, Any], limits: FeedLimits = FEED_LIMITS) -> dict[str, Any]:
    """Return what goes with each server's part of a list of several: small, whatever stands beside the tools.

    What stands there is judged once, as the reader of each part would: if it is unsound or ambiguous, each part is.
    """
    message = {"result": {name: value for name, value in result.items() if name != "tools"}}
    raw = encoded_within(message, limits.message_bytes_max)
    try:
        decode_json(raw, limits=_LINE_LIMITS)
    except InputError:
        return dict(UNSOUND)
    shared = {
        name: result[name] if _fits(result[name], limits.cursor_chars_max) else True
        for name in ("nextCursor", "ttlMs")
        if name in result
    }
    if is_ambiguous(Line((message,), exact=True), raw, EVENT_BREAK):
        shared["TOOLS"] = None  # which some programs take for the tools: as ambiguous, and short
    return shared


def _fits(value: Any, bytes_max: int) -> bool:
    """Tell whether a value has at most so many characters and values, with a look at no more than those."""
    waiting, left = [value], bytes_max
    while waiting and left >= 0:
        each = waiting.pop()
        left -= 1 + (len(each) if isinstance(each, str | list | tuple | dict) else 0)
        if left >= 0 and isinstance(each, dict):
            waiting += each.keys()
            waiting += each.values()
        elif left >= 0 and isinstance(each, list | tuple):
            waiting += each
    return left >= 0
