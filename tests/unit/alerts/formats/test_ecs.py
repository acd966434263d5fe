"""Alerts as ECS documents."""

import json
from typing import Any

import pytest

from assay_stream.alerts.formats.ecs import to_ecs
from assay_stream.model.kinds import Kind
from tests.support.alerts import alert_of, finding_of

EXPECTED_TYPES = {
    "configuration": {"access", "change", "creation", "deletion", "info"},
    "intrusion_detection": {"allowed", "denied", "info"},
}
"""The event types that each category expects (elastic/ecs, tag v9.1.0, generated/ecs/ecs_flat.yml)."""


def ecs(**members: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(to_ecs(alert_of() | members))
    return document


def test_it_is_an_alert_of_a_rule() -> None:
    document = ecs()
    assert document["event"]["kind"] == "alert"
    assert document["event"]["severity"] == 4
    assert document["@timestamp"] == document["event"]["start"] == "2026-03-01T00:00:00.123Z"
    assert document["rule"]["id"] == "tool_changed"
    assert document["rule"]["name"] == "The definition of a tool changed"
    assert document["message"] == "The definition of a tool changed: server/tool (description)"
    assert document["service"]["name"] == "server"


@pytest.mark.parametrize("kind", list(Kind))
def test_category_and_type_go_together(kind: Kind) -> None:
    event = json.loads(to_ecs(alert_of(kind=kind)))["event"]
    (category,) = event["category"]
    assert set(event["type"]) <= EXPECTED_TYPES[category]


def test_labels_are_keywords_only() -> None:
    """ECS: labels are custom keywords, without nesting; the figures stand typed elsewhere."""
    alert = alert_of()
    alert["unmapped"]["mcp.dotted"] = True
    document = json.loads(to_ecs(alert))
    assert all(isinstance(value, str) for value in document["labels"].values())
    assert document["labels"]["mcp_dotted"] == "true"
    assert document["labels"]["mcp_origin_offset"] == "0"
    assert document["assay_stream"]["alert"] == {
        "uid": finding_of().uid(),
        "count": 1,
        "activity_id": 1,
        "severity_id": 4,
        "status_id": 1,
    }


def test_techniques_become_threat_fields() -> None:
    """The alert's own OCSF attacks give ``threat.*``; a kind that maps to none has no threat."""
    assert "threat" not in json.loads(to_ecs(alert_of(None, kind=Kind.SNAPSHOT_LATE)))
    alert = alert_of()
    alert["finding_info"]["attacks"] = [
        {"technique": {"uid": "AML.T0110", "name": "Tool Poisoning"}, "tactics": [{"uid": "AML.TA0006"}, 3]},
        {"technique": {"uid": "AML.T0110"}, "tactic": None},
        {},
    ]
    assert json.loads(to_ecs(alert))["threat"] == {
        "framework": "MITRE ATLAS",
        "technique": {"id": ["AML.T0110"], "name": ["Tool Poisoning"]},
        "tactic": {"id": ["AML.TA0006"]},
    }


def test_kind_and_indicators_become_threat_fields_with_sub_techniques() -> None:
    """ECS keeps sub-techniques under the technique."""
    threat = json.loads(to_ecs(alert_of(indicators=(("secret_file_named", 4, "description"),))))["threat"]
    assert threat["framework"] == "MITRE ATLAS"
    assert threat["technique"]["id"] == ["AML.T0055", "AML.T0109", "AML.T0110"]
    assert threat["technique"]["subtechnique"] == {"id": ["AML.T0110.000"], "name": ["Definition and Instructions"]}
    assert "Credential Access" in threat["tactic"]["name"]


def test_a_tool_is_named_as_gen_ai_has_it() -> None:
    """``gen_ai.tool.name`` is in ECS from 9.1 on, as beta; a prompt is no tool."""
    assert ecs()["gen_ai"] == {"tool": {"name": "tool"}}
    assert ecs()["ecs"]["version"] == "9.1.0"
    assert "gen_ai" not in json.loads(to_ecs(alert_of(None, kind=Kind.PROMPT_CHANGED, item_name="ask")))


ECS_9_1 = {
    "@timestamp", "ecs.version", "message",
    "event.action", "event.category", "event.code", "event.dataset", "event.end", "event.id", "event.kind",
    "event.module", "event.provider", "event.reason", "event.severity", "event.start", "event.type",
    "gen_ai.tool.name",
    "observer.name", "observer.product", "observer.vendor", "observer.version",
    "rule.description", "rule.id", "rule.name", "rule.ruleset", "service.name",
    "threat.framework", "threat.tactic.id", "threat.tactic.name", "threat.technique.id", "threat.technique.name",
    "threat.technique.subtechnique.id", "threat.technique.subtechnique.name",
}  # fmt: skip
"""Fields that we write, from https://github.com/elastic/ecs, v9.1.0, generated/csv/fields.csv: a field table, as no
package carries the schema. ``labels`` and our own ``assay_stream`` are open."""


def test_every_field_is_one_of_ecs() -> None:
    def paths(value: dict[str, Any], prefix: str = "") -> set[str]:
        found: set[str] = set()
        for name, inner in value.items():
            found |= paths(inner, f"{prefix}{name}.") if isinstance(inner, dict) else {prefix + name}
        return found

    for kind in Kind:
        document = json.loads(to_ecs(alert_of(kind=kind, reason="x", indicators=(("data_sent", 4, "description"),))))
        del document["labels"], document["assay_stream"]
        assert paths(document) <= ECS_9_1
