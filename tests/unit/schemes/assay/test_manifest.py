"""Assay manifests beyond their vectors: names, order, what is ambiguous and what may be declared."""

from __future__ import annotations

from typing import Any

import pytest

from assay_stream.canonical.digest import jcs_digest
from assay_stream.errors import InputError
from assay_stream.schemes.assay import manifest

SEARCH = {"name": "search", "description": "finds", "inputSchema": {"type": "object"}}


def test_duplicate_names() -> None:
    observed = manifest.observe_manifest("s", [{"name": "t"}, {"name": "t"}], "complete")
    assert (observed.status, len(observed.tools), observed.digest()) == ("ambiguous", 2, None)


def test_a_tool_without_a_name() -> None:
    with pytest.raises(InputError) as caught:
        manifest.observe_manifest("s", [{"name": "t"}, {}], "complete")
    assert caught.value.code == "tool_name_missing"


def test_names_are_sorted_as_utf_8() -> None:
    """Tools are ordered by the bytes of their names, not by UTF-16 code units."""
    tools = [{"name": "\U0001f600"}, {"name": "\uff3a"}]
    listed = [{"name": tool["name"], "tool_digest": str(manifest.manifest_tool_digest(tool))} for tool in tools[::-1]]
    wanted = jcs_digest({"projection": manifest.MANIFEST_PROJECTION, "tools": listed})
    assert manifest.observe_manifest("s", tools, "complete").digest() == wanted


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


@pytest.mark.parametrize("hint", [{"readOnlyHint": True}, {"destructiveHint": False}, None])
def test_annotations_do_not_decide_privilege(hint: Any) -> None:
    """A server cannot talk its tool out of the classification."""
    observed = manifest.observe_manifest("s", [{"name": "x.grant_admin", "annotations": hint}], "complete")
    assert [tool.privileged for tool in observed.tools] == [True]


def test_what_was_not_observed_is_a_state_of_its_own() -> None:
    """No list is not an empty list: it is of unknown completeness and has no digest."""
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
    with pytest.raises(InputError) as caught:
        manifest.declare_manifest(manifest.observe_manifest("s", tools, completeness))
    assert caught.value.code == "manifest_not_declarable"
