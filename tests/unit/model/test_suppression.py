"""Suppression rules: what they cover."""

from __future__ import annotations

from typing import Any

import pytest

from assay_stream.model.finding import Detected
from assay_stream.model.finding_topic import covering_rule
from assay_stream.model.kinds import Kind
from tests.support.findings import a_finding, a_rule, at


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({}, True),
        ({"server_id": "*"}, True),
        ({"server_id": "other"}, False),
        ({"tool": "to*"}, True),
        ({"tool": "ta*"}, False),
        ({"kind": "tool_changed"}, True),
        ({"kind": "tool_added"}, False),
        ({"field": "description"}, True),
        ({"field": "title"}, False),
        ({"until_us": at(10)}, True),
        ({"until_us": at(9)}, False),
        ({"tool": "to*", "kind": "tool_added"}, False),
    ],
)
def test_a_rule_covers_what_all_of_it_says(rule: dict[str, Any], expected: bool) -> None:
    assert a_rule(**rule).covers(a_finding(), at(9)) is expected


def test_a_rule_on_a_field_does_not_cover_more() -> None:
    rule = a_rule(field="description")
    assert not rule.covers(a_finding(changed_fields=("description", "inputSchema")), at(0))
    assert not rule.covers(a_finding(changed_fields=()), at(0))


def test_a_tool_pattern_does_not_cover_what_is_about_the_server() -> None:
    about_the_server = a_finding(tool_name=None)
    assert not a_rule(tool="a*").covers(about_the_server, at(0))
    assert a_rule(tool="*").covers(about_the_server, at(0))


@pytest.mark.parametrize("kind", [Kind.DETECTION, Kind.AGENT_LIMITED])
def test_a_rule_for_an_agent_covers_what_this_one_finds(kind: Kind) -> None:
    detected = Detected(agent="bursts", title="T", severity_id=4, key=("k",), digest="sha256:" + "0" * 64)
    finding = a_finding(kind=kind, detection=detected)
    assert a_rule(detection="bursts").covers(finding, at(0))
    assert not a_rule(detection="others").covers(finding, at(0))
    assert not a_rule(detection="bursts").covers(a_finding(), at(0))


def test_the_first_by_id_is_named() -> None:
    rules = [a_rule(id="b"), a_rule(id="a"), a_rule(id="0", kind="tool_added")]
    covering = covering_rule(rules, a_finding(), at(0))
    assert covering is not None
    assert covering.id == "a"
    assert covering_rule([], a_finding(), at(0)) is None
