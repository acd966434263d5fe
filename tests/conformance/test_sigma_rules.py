"""The example Sigma rules: each converts, and what it converts to finds what it should in the sample logs.

sigma-cli converts to Splunk and to SQLite. The SQLite query is run over the samples; the Splunk query is only
converted, as there is no Splunk here to run it.
"""

import importlib.util
import json
import os
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from assay_stream.model.alert import AlertFlat
from deploy.sigma.make_samples import main as make_samples

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "sigma"
RULES = sorted(path.stem for path in (FOLDER / "rules").glob("*.yml"))
TABLE_OPTIONS = ("-O", "table=alerts", "-O", "timestamp_field=time", "-O", "timestamp_format=unix_ms")

FOUND = {
    "definition_changed": ["tool_changed"],
    "pin_mismatch": ["pin_mismatch"],
    "blocked_tool_called": ["blocked_tool_called"],
    "call_to_unlisted_tool": ["call_to_unlisted_tool"],
    "signature_trouble": ["signature_invalid", "key_revoked"],
    "snapshot_rejected": ["snapshot_rejected"],
    "atlas_rug_pull": ["tool_changed"],
    "atlas_exfiltration": ["tool_changed"],
    "atlas_hidden_text": ["tool_changed"],
}
"""What each rule about single alerts finds in its positive sample."""

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("sigma") is None and not os.environ.get("CI"),
    reason="sigma-cli is not installed: it is in the dev extra",
)


@cache
def converted(rule: str, target: str, *options: str) -> str:
    from sigma.cli.convert import convert

    path = str(FOLDER / "rules" / f"{rule}.yml")
    done = CliRunner().invoke(convert, ["--without-pipeline", "--target", target, *options, path])
    assert done.exit_code == 0, done.output
    return str(done.stdout).strip()


def flattened(value: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {path: json.dumps(value) if isinstance(value, list) else value}
    columns: dict[str, Any] = {}
    for name, inner in value.items():
        columns |= flattened(inner, f"{path}.{name}" if path else name)
    return columns


def matches(rule: str, alerts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = [flattened(alert) for alert in alerts]
    columns = sorted({f"unmapped.{name}" for name in (*AlertFlat.__annotations__, "mcp_attacks")}.union(*rows))
    with closing(sqlite3.connect(":memory:")) as database:
        database.row_factory = sqlite3.Row
        names = ", ".join(f'"{name}"' for name in columns)
        database.execute(f"CREATE TABLE alerts ({names})")
        insert = f"INSERT INTO alerts VALUES ({', '.join('?' for _ in columns)})"  # noqa: S608 - only marks
        database.executemany(insert, [[row.get(name) for name in columns] for row in rows])
        return [dict(row) for row in database.execute(converted(rule, "sqlite", *TABLE_OPTIONS))]


def sample(rule: str, name: str) -> list[dict[str, Any]]:
    lines = (FOLDER / "samples" / f"{rule}.{name}.ndjson").read_text().splitlines()
    assert lines, "a sample without alerts shows nothing"
    return [json.loads(line) for line in lines]


def test_the_samples_are_what_the_engine_makes() -> None:
    assert make_samples(["--check", str(FOLDER / "samples")]) == 0


def test_every_rule_has_its_samples_and_its_expectation() -> None:
    assert {*FOUND, "many_servers_changed"} == set(RULES)
    names = {f"{rule}.{name}.ndjson" for rule in RULES for name in ("positive", "negative")}
    assert {path.name for path in (FOLDER / "samples").iterdir()} == names


def test_every_rule_has_an_id_of_its_own() -> None:
    documents = [
        document
        for path in (FOLDER / "rules").glob("*.yml")
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]
    ids = [document["id"] for document in documents]
    assert len(set(ids)) == len(ids) >= 8
    assert all(document["title"] and document["level"] for document in documents)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_converts_to_splunk(rule: str) -> None:
    search = converted(rule, "splunk")
    assert "unmapped.mcp_attacks" in search if rule.startswith("atlas_") else "unmapped.mcp_finding_kind" in search


@pytest.mark.parametrize("rule", sorted(FOUND))
def test_a_rule_finds_its_alerts_and_no_others(rule: str) -> None:
    found = [row["unmapped.mcp_finding_kind"] for row in matches(rule, sample(rule, "positive"))]
    assert found == FOUND[rule]
    assert matches(rule, sample(rule, "negative")) == []


@pytest.mark.parametrize("rule", sorted(FOUND))
@pytest.mark.parametrize("status_id", [3, 4])
def test_what_is_suppressed_or_resolved_is_not_found(rule: str, status_id: int) -> None:
    """OCSF: status 3 is suppressed, 4 resolved. Somebody has seen to it."""
    assert matches(rule, [alert | {"status_id": status_id} for alert in sample(rule, "positive")]) == []


def test_the_correlation_counts_servers_within_its_window() -> None:
    found = matches("many_servers_changed", sample("many_servers_changed", "positive"))
    assert max(row["metric_value"] for row in found) == 6
    assert matches("many_servers_changed", sample("many_servers_changed", "negative")) == []
