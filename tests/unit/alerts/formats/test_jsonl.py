"""Alerts as flat JSON lines."""

import json

import pytest

from assay_stream.alerts.formats import as_lines, render
from assay_stream.alerts.formats.jsonl import to_hec, to_jsonl
from assay_stream.plugins import FORMATS
from tests.support.alerts import A, B, alert_of, finding_of


def test_everything_an_analyst_asks_for_is_a_scalar_of_the_top_level() -> None:
    flat = json.loads(to_jsonl(alert_of()))
    assert flat == flat | {
        "uid": finding_of().uid(),
        "kind": "tool_changed",
        "server_id": "server",
        "tool_name": "tool",
        "severity": "High",
        "severity_id": 4,
        "status": "New",
        "count": 1,
        "first_seen": "2026-03-01T00:00:00.123Z",
        "last_seen": "2026-03-01T00:00:00.123Z",
        "message": "The definition of a tool changed: server/tool (description)",
        "digest_before": A,
        "digest_after": B,
        "observers": 1,
        "changed_fields": "description",
        "origin_offset": 0,
    }
    assert not any(isinstance(value, dict | list) for value in flat.values())


def test_a_flat_fact_never_takes_the_place_of_a_member() -> None:
    alert = alert_of()
    alert["unmapped"] |= {"mcp_uid": "forged", "mcp_profile": "strict", "mcp_nested": {"a": 1}}
    flat = json.loads(to_jsonl(alert))
    assert (flat["uid"], flat["profile"]) == (finding_of().uid(), "strict")
    assert "nested" not in flat


def test_an_event_is_an_envelope_around_flat_facts() -> None:
    envelope = json.loads(to_hec(alert_of()))
    assert envelope["time"] == "1772323200.123"
    assert (envelope["source"], envelope["sourcetype"]) == ("assay-stream", "mcp:jsonrpc")
    assert envelope["event"]["mcp.tool_name"] == envelope["event"]["tool_name"] == "tool"
    assert envelope["event"]["mcp.server_name"] == "server"
    assert envelope["event"]["attacks"] == "AML.T0109,AML.T0110.000"
    assert all(not isinstance(value, dict | list) for value in envelope["event"].values())


def test_a_receiver_chooses_index_and_sourcetype() -> None:
    envelope = json.loads(to_hec(alert_of(), index="mcp", sourcetype="assay:alert"))
    assert (envelope["index"], envelope["sourcetype"]) == ("mcp", "assay:alert")


@pytest.mark.parametrize("target", [item for item in FORMATS.names() if item != "sarif"])
def test_a_file_has_a_line_for_every_alert(target: str) -> None:
    alerts = [alert_of("a"), alert_of("b")]
    assert list(as_lines(alerts, target)) == [render(alert, target) for alert in alerts]


def test_a_sarif_file_is_one_document() -> None:
    (line,) = as_lines([alert_of("a"), alert_of("b")], "sarif")
    assert len(json.loads(line)["runs"][0]["results"]) == 2
