"""Alerts as events of Splunk's HTTP Event Collector."""

from __future__ import annotations

import json

from assay_stream.alerts.formats.jsonl import to_hec
from tests.support.alerts import alert_of


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
