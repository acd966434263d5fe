"""Alerts as ASIM Agent Events.

Columns and types are those of ``vimAgentEventEmpty`` 1.0.0 (Azure/Azure-Sentinel at 411a0234,
Parsers/ASimAgentEvent/Parsers/vimAgentEventEmpty.yaml). Which are mandatory is from the reference
(MicrosoftDocs/defender-docs at 5e243dee, sentinel/normalization-schema-agent.md, "All common fields"). The tables
ASimTester.csv at hand (Azure/Azure-Sentinel at 50ea427d) are older and have no Agent Event.
"""

import json
from datetime import datetime

from assay_stream.alerts.formats.asim import to_asim
from assay_stream.model.kinds import Kind
from tests.support.alerts import alert_of

COLUMNS: dict[str, type] = {
    "TimeGenerated": datetime,
    "EventCount": int,
    "EventStartTime": datetime,
    "EventEndTime": datetime,
    "EventType": str,
    "EventOriginalType": str,
    "EventUid": str,
    "EventOriginalUid": str,
    "EventProduct": str,
    "EventVendor": str,
    "EventSchema": str,
    "EventSchemaVersion": str,
    "ToolName": str,
    "ToolId": str,
    "ToolOriginalType": str,
    "AdditionalFields": dict,
}
"""Those that we write."""

MANDATORY = {
    "EventCount", "EventStartTime", "EventEndTime", "EventProduct", "EventVendor", "EventSchema", "EventSchemaVersion",
}  # fmt: skip


def test_every_column_is_one_of_the_table_with_its_type() -> None:
    for kind in Kind:
        for name, value in json.loads(to_asim(alert_of(kind=kind))).items():
            typed = datetime.fromisoformat(value) if COLUMNS[name] is datetime else value
            assert isinstance(typed, COLUMNS[name]), name


def test_every_row_has_the_mandatory_columns() -> None:
    for kind in Kind:
        assert json.loads(to_asim(alert_of(kind=kind))).keys() >= MANDATORY | {"TimeGenerated"}


def test_severity_and_techniques_are_additional_fields() -> None:
    row = json.loads(to_asim(alert_of()))
    assert (row["EventSchema"], row["EventSchemaVersion"], row["EventType"]) == ("AgentEvent", "1.0.0", "tool_changed")
    assert row["AdditionalFields"]["severity"] == "High"
    assert row["AdditionalFields"]["mcp_attacks"] == "AML.T0109,AML.T0110.000"
    assert (row["ToolName"], row["ToolId"]) == ("tool", "server/tool")


def test_an_alert_without_a_tool_names_none() -> None:
    assert "ToolName" not in json.loads(to_asim(alert_of(None, kind=Kind.SNAPSHOT_LATE)))
