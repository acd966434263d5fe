"""Laws of the alert formats: total, deterministic, one line, and nothing of weight is lost."""

import json
import re
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hypothesis import given, strategies as st

from assay_stream.alerts.formats import read_alert, render, view_of
from assay_stream.alerts.life_cycle import apply_finding
from assay_stream.alerts.rules import AlertRules
from assay_stream.errors import InputError
from assay_stream.forward.syslog import syslog_message
from assay_stream.plugins import FORMATS
from tests.property.test_alert_laws import any_findings

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def alerts(draw: st.DrawFn) -> dict[str, Any]:
    finding = draw(any_findings())
    _, (record,) = apply_finding(None, replace(finding, known=False), AlertRules(version=draw(st.text(max_size=40))))
    alert: dict[str, Any] = read_alert(record.value)
    alert |= draw(
        st.fixed_dictionaries(
            {
                "activity_id": st.integers(0, 99),
                "status_id": st.integers(0, 99),
                "severity_id": st.sampled_from([0, 1, 2, 3, 4, 5, 6, 99]),
                "count": st.integers(1, 2**40),
            },
            optional={"later": JSON, "message": st.text(), "attacks": JSON, "status": st.text(max_size=9)},
        )
    )
    alert["unmapped"] |= draw(st.dictionaries(st.text(max_size=9), JSON, max_size=3))
    if draw(st.booleans()):
        alert["finding_info"]["attacks"] = draw(JSON)
    return alert


def weight(line: str, target: str) -> tuple[str, int, int]:
    """Read uid, count and severity id back from a line; a format with members of its own needs a branch here."""
    if target == "cef":
        found = {key: re.search(rf" {key}=(\S+)", line) for key in ("cs1", "cnt", "cn1")}
        assert all(found.values())
        uid, count, severity = (match[1] for match in found.values() if match)
        return uid, int(count), int(severity)
    document = json.loads(line)
    if target in ("ocsf", "ocsf-1.9"):
        return document["finding_info"]["uid"], document["count"], document["severity_id"]
    if target == "ecs":
        return (
            document["labels"]["uid"] and document["assay_stream"]["alert"]["uid"],
            (document["assay_stream"]["alert"]["count"]),
            document["event"]["severity"],
        )
    if target == "sarif":
        (result,) = document["runs"][0]["results"]
        uid = result["fingerprints"]["assayStreamAlert/v1"]
        return uid, result["occurrenceCount"], result["properties"]["severityId"]
    if target == "asim":
        return document["EventOriginalUid"], document["EventCount"], document["AdditionalFields"]["severity_id"]
    if target == "hec":
        document = document["event"]
    return document["uid"], document["count"], document["severity_id"]


@given(alerts(), st.sampled_from(FORMATS.names()))
def test_every_alert_is_one_line_of_every_format(alert: dict[str, Any], target: str) -> None:
    line = render(alert, target)
    assert line == render(json.loads(json.dumps(alert)), target)
    assert "\n" not in line
    assert "\r" not in line
    expected = alert["finding_info"]["uid"], alert["count"], alert["severity_id"]
    assert weight(line, target) == expected


@given(alerts(), st.text(max_size=20), st.text(max_size=50))
def test_every_alert_is_a_syslog_message(alert: dict[str, Any], host: str, body: str) -> None:
    """RFC 5424, 6: the header is printable ASCII, the body is behind the structured data."""
    message = syslog_message(view_of(alert), body, host=host)
    assert re.match(rb"<\d{1,3}>1 \S+Z [!-~]{1,255} assay-stream - [!-~]{1,32} \[alert@32473 uid=", message)
    assert message.endswith(body.encode())


@given(JSON | st.binary(max_size=20))
def test_reading_gives_an_alert_or_our_error(value: Any) -> None:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    with suppress(InputError):
        assert render(read_alert(raw), "jsonl")
