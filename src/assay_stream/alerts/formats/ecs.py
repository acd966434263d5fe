"""Elastic Common Schema 9.1, the first with ``gen_ai.tool.*`` (beta); all other fields mean the same in version 8."""

from __future__ import annotations

import json
from typing import Any

from assay_stream.alerts.view import AlertView, scalar_text, view_of
from assay_stream.plugins import Format
from assay_stream.text.times import time_ms_text

ECS_VERSION = "9.1.0"

_CATEGORIES: dict[str, tuple[list[str], list[str]]] = {
    f"{subject}_{act}": (["configuration"], [type_])
    for subject in ("tool", "prompt", "template", "instructions")
    for act, type_ in (("added", "creation"), ("removed", "deletion"), ("changed", "change"))
} | {"blocked_tool_called": (["intrusion_detection"], ["allowed"])}
"""Kind to ``event.category`` and ``event.type``, of the pairs that ECS expects together."""

_ANY_CATEGORY = (["intrusion_detection"], ["info"])


def to_ecs(alert: dict[str, Any]) -> str:
    """Return the alert as one ECS document, on one line.

    ``labels`` holds keywords only, as ECS requires; the figures are typed under ``assay_stream.alert``.
    """
    view = view_of(alert)
    category, types = _CATEGORIES.get(view.kind, _ANY_CATEGORY)
    document: dict[str, Any] = {
        "@timestamp": time_ms_text(view.time_ms),
        "ecs": {"version": ECS_VERSION},
        "event": {
            "kind": "alert",
            "category": category,
            "type": types,
            "id": view.key(),
            "code": view.kind,
            "action": view.activity.lower(),
            "severity": view.severity_id,
            "start": time_ms_text(view.first_seen_ms),
            "end": time_ms_text(view.last_seen_ms),
            "module": "assay_stream",
            "dataset": "assay_stream.alert",
            "provider": "assay-stream",
            **_present(reason=view.fact("mcp_reason")),
        },
        "message": view.message,
        "rule": {"id": view.kind, "ruleset": "assay-stream", **_present(name=view.title, description=view.explanation)},
        "observer": {
            "vendor": "assay-stream",
            "product": "assay-stream",
            "version": view.version,
            **_present(name=view.fact("mcp_observer_id")),
        },
        "labels": {
            "uid": view.uid,
            "count": str(view.count),
            "severity": view.severity,
            "status": view.status,
            # A dot in a label's name would make an object of it.
            **{name.replace(".", "_"): scalar_text(view.flat[name]) for name in sorted(view.flat)},
        },
        "assay_stream": {
            "alert": {
                "uid": view.uid,
                "count": view.count,
                "activity_id": view.activity_id,
                "severity_id": view.severity_id,
                "status_id": view.status_id,
            }
        },
    }
    if view.server_id:
        document["service"] = {"name": view.server_id}
    if view.tool_name:
        document["gen_ai"] = {"tool": {"name": view.tool_name}}
    if threat := _threat(view):
        document["threat"] = threat
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _present(**fields: str) -> dict[str, str]:
    return {name: value for name, value in fields.items() if value}


def _threat(view: AlertView) -> dict[str, Any]:
    """Return ``threat.*`` of the first framework for which the alert names techniques or tactics."""
    found: dict[str, dict[str, Any]] = {}
    for attack in view.attacks:
        tactics = attack.get("tactics")
        named = [(what, attack.get(what)) for what in ("technique", "sub_technique", "tactic")]
        named += [("tactic", tactic) for tactic in tactics] if isinstance(tactics, list) else []
        for what, entry in named:
            if not isinstance(entry, dict):
                continue
            for ours, theirs in (("id", "uid"), ("name", "name")):
                value = entry.get(theirs)
                if isinstance(value, str) and value not in found.setdefault(what, {}).setdefault(ours, []):
                    found[what][ours].append(value)
    fields = {what: {name: values for name, values in entry.items() if values} for what, entry in found.items()}
    fields = {what: entry for what, entry in fields.items() if entry}
    if not fields:
        return {}
    ids = [value for entry in fields.values() for value in entry.get("id", [])]
    if "sub_technique" in fields:
        fields.setdefault("technique", {})["subtechnique"] = fields.pop("sub_technique")
    framework = "MITRE ATLAS" if any(value.startswith("AML.") for value in ids) else "MITRE ATT&CK"
    return {"framework": framework, **fields}


ECS = Format(media_type="application/json", write=to_ecs)
