"""The alert as a record: OCSF 1.8.0, valid for every kind, activity and status."""

from dataclasses import replace
from typing import Any

import jsonschema
import pytest
import rfc8785
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema

from assay_stream.alerts.life_cycle import counted
from assay_stream.model.alert import OCSF_VERSION, Activity, AlertStatus, alert_record
from assay_stream.model.finding import Finding
from assay_stream.model.kinds import KINDS, Kind
from assay_stream.model.record import Origin, Output, Role
from tests.support.findings import a_finding, at, body


@pytest.fixture(scope="module")
def ocsf() -> jsonschema.Draft202012Validator:
    schema = OcsfJsonSchemaEmbedded(get_ocsf_schema(version=OCSF_VERSION))
    return jsonschema.Draft202012Validator(schema.get_class_schema(class_name="detection_finding"))


def a_record(finding: Finding, **changes: Any) -> Output:
    fields: dict[str, Any] = {
        "activity": Activity.CREATE,
        "status": AlertStatus.NEW,
        "time_us": finding.time_us,
        "suppressed_by": None,
        "version": "1",
    }
    of_state = {name: changes.pop(name) for name in list(changes) if name not in fields}
    return alert_record(replace(counted(None, finding, 3), **of_state), **(fields | changes))


@pytest.mark.parametrize("activity", list(Activity))
@pytest.mark.parametrize("status", list(AlertStatus))
def test_every_record_is_valid_ocsf(
    activity: Activity, status: AlertStatus, ocsf: jsonschema.Draft202012Validator
) -> None:
    for kind in Kind:
        bare = Finding(kind=kind, server_id="s", time_us=0, origin=Origin(topic="t", partition=0, offset=0))
        for finding in (a_finding(kind=kind), bare):
            for severity_id in range(1, 6):
                alert = a_record(
                    finding,
                    activity=activity,
                    status=status,
                    severity_id=severity_id,
                    repeats=2,
                    resolved_by="decided",
                    suppressed_by="rule",
                )
                ocsf.validate(body(alert))


def test_the_version_is_the_one_that_is_claimed() -> None:
    assert body(a_record(a_finding()))["metadata"]["version"] == OCSF_VERSION == "1.8.0"


def test_the_record_is_canonical() -> None:
    alert = a_record(a_finding(tool_name="naïve ✓"))
    assert rfc8785.dumps(body(alert)) == alert.value


def test_the_record_goes_to_its_server() -> None:
    alert = a_record(a_finding(), count=4, repeats=2, activity=Activity.UPDATE)
    assert (alert.role, alert.key, alert.partition) == (Role.ALERTS, b"server", None)
    headers = dict(alert.headers)
    assert headers["ce_id"] == f"{a_finding().uid()}:4:2:2".encode()
    assert headers["ce_specversion"] == b"1.0"


def test_the_span_is_shown() -> None:
    info = body(a_record(a_finding(), first_us=at(1), last_us=at(5)))["finding_info"]
    assert (info["first_seen_time"] * 1_000, info["last_seen_time"] * 1_000) == (at(1), at(5))


def test_the_message_names_the_tool_and_what_changed() -> None:
    alert = a_record(a_finding(changed_fields=("annotations", "description")))
    assert body(alert)["message"].endswith("server/tool (annotations, description)")
    refused = a_finding(kind=Kind.SNAPSHOT_REJECTED, tool_name=None, changed_fields=(), reason="not_json")
    assert body(a_record(refused))["message"].endswith("server (not_json)")


def test_a_prompt_is_named_in_its_own_field() -> None:
    alert = body(a_record(a_finding(kind=Kind.PROMPT_CHANGED, tool_name=None, item_name="ask")))
    assert alert["message"].endswith(": server/ask (description)")
    assert (alert["unmapped"]["mcp_item_name"], "mcp_tool_name" in alert["unmapped"]) == ("ask", False)


def test_what_is_absent_is_left_out() -> None:
    unmapped = body(a_record(a_finding(snapshot_id=None, before=None, changed_fields=())))["unmapped"]
    assert None not in unmapped.values()
    assert unmapped.keys().isdisjoint({"mcp_snapshot_id", "mcp_digest_before", "mcp_changed_fields", "mcp_repeats"})


@pytest.mark.parametrize("kind", list(Kind))
def test_the_record_says_what_to_do(kind: Kind) -> None:
    told = body(a_record(a_finding(kind=kind)))
    info = KINDS[kind]
    assert told["finding_info"]["title"] == info.title
    assert (told["finding_info"]["desc"], told["remediation"]["desc"]) == (info.explanation, info.next_step)
