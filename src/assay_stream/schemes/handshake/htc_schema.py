"""HTC-1.0: the one JSON Schema of request, response and error envelopes (draft 2020-12).

Our own, from the requirements and bounds of Handshake's tool contract. It is the single source:
``schemas/htc_v1.json`` is generated from it, and ``schemes.handshake.htc`` checks against it. No schema can say that a
payload is 32 KiB at most: that is checked beside it.
"""

from __future__ import annotations

from typing import Any

from assay_stream.schemes.handshake.event import ACTOR_KINDS, TOOL_ID

VERSION = "htc-1.0"
ERROR_KINDS = ("validation", "auth", "capability", "timeout", "tool", "transport", "canceled", "policy")

_NULLABLE_NAME = {"type": ["string", "null"], "minLength": 1, "maxLength": 256}
_NULLABLE_REFERENCE = {"type": ["string", "null"], "maxLength": 2048, "pattern": r"^artifact:\S+$"}
_TIME = {"type": "string", "format": "date-time"}
_UUID = {"type": "string", "format": "uuid"}
_TEXTS = {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 2048}}


def _closed(description: str, required: list[str], properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "description": description,
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": False,
    }


_COMMON: dict[str, Any] = {
    "schema_version": {"const": VERSION},
    "tool_call_id": _UUID,
    "trace_id": _UUID,
}

SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "urn:assay-stream:schema:htc_v1",
    "title": "HTC-1.0 envelopes",
    "description": "One request or one response. Arguments and results of over 32 KiB go by reference.",
    "oneOf": [{"$ref": "#/$defs/request"}, {"$ref": "#/$defs/response"}],
    "$defs": {
        "request": _closed(
            "What is asked of a tool.",
            [*_COMMON, "actor", "tool_id", "tool_version", "args", "dry_run"],
            {
                **_COMMON,
                "session_id": _NULLABLE_NAME,
                "actor": {"$ref": "#/$defs/actor"},
                "tool_id": {"type": "string", "maxLength": 256, "pattern": f"^{TOOL_ID}$"},
                "tool_version": {"type": "string", "maxLength": 64, "pattern": r"^[0-9]+\.[0-9]+\.[0-9]+$"},
                "args": {"type": "object"},
                "args_ref": _NULLABLE_REFERENCE,
                "idempotency_key": _NULLABLE_NAME,
                "dry_run": {"type": "boolean"},
            },
        ),
        "response": {
            **_closed(
                "What a tool answered: a result, or an error that says why there is none.",
                [*_COMMON, "ok", "error", "timing"],
                {
                    **_COMMON,
                    "ok": {"type": "boolean"},
                    "result": True,
                    "result_ref": _NULLABLE_REFERENCE,
                    "error": {"type": ["object", "null"]},
                    "timing": {"$ref": "#/$defs/timing"},
                    "resources": {"$ref": "#/$defs/resources"},
                },
            ),
            "if": {"properties": {"ok": {"const": True}}},
            "then": {"properties": {"error": {"type": "null"}}},
            "else": {
                "if": {"properties": {"ok": {"const": False}}},
                "then": {"properties": {"error": {"$ref": "#/$defs/error"}}},
            },
        },
        "error": {
            "description": "Why a call failed. Further fields are left to the tool.",
            "type": "object",
            "required": ["code", "kind"],
            "properties": {
                "code": {"type": "string", "minLength": 1, "maxLength": 64},
                "kind": {"enum": list(ERROR_KINDS)},
                "message": {"type": ["string", "null"], "maxLength": 4096},
                "retryable": {"type": ["boolean", "null"]},
                "details": True,
            },
        },
        "actor": _closed(
            "On whose behalf.",
            ["kind"],
            {"kind": {"enum": list(ACTOR_KINDS)}, "agent_id": _NULLABLE_NAME, "model_id": _NULLABLE_NAME},
        ),
        "timing": _closed(
            "When the call ran.",
            ["started_at", "ended_at", "duration_ms"],
            {"started_at": _TIME, "ended_at": _TIME, "duration_ms": {"type": "integer", "minimum": 0}},
        ),
        "resources": _closed(
            "What the call touched.",
            [],
            {
                "workspace_ids": _TEXTS,
                "artifacts": _TEXTS,
                "files": _TEXTS,
                "urls": {
                    "type": "array",
                    "items": {"type": "string", "maxLength": 2048, "pattern": r"^[A-Za-z][A-Za-z0-9+.-]*:\S+$"},
                },
            },
        ),
    },
}
