"""Alerts as flat JSON lines."""

from __future__ import annotations

import json

from assay_stream.alerts.formats.jsonl import to_jsonl
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
