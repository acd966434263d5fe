"""Alerts as SARIF logs (OASIS SARIF 2.1.0)."""

import json
from typing import Any

import pytest

from assay_stream.alerts.formats.sarif import to_sarif
from assay_stream.model.kinds import KINDS, Kind
from assay_stream.text.escaping import sarif_text
from tests.support.alerts import alert_of, finding_of


def run_of(*alerts: dict[str, Any]) -> dict[str, Any]:
    log = json.loads(to_sarif(alerts))
    assert log["version"] == "2.1.0"  # 3.13.2
    (run,) = log["runs"]
    assert isinstance(run, dict)
    return run


def test_every_result_names_its_rule() -> None:
    """3.27.5 and 3.27.6: ruleId is the rule's id, ruleIndex its place; a kind is one rule."""
    run = run_of(alert_of("a"), alert_of("b", kind=Kind.PIN_MISMATCH), alert_of("c"))
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["tool_changed", "pin_mismatch"]
    assert [rules[result["ruleIndex"]]["id"] for result in run["results"]] == [
        result["ruleId"] for result in run["results"]
    ]


@pytest.mark.parametrize(
    ("severity_id", "level"),
    [(1, "note"), (2, "note"), (3, "warning"), (4, "error"), (5, "error"), (6, "error"), (0, "warning")],
)
def test_levels_are_those_of_the_standard(severity_id: int, level: str) -> None:
    """3.27.10: warning, error, note or none; the severity itself is a property."""
    (result,) = run_of(alert_of() | {"severity_id": severity_id})["results"]
    assert result["level"] == level
    assert result["properties"]["severityId"] == severity_id


def test_a_rule_is_as_severe_as_its_worst_result() -> None:
    """Code scanning shows every result of a rule with the score of the rule."""
    alerts = [alert_of(name) | {"severity_id": number} for number, name in ((2, "a"), (5, "b"), (99, "c"))]
    (rule,) = run_of(*alerts)["tool"]["driver"]["rules"]
    assert (rule["properties"]["security-severity"], rule["defaultConfiguration"]["level"]) == ("9.5", "error")


def test_the_rule_of_detections_has_the_title_of_none_of_them() -> None:
    detections = [alert_of(None, kind=Kind.DETECTION) for _ in range(2)]
    for alert, title in zip(detections, ("denied burst", "exfiltration"), strict=True):
        alert["finding_info"]["title"] = title
    (rule,) = run_of(*detections)["tool"]["driver"]["rules"]
    assert rule["shortDescription"] == {"text": KINDS[Kind.DETECTION].title}


def test_a_result_is_recognised_and_counted() -> None:
    """3.27.17 and 3.27.18: the uid is a fingerprint, the count the occurrences."""
    (result,) = run_of(alert_of() | {"count": 7})["results"]
    assert result["fingerprints"] == {"assayStreamAlert/v1": finding_of().uid()}
    assert result["occurrenceCount"] == 7
    (location,) = result["locations"]
    assert location["logicalLocations"][0]["fullyQualifiedName"] == "server/tool"


def test_a_template_is_a_place_too() -> None:
    """3.33: named by its URI template, within its server."""
    (result,) = run_of(alert_of(None, kind=Kind.TEMPLATE_CHANGED, item_name="x://{y}"))["results"]
    (location,) = result["locations"][0]["logicalLocations"]
    assert location == {"name": "x://{y}", "fullyQualifiedName": "server/x://{y}", "kind": "resource"}


def test_braces_are_no_placeholders() -> None:
    """3.11.5: a brace that is no placeholder is doubled."""
    assert sarif_text("a {0} b") == "a {{0}} b"


def test_brackets_are_no_links() -> None:
    """3.11.6: a bracket or backslash that is no link is escaped."""
    assert sarif_text("[click](http://e)\\") == "\\[click\\](http://e)\\\\"
    (result,) = run_of(alert_of("[x](1)"))["results"]
    assert "\\[x\\](1)" in result["message"]["text"]


def test_a_suppressed_alert_is_a_suppressed_result() -> None:
    """3.27.23 and 3.35: suppressed outside of the code."""
    (result,) = run_of(alert_of() | {"status_id": 3, "activity_id": 3})["results"]
    assert result["suppressions"] == [{"kind": "external", "status": "accepted"}]
    assert "suppressions" not in run_of(alert_of())["results"][0]


def test_no_alerts_are_a_run_without_results() -> None:
    """3.14.23: an empty array says that nothing was found."""
    assert run_of()["results"] == []
