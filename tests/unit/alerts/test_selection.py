"""Which alerts an operator asks for."""

from __future__ import annotations

import pytest

from assay_stream.alerts.formats import view_of
from assay_stream.alerts.index import AlertSelection, SeverityLevel
from tests.support.alerts import alert_of

TIME_MS = 1_772_323_200_123


@pytest.mark.parametrize(("since_ms", "wanted"), [(TIME_MS - 1, True), (TIME_MS, True), (TIME_MS + 1, False)])
def test_since_is_inclusive(since_ms: int, wanted: bool) -> None:
    assert AlertSelection(since_ms=since_ms).wants(view_of(alert_of())) is wanted


@pytest.mark.parametrize(
    ("level", "severity_id", "wanted"),
    [("high", 4, True), ("critical", 4, False), ("low", 5, True), ("critical", 6, True), ("critical", 0, True)],
)
def test_a_severity_asks_for_higher_ones_too(level: str, severity_id: int, wanted: bool) -> None:
    """And for those that do not say how severe they are: nothing is hidden by not knowing."""
    selection = AlertSelection(severity=SeverityLevel(level))
    assert selection.wants(view_of(alert_of() | {"severity_id": severity_id})) is wanted


def test_a_server_is_asked_for_by_its_id() -> None:
    assert AlertSelection(server_id="server").wants(view_of(alert_of()))
    assert not AlertSelection(server_id="serve").wants(view_of(alert_of()))
