"""What is in ``deploy/``: services with few rights and command lines that this version takes, and well-formed rules and
panels about metrics that there are."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from prometheus_client import CollectorRegistry

from assay_stream.cli.app import app
from assay_stream.console.service import ConsoleMetrics
from assay_stream.worker.telemetry import Metrics

ROOT = Path(__file__).parents[2]
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
COMPOSE = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text(encoding="utf-8"))
OURS = {name: service for name, service in COMPOSE["services"].items() if name != "broker"}
DASHBOARD = json.loads((ROOT / "deploy/grafana/assay-stream.json").read_text(encoding="utf-8"))
QUERIES = {rule["alert"]: rule["expr"] for rule in RULES} | {
    f"{panel['title']}/{target['refId']}": target["expr"]
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", [])
}


def metric_names() -> dict[str, set[str]]:
    registries = Metrics(CollectorRegistry()).registry, ConsoleMetrics().registry
    names: dict[str, set[str]] = {"up": {"job"}}  # Prometheus' own
    for metric in (metric for registry in registries for metric in registry._collector_to_names):
        if hasattr(metric, "_labelnames"):
            [family] = metric.describe()
            labels = set(metric._labelnames)
        else:  # a collector of our own, which says so in its samples
            [family] = metric.collect()
            labels = {name for sample in family.samples for name in sample.labels} - {"le"}
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
        names |= {family.name + suffix: labels for suffix in suffixes}
    return names


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_a_query_names_metrics_and_labels_that_there_are(query: str) -> None:
    """Neither a name nor a label that nothing serves: such a rule never fires, and nobody notices."""
    names = metric_names()
    used = re.findall(r"\b(assay_stream_\w+|up)(?:\{([^}]*)\})?", query)
    assert used
    for name, selector in used:
        assert name in names, name
        assert set(re.findall(r"(\w+)\s*=", selector)) <= names[name]
    for by in re.findall(r"\bby \(([^)]*)\)", query):
        known = set().union(*(names[name] for name, _ in used)) | {"le", "instance"}
        assert {label.strip() for label in by.split(",")} <= known


@pytest.mark.parametrize("name", OURS)
def test_a_service_can_do_no_more_than_it_needs(name: str) -> None:
    """Nothing but its volumes can be written, and no capability is left."""
    service: dict[str, Any] = OURS[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.keys() & {"privileged", "cap_add", "user", "devices", "pid", "network_mode"}


def test_no_port_is_open_beyond_this_machine() -> None:
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_console_reaches_no_broker() -> None:
    """Neither a setting nor a network leads there."""
    console = OURS["console"]
    assert "environment" not in console
    assert console["networks"] == ["console"]
    others = [name for name, service in COMPOSE["services"].items() if "console" in service.get("networks", ())]
    assert others == ["console"]


@pytest.mark.parametrize("name", OURS)
def test_a_command_line_is_one_that_there_is(name: str) -> None:
    """Every option of it, with its value."""
    arguments: list[str] = list(OURS[name]["command"])
    command: Any = typer.main.get_command(app)
    context = command.make_context("assay-stream", [], resilient_parsing=True)
    while hasattr(command, "resolve_command") and arguments and not arguments[0].startswith("-"):
        _, found, arguments = command.resolve_command(context, arguments)
        assert found is not None
        command = found
    command.make_context(name, arguments)
