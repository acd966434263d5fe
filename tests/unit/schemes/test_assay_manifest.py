"""Assay manifests beyond their vectors: names, order, what is ambiguous and what may be declared."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from assay_stream.canonical.digest import Digest
from assay_stream.errors import InputError
from assay_stream.schemes import assay_manifest as manifest
from assay_stream.schemes.assay_manifest import (
    MANIFEST_FIELDS,
    REASON_CODES,
    SEVERITIES,
    Completeness,
    DeclaredManifest,
    ManifestTool,
    ObservedManifest,
    compare_manifests,
    declare_manifest,
    observe_manifest,
    read_declared,
    read_observed,
)
from tests.support.errors import raises_code
from tests.support.vectors import vectors

SEARCH = {"name": "search", "description": "finds", "inputSchema": {"type": "object"}}


def test_duplicate_names() -> None:
    observed = manifest.observe_manifest("s", [{"name": "t"}, {"name": "t"}], "complete")
    assert (observed.status, len(observed.tools), observed.digest()) == ("ambiguous", 2, None)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("add_deploy_key", "github_deploy_key"),
        ("github.add_deploy_key", "github_deploy_key"),
        ("a.b.grant_admin", "workspace_admin"),
        ("slack.invite", "slack_add_member"),
        ("add_deploy_key.search", None),
        ("github.add_deploy_keys", None),
        ("github.ADD_DEPLOY_KEY", None),
        ("github/add_deploy_key", None),
        ("github.add_deploy_key.", None),
        ("", None),
    ],
)
def test_classification_goes_by_the_name_after_the_last_dot(name: str, wanted: str | None) -> None:
    assert manifest.action_class(name) == wanted


def test_what_was_not_observed_is_a_state_of_its_own() -> None:
    missing = manifest.observe_manifest("s", None, "complete")
    empty = manifest.observe_manifest("s", [], "complete")
    assert (missing.status, missing.completeness, missing.digest()) == ("not_observed", "unknown", None)
    assert empty.digest() == manifest.digest_of_entries([])


def test_digests_of_another_projection_add_up_to_nothing() -> None:
    """How a projection that is not ours makes a manifest digest is not known here."""
    one = manifest.observe_manifest("s", [SEARCH], "complete")
    other = manifest.ObservedManifest(
        server_id="s", status="observed", completeness="complete", tools=one.tools, canonicalization="v9"
    )
    assert one.digest() is not None
    assert other.digest() is None


@pytest.mark.parametrize(
    ("tools", "completeness"),
    [(None, "complete"), ([SEARCH], "partial"), ([SEARCH], "unknown"), ([SEARCH, SEARCH], "complete")],
)
def test_what_may_not_be_declared(tools: Any, completeness: manifest.Completeness) -> None:
    with raises_code("manifest_not_declarable"):
        manifest.declare_manifest(manifest.observe_manifest("s", tools, completeness))


PLAIN = {"name": "search", "description": "finds", "inputSchema": {"type": "object"}}
PRIVILEGED = {"name": "github.add_deploy_key", "description": "adds"}


def seen(*tools: dict[str, Any], completeness: Completeness = "complete") -> ObservedManifest:
    return observe_manifest("s", tools, completeness)


def declared(*tools: dict[str, Any]) -> DeclaredManifest:
    return declare_manifest(seen(*tools))


def test_obstacles_end_the_comparison() -> None:
    was, now = declared(PLAIN), seen(PRIVILEGED)
    twice = ManifestTool(name="search", digest=Digest("0" * 64), privileged=False)
    cases = [
        (dataclasses.replace(was, digest=Digest("0" * 64)), now, "declared_manifest_digest_mismatch"),
        (was, dataclasses.replace(now, server_id="other"), "mcp_manifest_server_mismatch"),
        (was, dataclasses.replace(now, canonicalization="v9"), "mcp_manifest_canonicalization_mismatch"),
        (was, observe_manifest("s", None, "complete"), "inconclusive_manifest_not_observed"),
        (was, seen(PLAIN, PLAIN), "mcp_manifest_observation_ambiguous"),
        (was, dataclasses.replace(now, tools=(twice, twice)), "mcp_manifest_observation_ambiguous"),
    ]
    for before, after, code in cases:
        drift = compare_manifests(before, after)
        assert (drift.findings, drift.inconclusive) == ((), (code,))


def test_tables_cover_the_same_changes() -> None:
    assert SEVERITIES.keys() == REASON_CODES.keys()
    assert {f"{field}_changed" for field in MANIFEST_FIELDS} <= SEVERITIES.keys()
    rank = {"low": 0, "medium": 1, "high": 2}
    assert all(rank[plain] < rank[privileged] for plain, privileged in SEVERITIES.values())


FILES = vectors("assay_manifest_drift_p60")["files"]
DECLARED = {key: value for key, value in FILES["declared_per_tool_baseline.json"].items() if key != "note"}
OBSERVED = FILES["granular_diff_cases.json"]["cases"][0]["observed"]
Read = Callable[[Any], Any]


@pytest.mark.parametrize("record", [None, [], "x", 5])
@pytest.mark.parametrize("read", [read_observed, read_declared])
def test_a_record_is_an_object(read: Read, record: Any) -> None:
    with raises_code("wrong_type", "$"):
        read(record)


@pytest.mark.parametrize(
    ("read", "place", "value", "code"),
    [
        (read_declared, "schema", "v9", "unknown_value"),
        (read_declared, "server", [], "wrong_type"),
        (read_declared, "server.id", 5, "wrong_type"),
        (read_declared, "manifest_digest", "sha256:abc", "bad_digest"),
        (read_declared, "manifest_digest", None, "wrong_type"),
        (read_declared, "tools", {}, "wrong_type"),
        (read_declared, "tools.0", 5, "wrong_type"),
        (read_declared, "tools.0.name", None, "wrong_type"),
        (read_declared, "tools.0.tool_digest", "0" * 64, "bad_digest"),
        (read_declared, "tools.0.privileged", 1, "wrong_type"),
        (read_declared, "tools.0.field_digests", [], "wrong_type"),
        (read_declared, "tools.0.field_digests.annotations", "x", "bad_digest"),
        (read_observed, "status", "clean", "unknown_value"),
        (read_observed, "observed", None, "wrong_type"),
        (read_observed, "observed.tools_list_complete", "yes", "unknown_value"),
        (read_observed, "observed.tools_list_observed", "yes", "wrong_type"),
        (read_observed, "observed.canonicalization", None, "wrong_type"),
        (read_observed, "observed.tool_digests.1.name", [], "wrong_type"),
    ],
)
def test_a_wrong_part_is_refused_with_its_path(read: Read, place: str, value: Any, code: str) -> None:
    record = copy.deepcopy(DECLARED if read is read_declared else OBSERVED)
    *way, last = place.split(".")
    part: Any = record
    for step in way:
        part = part[int(step) if step.isdigit() else step]
    part[int(last) if last.isdigit() else last] = value
    with pytest.raises(InputError) as caught:
        read(record)
    path = "$" + "".join(f"[{step}]" if step.isdigit() else f".{step}" for step in (*way, last))
    assert (caught.value.code, caught.value.path) == (code, path)


@pytest.mark.parametrize("read", [read_observed, read_declared])
def test_a_missing_part_is_named(read: Read) -> None:
    whole = DECLARED if read is read_declared else OBSERVED
    for name in whole:
        with raises_code("missing_field", f"$.{name}"):
            read({key: value for key, value in whole.items() if key != name})
