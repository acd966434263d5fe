"""Published cases of drift, through the report that ``assay-stream drift`` prints."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay_stream.drift.severity import PROFILES, Level, assess
from assay_stream.report.drift import DriftFinding, drift_findings, read_offer
from assay_stream.schemes.assay_manifest import SEVERITIES, compare_manifests, read_declared, read_observed
from tests.support.vectors import id_of

DATA = Path(__file__).resolve().parents[1] / "data"
MCPTRUST = json.loads((DATA / "vectors" / "mcptrust_drift.json").read_text(encoding="utf-8"))["cases"]
P60 = json.loads((DATA / "vectors" / "assay_manifest_drift_p60.json").read_text(encoding="utf-8"))["files"]
UPGRADES = json.loads((DATA / "captures" / "DRIFT.json").read_text(encoding="utf-8"))

KIND_OF_TYPE = {
    "TOOL_ADDED": "tool_added",
    "TOOL_REMOVED": "tool_removed",
    "TOOL_CHANGED": "tool_changed",
    "PROMPT_ADDED": "prompt_added",
    "PROMPT_REMOVED": "prompt_removed",
    "PROMPT_ARGS_CHANGED": "prompt_changed",
    "PROMPT_DESC_CHANGED": "prompt_changed",
    "TEMPLATE_ADDED": "template_added",
    "TEMPLATE_REMOVED": "template_removed",
    "TEMPLATE_CHANGED": "template_changed",
}
LEVELS = {"critical": Level.CRITICAL, "moderate": Level.MEDIUM, "info": Level.INFORMATIONAL}
PUBLISHED = {
    "tool_added": Level.CRITICAL,
    "tool_removed": Level.INFORMATIONAL,
    "prompt_removed": Level.CRITICAL,
    "prompt_changed": Level.INFORMATIONAL,
    "template_removed": Level.CRITICAL,
}
"""What MCPTrust publishes for the kinds in the cases; of a changed tool see ``_published``."""


def _report(before: Any, after: Any, profile: str) -> list[DriftFinding]:
    return drift_findings(read_offer(before), read_offer(after), profile=PROFILES[profile])


def _split(findings: list[DriftFinding]) -> dict[tuple[str, str], DriftFinding]:
    """The findings by kind and name; MCPTrust tells a rename as a removal and an addition."""
    found: dict[tuple[str, str], DriftFinding] = {}
    for finding in findings:
        if finding.kind == "tool_renamed":
            found[("tool_removed", finding.name)] = found[("tool_added", str(finding.renamed_to))] = finding
        else:
            found[(finding.kind, finding.name)] = finding
    return found


def _expected(case: dict[str, Any]) -> dict[tuple[str, str], Level]:
    expected: dict[tuple[str, str], Level] = {}
    for item in case["check_result_v3"]["drift"]:
        key = KIND_OF_TYPE[item["type"]], item["identifier"]
        expected[key] = max(LEVELS[item["severity"]], expected.get(key, Level.INFORMATIONAL))
    return expected


@pytest.mark.parametrize("case", MCPTRUST, ids=id_of)
def test_a_case_as_mcptrusts_code_has_it(case: dict[str, Any]) -> None:
    found = _split(_report(case["before"], case["after"], "mcptrust-code"))
    expected = _expected(case)
    assert found.keys() == expected.keys()
    assert {key: finding.level for key, finding in found.items()} == expected


def _published(case: dict[str, Any], kind: str, name: str) -> Level:
    if kind != "tool_changed":
        return PUBLISHED[kind]
    sides = [next(tool for tool in case[when]["tools"] if tool["name"] == name) for when in ("before", "after")]
    same_schema = sides[0].get("inputSchema") == sides[1].get("inputSchema")
    return Level.INFORMATIONAL if same_schema else Level.CRITICAL


@pytest.mark.parametrize("case", MCPTRUST, ids=id_of)
def test_a_case_as_mcptrust_publishes_it(case: dict[str, Any]) -> None:
    found = _split(_report(case["before"], case["after"], "mcptrust"))
    assert found.keys() == _expected(case).keys()
    for (kind, name), finding in found.items():
        renamed = "tool_added" if finding.kind == "tool_renamed" else kind
        assert finding.level is _published(case, renamed, name)


def test_a_risk_level_that_changed_is_critical_as_published() -> None:
    """MCPTrust's published table calls it critical; the check of its code does not report it."""
    before, after = ({"name": "t", "description": text} for text in ("Shows", "Runs a shell"))
    kinds = {name: {f.kind: f.level for f in _report(before, after, name)} for name in ("mcptrust", "mcptrust-code")}
    assert kinds["mcptrust"]["risk_level_changed"] is Level.CRITICAL
    assert "risk_level_changed" not in kinds["mcptrust-code"]


@pytest.mark.parametrize("case", P60["granular_diff_cases.json"]["cases"], ids=id_of)
def test_the_profile_assay_p60_agrees_with_the_granular_cases(case: dict[str, Any]) -> None:
    drift = compare_manifests(read_declared(case["declared"]), read_observed(case["observed"]))
    for finding in drift.findings:
        if finding.change in ("tool_added", "tool_removed"):
            level = assess(PROFILES["assay-p60"], finding.change, privileged=finding.privileged)
            assert str(level) == finding.severity == SEVERITIES[finding.change][finding.privileged]


def test_the_two_published_baselines_differ_by_a_privileged_tool() -> None:
    before = P60["canonicalization_example.json"]["manifest"]["tools"]
    after = [
        tool | {"annotations": {"readOnlyHint": True}} if tool["name"] == "github.add_deploy_key" else tool
        for tool in before
    ]
    (finding,) = _report({"tools": before}, {"tools": after}, "assay-p60")
    assert (finding.kind, finding.name, finding.level) == ("tool_changed", "github.add_deploy_key", Level.HIGH)


# --- real upgrades ----------------------------------------------------------------------------------------------

NEW_HINTS = {"read_only_claimed", "closed_world_claimed"}
ALL_HINTS = NEW_HINTS | {"non_destructive_claimed", "idempotent_claimed"}
OUTPUT = {"schema_declared"}
FILESYSTEM = {"execution_changed", "schema_declared", "title_added"}
WRITES = {"hint_default_stated", "closed_world_claimed"} | FILESYSTEM
READS = NEW_HINTS | FILESYSTEM

EXPECTED: dict[tuple[str, str], dict[str, set[str]]] = {
    # Titles of parameters, an output schema and all four hints came; "timezones" became "timezone".
    ("mcp-server-time", "0.6.2"): {
        "convert_time": ALL_HINTS | OUTPUT | {"parameter_title_added"},
        "get_current_time": ALL_HINTS | OUTPUT | {"parameter_title_added", "description_spelling_changed"},
    },
    # exclusiveMaximum 1000000 became maximum 999999 of an integer; the schema's description went.
    ("mcp-server-fetch", "2025.4.7"): {
        "fetch": {
            "read_only_claimed", "non_destructive_claimed", "idempotent_claimed", "hint_default_stated",
            "bounds_restated", "parameter_description_removed", "parameter_title_words_changed",
        },
    },
    ("server-filesystem", "2025.1.14"): {
        "list_allowed_directories": {"description_words_added"},
        # The new text sends callers to another tool of the list.
        "read_file": {"description_words_changed", "other_tool_named"},
    },
    # Schemas that held nothing but a dialect now state parameters.
    ("server-filesystem", "2025.8.21"): {
        "create_directory": WRITES | {"non_destructive_claimed", "idempotent_claimed"},
        "edit_file": WRITES,
        "move_file": WRITES,
        "write_file": WRITES | {"idempotent_claimed"},
        # Its schema was stated before: an empty list of required parameters went, a dialect came.
        "list_allowed_directories": READS | {"schema_dialect_changed"},
        "read_media_file": READS | {"description_words_changed"},
        "search_files": READS | {"description_words_changed"},
        **dict.fromkeys(
            ("directory_tree", "get_file_info", "list_directory", "list_directory_with_sizes", "read_file",
             "read_multiple_files", "read_text_file"),
            READS,
        ),
    },
    ("server-sequential-thinking", "0.6.2"): {
        "sequentialthinking": OUTPUT | {
            "description_words_changed", "execution_changed", "schema_dialect_changed", "bounds_tightened",
            "parameter_description_words_added", "title_added",
        },
    },
    ("server-sequential-thinking", "2025.11.25"): {
        "sequentialthinking": ALL_HINTS | {"description_words_changed", "type_widened"},
    },
}  # fmt: skip
"""Codes of each changed tool, from reading the captures."""


def _capture(package: str, version: str) -> Any:
    return json.loads((DATA / "captures" / f"{package}@{version}.tools_list.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("upgrade", UPGRADES, ids=lambda u: f"{u['package']}-{u['from']}")
def test_a_real_upgrade_is_understood_and_stays_at_medium(upgrade: dict[str, Any]) -> None:
    package, version = upgrade["package"], upgrade["from"]
    findings = _report(_capture(package, version), _capture(package, upgrade["to"]), "soc")
    changed = {f.name: set(f.codes) for f in findings if f.kind == "tool_changed"}
    assert changed == EXPECTED[(package, version)]
    assert sorted(f.name for f in findings if f.kind == "tool_added") == upgrade["added"]
    assert max(f.level for f in findings) <= Level.MEDIUM


def test_a_host_in_another_time_zone_is_a_change_of_words() -> None:
    """The same release prints its host's zone into its schema: three parameters, nothing above low."""
    findings = _report(
        _capture("mcp-server-time", "2026.10.19"), _capture("mcp-server-time", "2026.10.19+tz-Amsterdam"), "soc"
    )
    assert {f.name: f.codes for f in findings} == dict.fromkeys(
        ("convert_time", "get_current_time"), ("parameter_description_words_changed",)
    )
    assert {f.level for f in findings} == {Level.LOW}
