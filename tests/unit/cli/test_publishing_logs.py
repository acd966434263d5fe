"""``assay-stream publish`` from the logs of others, to evidence: as the README has the commands."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import run_command_text
from tests.support.logs import HANGAR, PROTOBUF, SECRET, SPANS, answered, toolhive

LISTED = {"tools": [{"name": "github_read", "description": "Reads.", "inputSchema": {"type": "object"}}]}


def evidence_of(tmp_path: Path, *arguments: str) -> tuple[list[dict[str, Any]], str]:
    observed, results = tmp_path / "o.ndjson", tmp_path / "out"
    published = run_command_text("publish", "--dry-run", "--output", str(observed), "--observer-id", "o", *arguments)
    assert published.returncode == 0, published.stderr
    replayed = run_command_text("replay", "--input", str(observed), "--output", str(results))
    assert replayed.returncode == 0, replayed.stderr
    assert not (results / "rejected.ndjson").read_bytes()
    lines = (results / "evidence.ndjson").read_bytes().splitlines()
    return [json.loads(line)["data"] for line in lines], published.stderr


def test_hangars_log_becomes_evidence_that_says_what_it_lacks(tmp_path: Path) -> None:
    """The command counts it, and nothing is bound to a definition that nobody listed."""
    evidence, said = evidence_of(tmp_path, "--from", "hangar", str(HANGAR))
    assert "not in the log: arguments 3, call_id 3, result 2" in said
    assert [data["not_observed"][0] for data in evidence] == ["arguments"] * 3
    assert {data["unbound_reason"] for data in evidence} == {"definition_not_observed"}


def test_toolhives_log_binds_calls_to_the_lists_in_it(tmp_path: Path) -> None:
    """Under the server's own name of the tool, without anything of the call but digests."""
    log = tmp_path / "audit.log"
    lists = toolhive("mcp_tools_list", data={"response": {"result": LISTED}}, logged_at="2026-11-22T09:00:00Z")
    calls = toolhive(data=answered({"content": [SECRET]}, {"key": SECRET}), target={"name": "github_read"})
    log.write_text("\n".join(json.dumps(line) for line in (lists, calls)))
    [data], _ = evidence_of(
        tmp_path, "--from", "toolhive", "--server-id", "vmcp", "--prefix", "github_=github", str(log)
    )
    assert (data["server_id"], data["tool"], data["shown_tool_name"]) == ("github", "read", "github_read")
    assert data["binding"]["scope"] == "observer"
    assert data["tool_definition_digest"].startswith("sha256:")
    assert all(SECRET not in file.read_text() for file in tmp_path.rglob("*.ndjson"))


@pytest.mark.parametrize(("source", "file"), [("otlp-json", SPANS), ("otlp-proto", PROTOBUF)])
def test_spans_become_evidence(tmp_path: Path, source: str, file: Path) -> None:
    """As OpenTelemetry's collector writes them."""
    if source == "otlp-proto":
        pytest.importorskip("opentelemetry.proto", reason="the extra otlp is not installed")
    evidence, said = evidence_of(tmp_path, "--from", source, "--server-id", "time", str(file))
    assert [(data["tool"], data["ok"]) for data in evidence] == [("add", True), ("fail", False), ("missing", False)]
    assert "decision 3" in said
