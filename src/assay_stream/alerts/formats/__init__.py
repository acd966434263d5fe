"""Alerts in the formats of those who receive them: one module per format, pure, from the alert's object alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any

from assay_stream.alerts.formats import asim, cef, ecs, hec, jsonl, ocsf, sarif
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


_RENDERERS: dict[AlertFormat, Callable[[dict[str, Any]], str]] = {
    AlertFormat.OCSF: ocsf.to_ocsf,
    AlertFormat.OCSF_1_9: ocsf.to_ocsf_1_9,
    AlertFormat.ECS: ecs.to_ecs,
    AlertFormat.HEC: hec.to_hec,
    AlertFormat.ASIM: asim.to_asim,
    AlertFormat.CEF: cef.to_cef,
    AlertFormat.SARIF: lambda alert: sarif.to_sarif([alert]),
    AlertFormat.JSONL: jsonl.to_jsonl,
}

CONTENT_TYPES: dict[AlertFormat, str] = {
    AlertFormat.OCSF: "application/json",
    AlertFormat.OCSF_1_9: "application/json",
    AlertFormat.ECS: "application/json",
    AlertFormat.HEC: "application/json",
    AlertFormat.ASIM: "application/json",
    AlertFormat.CEF: "text/plain; charset=utf-8",
    AlertFormat.SARIF: "application/sarif+json",
    AlertFormat.JSONL: "application/json",
}
"""Media type of one rendered alert."""


def render(alert: dict[str, Any], target: AlertFormat) -> str:
    """Return one alert as one line, without the line's end. What would not be seen in it is escaped.

    Args:
        alert: the alert, as ``read_alert`` gives it.
        target: the format.
    """
    line = _RENDERERS[target](alert)
    return json_text(line) if "json" in CONTENT_TYPES[target] else line


def as_lines(alerts: Iterable[dict[str, Any]], target: AlertFormat) -> Iterable[str]:
    """Yield alerts as the lines of a file. A SARIF file is one document, so it is one line.

    Args:
        alerts: the alerts, in order.
        target: the format.
    """
    if target is AlertFormat.SARIF:
        yield json_text(sarif.to_sarif(list(alerts)))
        return
    for alert in alerts:
        yield render(alert, target)
