"""Flat JSON lines: scalars only, for whatever reads one object a line and knows no standard."""

from __future__ import annotations

import json
from typing import Any

from assay_stream.alerts.formats.view import AlertView, time_text, view_of

_PREFIX = "mcp_"


def to_jsonl(alert: dict[str, Any]) -> str:
    return json.dumps(flat_of(view_of(alert)), ensure_ascii=False, separators=(",", ":"))


def flat_of(view: AlertView) -> dict[str, Any]:
    """Return an alert's members as scalars.

    The flat facts follow without their ``mcp_``; a fact never replaces a member of ours.
    """
    flat: dict[str, Any] = {
        "uid": view.uid,
        "kind": view.kind,
        "activity": view.activity,
        "activity_id": view.activity_id,
        "severity": view.severity,
        "severity_id": view.severity_id,
        "status": view.status,
        "status_id": view.status_id,
        "count": view.count,
        "time": time_text(view.time_ms),
        "first_seen": time_text(view.first_seen_ms),
        "last_seen": time_text(view.last_seen_ms),
        "message": view.message,
        "title": view.title,
        "explanation": view.explanation,
        "version": view.version,
    }
    for name in sorted(view.flat):
        flat.setdefault(name.removeprefix(_PREFIX), view.flat[name])
    return flat
