"""Alerts in OCSF: as they are."""

from __future__ import annotations

from assay_stream.alerts.formats import read_alert
from assay_stream.alerts.formats.ocsf import to_ocsf
from tests.support.alerts import alert_of, alert_records, finding_of


def test_the_bytes_of_the_topic_come_back() -> None:
    """An alert read from the topic is written as it stands there."""
    (record,) = alert_records(finding_of("tööl\n"))
    assert to_ocsf(read_alert(record.value)).encode() == record.value


def test_unknown_members_are_kept() -> None:
    """As it is, of a later version too."""
    assert '"later":{"a":[1]}' in to_ocsf(alert_of() | {"later": {"a": [1]}})
