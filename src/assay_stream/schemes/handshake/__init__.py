"""Handshake (Nuntissura/Handshake): tool call events, digests of arguments, tool contracts, conformance, HTC-1.0."""

from assay_stream.schemes.handshake.event import (
    EVENT_TYPE,
    FIELDS,
    PROFILES,
    PUBLISHED,
    RECORDED,
    TOOL_ID,
    TRANSPORTS,
    UUID,
    Profile,
    check_observed_call,
    check_tool_call,
    is_time,
)

__all__ = [
    "EVENT_TYPE",
    "FIELDS",
    "PROFILES",
    "PUBLISHED",
    "RECORDED",
    "TOOL_ID",
    "TRANSPORTS",
    "UUID",
    "Profile",
    "check_observed_call",
    "check_tool_call",
    "is_time",
]
