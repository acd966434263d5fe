"""Records that were written under former names are read under those of today."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from assay_stream.alerts.formats.view import read_alert, view_of
from assay_stream.alerts.state import counted
from assay_stream.model.alert_state import AlertState
from assay_stream.model.finding import decode_finding, finding_fields
from assay_stream.model.old_names import OLD_NAMES, has_old_names
from assay_stream.model.wire import read_record, write_record
from tests.support.alerts import alert_records, finding_of
from tests.support.findings import a_finding

FINDING = finding_of(indicators=(("url_introduced", 3, "$.description"),))


def under_old_names(record: str, content: dict[str, object]) -> dict[str, object]:
    """A record as it was written before."""
    new_names = {new: old for old, new in OLD_NAMES[record].items()}
    return {new_names.get(name, name): value for name, value in content.items()}


def test_a_finding_is_read() -> None:
    """The field of the indicators was called signs."""
    before = under_old_names("Finding", finding_fields(FINDING))
    assert "signs" in before
    assert decode_finding(orjson.dumps(before)) == FINDING


def test_a_state_is_read_and_written_under_the_names_of_today() -> None:
    """Also the finding within it."""
    state = counted(None, a_finding(0, indicators=FINDING.indicators), 3)
    before = under_old_names("AlertState", write_record(state))
    before["last"] = under_old_names("Finding", finding_fields(state.last))
    assert {"told"} <= before.keys()
    assert read_record(AlertState, dict(before)) == state


def test_the_members_of_a_folded_alert_are_read() -> None:
    """The list of the most severe ones was called gravest."""
    members = {"by_severity": {"4": 1}, "most_severe": [[4, "tool_changed", "a", "0" * 64]], "open": 1, "due": False}
    state = replace(counted(None, a_finding(0), 3), folded=members)
    before = write_record(state)
    before["folded"] = under_old_names("FoldedMembers", before["folded"])
    assert "gravest" in before["folded"]
    assert read_record(AlertState, before) == state


@pytest.mark.parametrize("old", sorted(OLD_NAMES["AlertFlat"]))
def test_an_alert_is_read(old: str) -> None:
    """Whatever reads it finds the fact under its name of today."""
    alert = orjson.loads(alert_records(FINDING)[0].value or b"")
    raw = orjson.dumps(alert | {"unmapped": under_old_names("AlertFlat", alert["unmapped"])})
    assert has_old_names(raw)
    assert old.encode() in raw
    assert read_alert(raw) == alert
    assert view_of(orjson.loads(raw)) == view_of(alert)
