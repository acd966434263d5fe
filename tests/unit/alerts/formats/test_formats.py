"""The formats together."""

from __future__ import annotations

import json

import pytest

from assay_stream.alerts.formats import CONTENT_TYPES, AlertFormat, as_lines, render
from tests.support.alerts import alert_of


@pytest.mark.parametrize("target", [item for item in AlertFormat if item is not AlertFormat.SARIF])
def test_a_file_has_a_line_for_every_alert(target: AlertFormat) -> None:
    alerts = [alert_of("a"), alert_of("b")]
    assert list(as_lines(alerts, target)) == [render(alert, target) for alert in alerts]


def test_a_sarif_file_is_one_document() -> None:
    (line,) = as_lines([alert_of("a"), alert_of("b")], AlertFormat.SARIF)
    assert len(json.loads(line)["runs"][0]["results"]) == 2


def test_every_format_has_a_media_type() -> None:
    assert set(CONTENT_TYPES) == set(AlertFormat)
