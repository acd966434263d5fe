"""The example alert rules and the dashboard: well formed, and about metrics that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from assay_stream.worker.metrics import Metrics

ROOT = Path(__file__).parents[2]
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
DASHBOARD = json.loads((ROOT / "deploy/grafana/assay-stream.json").read_text(encoding="utf-8"))
QUERIES = {rule["alert"]: rule["expr"] for rule in RULES} | {
    f"{panel['title']}/{target['refId']}": target["expr"]
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", [])
}


def metric_names() -> dict[str, set[str]]:
    """Every name that a process serves, and its labels."""
    registry = CollectorRegistry()
    Metrics(registry)
    names: dict[str, set[str]] = {}
    for metric in registry._collector_to_names:
        labels = set(metric._labelnames)
        [family] = metric.describe()
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
        names |= {family.name + suffix: labels for suffix in suffixes}
    return names


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_a_query_names_metrics_and_labels_that_there_are(query: str) -> None:
    """Neither a name nor a label that nothing serves: such a rule never fires, and nobody notices."""
    names = metric_names()
    used = re.findall(r"\b(assay_stream_\w+)(?:\{([^}]*)\})?", query)
    assert used
    for name, selector in used:
        assert name in names, name
        assert set(re.findall(r"(\w+)\s*=", selector)) <= names[name]
    for by in re.findall(r"\bby \(([^)]*)\)", query):
        known = set().union(*(names[name] for name, _ in used)) | {"le", "instance"}
        assert {label.strip() for label in by.split(",")} <= known


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_is_well_formed_and_says_what_to_do(rule: dict[str, Any]) -> None:
    """The fields that Prometheus takes, brackets in pairs, a severity, a summary and a mend."""
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"[A-Za-z]+", rule["alert"])
    assert re.fullmatch(r"\d+[smhd]", rule.get("for", "1m"))
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert set(rule["annotations"]) == {"summary", "mend"}
    open_brackets: list[str] = []
    for character in rule["expr"]:
        if character in "([{":
            open_brackets.append({"(": ")", "[": "]", "{": "}"}[character])
        elif character in ")]}":
            assert open_brackets.pop() == character
    assert not open_brackets
    for text in rule["annotations"].values():
        assert set(re.findall(r"\$labels\.(\w+)", text)) <= {"stage", "instance", "topic", "partition", "what"}


def test_each_rule_has_a_name_of_its_own() -> None:
    """Two of one name would hide each other."""
    assert len({rule["alert"] for rule in RULES}) == len(RULES)


def test_panels_do_not_lie_on_each_other() -> None:
    """Each has a place and an id of its own."""
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (place["x"] + x, place["y"] + y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["w"])
        for y in range(place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
