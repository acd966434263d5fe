"""Alerts in the formats of those who receive them: one module per format, pure, from the alert's object alone.

The formats are plug-ins: an alert is written in one by its name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from assay_stream.alerts.view import AlertView, object_in, read_alert, view_of
from assay_stream.plugins import FORMATS, Format
from assay_stream.text.escaping import json_text

__all__ = ["AlertView", "as_lines", "read_alert", "render", "view_of"]


def render(alert: dict[str, Any], target: str) -> str:
    """Return one alert as one line, without the line terminator. Invisible characters are escaped.

    Args:
        alert: the alert, as returned by ``read_alert``.
        target: name of the format.
    """
    form = FORMATS.load(target)
    return _escaped(form, form.write(alert))


def as_lines(alerts: Iterable[dict[str, Any]], target: str) -> Iterable[str]:
    """Yield alerts as the lines of a file; where the format makes one document of them, it is one line."""
    form = FORMATS.load(target)
    if form.write_file is not None:
        given = list(alerts)
        with FORMATS.naming(target):
            yield _escaped(form, form.write_file(given))
        return
    for alert in alerts:
        with FORMATS.naming(target, f" on the alert {object_in(alert, 'finding_info').get('uid')}"):
            yield render(alert, target)


def _escaped(form: Format, line: str) -> str:
    line.encode()  # what is no text that can be written fails here, by its plug-in's name
    return json_text(line) if "json" in form.media_type else line
