"""SARIF 2.1.0 (OASIS): one run, the kinds that occur as rules, every alert a result."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from assay_stream.alerts.view import AlertView, view_of
from assay_stream.model.alert import AlertStatus
from assay_stream.model.kinds import KINDS, Kind
from assay_stream.plugins import Format
from assay_stream.text.escaping import sarif_text
from assay_stream.text.times import time_ms_text

SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

_LEVELS = {1: "note", 2: "note", 3: "warning", 4: "error", 5: "error", 6: "error"}

_SCORES = {1: "0.0", 2: "3.0", 3: "5.0", 4: "8.0", 5: "9.5", 6: "10.0"}
"""``security-severity`` of a rule, as code scanning services read it."""


def to_sarif(alerts: Sequence[dict[str, Any]]) -> str:
    views = [view_of(alert) for alert in alerts]
    rules: dict[str, AlertView] = {}
    for view in views:
        # A service shows each result with the score of its rule: that of the most severe one.
        rules[view.kind] = max(rules.get(view.kind, view), view, key=_rank)
    places = {kind: index for index, kind in enumerate(rules)}
    driver: dict[str, Any] = {"name": "assay-stream", "rules": [_rule(view) for view in rules.values()]}
    if views:
        driver["version"] = views[-1].version
    run = {
        "tool": {"driver": driver},
        # 3.14.6: offsets count code points here, as this text is nowhere measured in UTF-16.
        "columnKind": "unicodeCodePoints",
        "results": [_result(view, places[view.kind]) for view in views],
    }
    log = {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, ensure_ascii=False, separators=(",", ":"))


def _rank(view: AlertView) -> int:
    return view.severity_id if view.severity_id in _SCORES else 0


def _rule(view: AlertView) -> dict[str, Any]:
    rule: dict[str, Any] = {
        "id": view.kind,
        "defaultConfiguration": {"level": _LEVELS.get(view.severity_id, "warning")},
        "properties": {"tags": ["security", "mcp"]},
    }
    # Each detection has a title of its own.
    if title := KINDS[Kind.DETECTION].title if view.kind == Kind.DETECTION else view.title:
        rule["shortDescription"] = {"text": title}
    if view.explanation:
        rule["fullDescription"] = {"text": view.explanation}
    if view.severity_id in _SCORES:
        rule["properties"]["security-severity"] = _SCORES[view.severity_id]
    return rule


def _result(view: AlertView, rule_index: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": view.kind,
        "ruleIndex": rule_index,
        "level": _LEVELS.get(view.severity_id, "warning"),
        "message": {"text": sarif_text(view.message or view.kind)},
        "fingerprints": {"assayStreamAlert/v1": view.uid},
        "properties": {
            "uid": view.uid,
            "activity": view.activity,
            "severity": view.severity,
            "severityId": view.severity_id,
            "status": view.status,
            "count": view.count,
            "firstSeen": time_ms_text(view.first_seen_ms),
            "lastSeen": time_ms_text(view.last_seen_ms),
            **{name: view.flat[name] for name in sorted(view.flat)},
        },
    }
    if view.count >= 1:
        result["occurrenceCount"] = view.count
    server, tool = view.fact("mcp_server_id"), view.fact("mcp_tool_name")
    if server:
        name = tool or view.fact("mcp_item_name")
        location = {"name": name or server, "fullyQualifiedName": f"{server}/{name}" if name else server}
        location["kind"] = "function" if tool else "resource" if name else "module"
        result["locations"] = [{"logicalLocations": [location]}]
    if view.status_id == AlertStatus.SUPPRESSED:
        result["suppressions"] = [{"kind": "external", "status": "accepted"}]
    return result


SARIF = Format(media_type="application/sarif+json", write=lambda alert: to_sarif([alert]), write_file=to_sarif)
