"""Alerts in the formats of those who receive them: one module per format, pure, from the alert's object alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any

from assay_stream.alerts.formats import asim, cef, ecs, jsonl, ocsf, sarif
from assay_stream.alerts.formats.view import AlertView, read_alert, view_of
from assay_stream.text.escaping import json_text

__all__ = ["CONTENT_TYPES", "AlertFormat", "AlertView", "as_lines", "read_alert", "render", "view_of"]


class AlertFormat(StrEnum):
    """How an alert is written."""

    OCSF = "ocsf"
    OCSF_1_9 = "ocsf-1.9"
    ECS = "ecs"
    HEC = "hec"
    ASIM = "asim"
    CEF = "cef"
    SARIF = "sarif"
    JSONL = "jsonl"


_JSON = "application/json"
_FORMATS: dict[AlertFormat, tuple[str, Callable[[dict[str, Any]], str]]] = {
    AlertFormat.OCSF: (_JSON, ocsf.to_ocsf),
    AlertFormat.OCSF_1_9: (_JSON, ocsf.to_ocsf_1_9),
    AlertFormat.ECS: (_JSON, ecs.to_ecs),
    AlertFormat.HEC: (_JSON, jsonl.to_hec),
    AlertFormat.ASIM: (_JSON, asim.to_asim),
    AlertFormat.CEF: ("text/plain; charset=utf-8", cef.to_cef),
    AlertFormat.SARIF: ("application/sarif+json", lambda alert: sarif.to_sarif([alert])),
    AlertFormat.JSONL: (_JSON, jsonl.to_jsonl),
}
CONTENT_TYPES = {target: media_type for target, (media_type, _) in _FORMATS.items()}
"""Media type of one rendered alert."""


def render(alert: dict[str, Any], target: AlertFormat) -> str:
    """Return one alert as one line, without the line terminator. Invisible characters are escaped.

    Args:
        alert: the alert, as returned by ``read_alert``.
    """
    line = _FORMATS[target][1](alert)
    return json_text(line) if "json" in CONTENT_TYPES[target] else line


def as_lines(alerts: Iterable[dict[str, Any]], target: AlertFormat) -> Iterable[str]:
    """Yield alerts as the lines of a file. A SARIF file is one document, so it is one line."""
    if target is AlertFormat.SARIF:
        yield json_text(sarif.to_sarif(list(alerts)))
        return
    for alert in alerts:
        yield render(alert, target)
